// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import ChatModel
import HHSocketRPC
import HHSocketTesting
import Testing

/// The app over real TCP, with a server that each test configures.
@MainActor @Suite(.timeLimit(.minutes(5))) struct ChatSessionTests {
    @Test func lostConnectionShowsABannerUntilTheNextOne() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        let app = TestedApp.open(server)
        try await eventually("online") { app.model.status == .online }

        try await server.refuseConnections()
        await server.perform(.reset)
        try await eventually("offline") { app.model.status == .offline }
        #expect(app.model.status.banner != nil)

        // Messages sent meanwhile are loaded, since their pushes are not repeated.
        server.on(Types.recall, try .answer(Chat_History(Chat_Note(1, "missed"))))
        try await server.acceptConnections()
        try await eventually("online again") { app.model.status == .online && app.model.notes.count == 1 }
        await server.perform(try .push(Chat_Note(2, "now")))
        try await eventually("a push") { app.model.notes.count == 2 }
        await app.close()
    }

    @Test func messageWhoseAnswerIsLostIsRepeatedWithItsKey() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        server.once(Types.send, .reset)
        server.on(Types.send, try .answer(Chat_Receipt()))
        let app = TestedApp.open(server)
        try await eventually("online") { app.model.status == .online }

        app.model.draft = "once"
        await app.model.send()
        try await eventually("the receipt") { app.model.unsent.isEmpty }
        let sent = try await server.received(2, ofType: Types.send)
        #expect(sent[0].idempotencyKey != nil)
        #expect(sent[0].idempotencyKey == sent[1].idempotencyKey)
        await app.close()
    }

    @Test func messageWrittenOfflineIsSentByTheNextConnection() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        server.on(Types.send, try .answer(Chat_Receipt()))
        try await server.refuseConnections()
        let app = TestedApp.open(server)
        try await eventually("offline") { app.model.status == .offline }
        app.model.draft = "later"
        await app.model.send()
        try await server.acceptConnections()
        try await eventually("the receipt") { app.model.unsent.isEmpty && app.model.status == .online }
        let message = try await server.received(1, ofType: Types.send)[0].body
        #expect(try Chat_Message(serializedBytes: message).text == "later")
        await app.close()
    }

    @Test func refusedTokenIsRenewedOnceForAllCalls() async throws {
        let server = try await MockServer()
        let history = try MockServer.Reaction.answer(Chat_History(Chat_Note(1, "hello")))
        server.on(Types.recall, .respond { $0.metadata["token"] == "token 2" ? history : .status(.noPermission) })
        let receipt = try MockServer.Reaction.answer(Chat_Receipt())
        server.on(Types.send, .respond { $0.metadata["token"] == "token 2" ? receipt : .status(.noPermission) })
        let source = TokenSource()
        let app = TestedApp.open(server, source: source)
        app.model.draft = "hi"
        try await eventually("online") { app.model.status == .online }
        await app.model.send()
        try await eventually("the history") { app.model.notes.count == 1 && app.model.unsent.isEmpty }
        // The first token for hello and the calls, the second for all refused calls.
        #expect(await source.count == 2)
        #expect(app.model.status == .online)
        await app.close()
    }

    @Test func tokenThatExpiresIsRenewedBeforeTheNextConnection() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        let source = TokenSource(lifetime: 30)
        let app = TestedApp.open(server, source: source)
        try await eventually("online") { app.model.status == .online }
        await server.perform(.reset)
        let hellos = try await server.received(2, ofType: Types.hello)
        let tokens = hellos.map { hello in (1...9).first { hello.string.contains("token \($0)") } }
        #expect(tokens.allSatisfy { $0 != nil })
        #expect(tokens[0] != tokens[1])
        await app.close()
    }

    @Test func tokenThatHelloRefusesIsReplaced() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        // The second attempt may begin before the app is notified of the first one's end.
        for _ in 0..<4 { server.once(Types.hello, .status(.noPermission)) }
        let source = TokenSource()
        let app = TestedApp.open(server, source: source)
        try await eventually("online") { app.model.status == .online }
        let hellos = try await server.received(5, ofType: Types.hello)
        #expect(hellos[0].string.contains("token 1"))
        #expect(!hellos[4].string.contains("token 1"))
        await app.close()
    }

    @Test func withoutATokenTheUserIsAskedToSignIn() async throws {
        struct SignedOut: Error {}
        let server = try await MockServer()
        server.acceptHello()
        let app = TestedApp.open(server, tokens: SessionTokens { throw SignedOut() })
        try await eventually("signed out") { app.model.status == .signedOut }
        // Attempts have stopped: nothing happens until `connect()`.
        guard case .closed = app.session.client.state else {
            Issue.record("\(app.session.client.state)")
            return
        }
        await app.close()
    }

    @Test func callWhoseTokenCannotBeRenewedAsksTheUserToSignIn() async throws {
        struct SignedOut: Error {}
        let server = try await MockServer(.status(.noPermission))
        server.acceptHello()
        let source = TokenSource()
        let tokens = SessionTokens {
            let token = await source.next()
            guard token.text == "token 1" else { throw SignedOut() }
            return token
        }
        let app = TestedApp.open(server, tokens: tokens)
        try await eventually("signed out") { app.model.status == .signedOut }
        // The connection is ready: only its calls are rejected.
        guard case .ready = app.session.client.state else {
            Issue.record("\(app.session.client.state)")
            return
        }
        await app.close()
    }

    @Test func connectionThatDiesInTheBackgroundIsReplacedOnTheWayBack() async throws {
        let server = try await MockServer()
        server.on(Types.recall, try .answer(Chat_History()))
        let app = TestedApp.open(server)
        try await eventually("online") { app.model.status == .online }
        await app.session.didEnterBackground()
        await server.perform(.reset)
        try await eventually("offline") { app.model.status == .offline }
        // In the background there are no attempts.
        #expect(server.acceptedCount == 1)
        app.session.willEnterForeground()
        try await eventually("online") { app.model.status == .online }
        #expect(server.acceptedCount == 2)
        await app.close()
    }
}
