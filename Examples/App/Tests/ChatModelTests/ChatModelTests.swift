// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import ChatModel
import Foundation
import HHSocketRPC
import Testing

/// The model alone, with a `MockClient`: neither sockets nor a connection.
@MainActor @Suite(.timeLimit(.minutes(2))) struct ChatModelTests {
    private let events = AsyncStream.makeStream(of: SocketEvent.self)
    private let server = Endpoint(host: "127.0.0.1", port: 1)

    @Test func notesAreThoseOfTheHistoryAndThePushesEachOnce() async throws {
        var chat = Chat_Chat.MockClient()
        chat.onRecall = { _ in Chat_History(Chat_Note(1, "hello"), Chat_Note(2, "again")) }
        let model = ChatModel(author: "ann", chat: chat)
        let running = Task { [events] in await model.run(events: events.stream) }
        self.events.continuation.yield(.connected(self.server))
        try await eventually("the history") { model.notes.count == 2 }

        chat.pushSource.send(Chat_Note(4, "fourth"))
        chat.pushSource.send(Chat_Note(2, "again"))
        chat.pushSource.send(Chat_Note(3, "third"))
        try await eventually("the pushes") { model.notes.map(\.number) == [1, 2, 3, 4] }
        running.cancel()
        await running.value
    }

    @Test func messageStaysWhileThereIsNoConnection() async throws {
        var chat = Chat_Chat.MockClient()
        chat.onSend = { _ in throw SocketError(.notConnected, message: "offline") }
        let offline = ChatModel(author: "ann", chat: chat, file: nil)
        offline.draft = "hi"
        await offline.send()
        #expect(offline.draft.isEmpty)
        #expect(offline.unsent.map(\.text) == ["hi"])
        #expect(offline.unsent.first?.failure == nil)
    }

    @Test func errorThatStaysFailsTheMessageAndTheNextOneIsSent() async throws {
        var chat = Chat_Chat.MockClient()
        chat.onSend = { message in
            if message.text == "long" { throw SocketError(.illegalLength, message: "too long") }
            return Chat_Receipt()
        }
        let model = ChatModel(author: "ann", chat: chat)
        for text in ["long", "short"] {
            model.draft = text
            await model.send()
        }
        #expect(model.unsent.map(\.text) == ["long"])
        #expect(model.unsent.first?.failure == "too long")
        #expect(model.alert == nil)
    }

    @Test func unsentMessagesSurviveInTheirFile() async throws {
        let url = FileManager.default.temporaryDirectory.appendingPathComponent("unsent-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: url) }
        var chat = Chat_Chat.MockClient()
        chat.onSend = { _ in throw SocketError(.connectionLost, message: "lost", delivery: .sentUnknown) }
        let first = ChatModel(author: "ann", chat: chat, file: UnsentFile(at: url))
        first.draft = "hi"
        await first.send()

        chat.onSend = { _ in Chat_Receipt() }
        let second = ChatModel(author: "ann", chat: chat, file: UnsentFile(at: url))
        #expect(second.unsent == first.unsent)
        await second.sendUnsent()
        #expect(second.unsent.isEmpty)
        #expect(UnsentFile(at: url).load().isEmpty)
    }

    @Test func statusIsThatOfTheLastEventThatTheUserSees() {
        let lost = SocketError(.connectionLost, message: "lost")
        let table: [(SocketEvent, ConnectionStatus)] = [
            (.connecting(self.server, attempt: 1), .connecting),
            (.handshaking(self.server), .connecting),
            (.connected(self.server), .online),
            (.networkChanged(isReachable: false), .online),
            (.disconnected(lost), .offline),
            (.connecting(self.server, attempt: 1), .offline),
            (.waiting(delay: .seconds(1), reason: lost), .offline),
            (.connected(self.server), .online),
            (.gaveUp(SocketError(.handshakeRefused, message: "no token")), .signedOut),
            (.gaveUp(SocketError(.noServerReachable, message: "none")), .stopped(reason: "none")),
            (.switched(from: self.server, to: self.server), .online),
        ]
        var status = ConnectionStatus.connecting
        for (event, expected) in table {
            status.apply(event)
            #expect(status == expected, "\(event)")
        }
        #expect(status.banner == nil)
        #expect(ConnectionStatus.offline.banner != nil)
    }
}
