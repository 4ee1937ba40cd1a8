// SPDX-License-Identifier: Apache-2.0
#if Outbox
import HHSocketOutbox
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The examples of the last section of `AppLayer.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct OutboxGuideTests {
    @Test func everyExampleOfTheSectionIsInThisFile() throws {
        let section = try DocumentationPage(guide: "AppLayer", section: "Outbox")
        #expect(section.blocks().filter { !DocumentationPage.isOfAManifest($0) }.count == 5)
        #expect(try section.shortcomings(allowing: ["HHSocketServer"]) == [])
    }

    @Test func sendingAMessage() async throws {
        var serverConfiguration = SocketServer.Configuration()

        serverConfiguration.hello.idempotency.lifetime = .seconds(7 * 24 * 60 * 60)
        serverConfiguration.hello.idempotency.maximumCount = 10_000_000
        serverConfiguration.hello.idempotency.maximumBytes = 8 << 30

        var router = Router()
        router.handle(130) { request, _ in request.body }
        let server = SocketServer(configuration: serverConfiguration, router: router)
        try await server.start()
        let servers = server.addresses
        let scratch = try TemporaryFolder()
        let folder = scratch.path

        var configuration = SocketClient.Configuration(servers: servers)
        configuration.hello = HelloPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()

        let outbox = try await Outbox(at: folder + "/outbox.sqlite", client: client)
        try await outbox.enqueue(OutboxMessage(type: 130, body: "hello", topic: "conversation 7"))

        Task {
            for await event in outbox.events { print(event) }
        }
        for await snapshot in outbox.snapshots {
            print("\(snapshot.count) messages wait, \(snapshot.topics["conversation 7"]?.count ?? 0) of them here")
            if snapshot.count == 0 { break }
        }

        #expect(outbox.pending.isEmpty)
        await outbox.close()
        await server.shutdown(gracePeriod: .zero)
    }

    private struct User {
        var identifier: String
    }

    @Test func deadLettersOfAnAccount() async throws {
        // The server accepts only type 130 with a body; it does not have 131 yet.
        var router = Router()
        router.handle(130) { _, _ in throw StatusError(.illegalFormat) }
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let user = User(identifier: "ann")
        let scratch = try TemporaryFolder()
        var configuration = SocketClient.Configuration(servers: server.addresses)
        configuration.hello = HelloPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()

        var settings = OutboxConfiguration()
        settings.account = user.identifier

        settings.maximumAttempts = 1
        let path = scratch.file("outbox.sqlite")
        let outbox = try await Outbox(at: path, client: client, configuration: settings)
        for type in [130, 131] as [UInt32] { try await outbox.enqueue(OutboxMessage(type: type, topic: "a")) }
        try await eventually("two dead letters") { outbox.snapshot.deadLetterCount == 2 }
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.reason) == [.refused, .exhausted])
        #expect(letters.map(\.status) == [.illegalFormat, .undefinedType])
        client.disconnect()
        try await eventually("no connection") { !outbox.snapshot.isConnected }

        for letter in try await outbox.deadLetters() {
            print("\(letter.reason), \(letter.status.map { "status \($0)" } ?? "no answer"): \(letter.explanation)")
            if letter.reason == .exhausted {
                try await outbox.resend(deadLetter: letter.id)
            } else {
                try await outbox.remove(deadLetter: letter.id)
            }
        }

        #expect(outbox.pending.map(\.type) == [131])
        #expect(outbox.snapshot.deadLetterCount == 0)
        await outbox.close()
        await server.shutdown(gracePeriod: .zero)
    }
}
#endif
