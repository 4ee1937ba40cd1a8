// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The delegate of a ``WebSocketLink``.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketDelegateTests {
    /// Records its notifications, and echoes messages up to a number.
    private final class Observer: WebSocketLinkDelegate {
        let notes = NIOLockedValueBox<[String]>([])
        private let answers: Int
        private let gate: DispatchSemaphore?

        init(answers: Int = 0, gate: DispatchSemaphore? = nil) {
            self.answers = answers
            self.gate = gate
        }

        private func note(_ text: String) -> Int {
            self.notes.withLockedValue { notes in
                notes.append(text)
                return notes.count
            }
        }

        var all: [String] { self.notes.withLockedValue { $0 } }

        func webSocketLink(
            _ link: WebSocketLink,
            didOpenTo endpoint: Endpoint,
            subprotocol: String?,
            headers: [(name: String, value: String)]
        ) {
            _ = self.note("opened \(subprotocol ?? "-") \(headers.contains { $0.name == "Sec-WebSocket-Accept" })")
        }

        func webSocketLink(_ link: WebSocketLink, didReceive message: WebSocketMessage) {
            self.gate?.wait()
            let count = self.note(message.text ?? "\(message.payload.readableBytes) bytes")
            if count <= self.answers { link.send(message, completion: nil) }
        }

        func webSocketLink(_ link: WebSocketLink, didReceivePong payload: ByteBuffer) {
            _ = self.note("pong \(String(buffer: payload))")
        }

        func webSocketLink(_ link: WebSocketLink, didCloseWith closure: WebSocketLink.Closure) {
            _ = self.note("closed \(closure.code) \(closure.reason) \(closure.wasClean)")
        }

        func webSocketLink(_ link: WebSocketLink, didFailToConnectWith error: SocketError) {
            _ = self.note("failed \(error.code)")
        }

        func webSocketLink(_ link: WebSocketLink, didGiveUpWith error: SocketError) {
            _ = self.note("gave up \(error.code)")
        }
    }

    private func server(
        _ handler: @escaping @Sendable (WebSocketConnection) async throws -> Void
    ) async throws -> SocketServer {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: nil)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: Router())
        var options = WebSocketRouteOptions()
        options.subprotocols = ["chat"]
        try server.webSocket("/", options: options, handler)
        try await server.start()
        return server
    }

    private func link(_ server: SocketServer, _ observer: Observer) throws -> WebSocketLink {
        let port = try #require(server.address).port
        var configuration = try WebSocketLink.Configuration(url: "ws://127.0.0.1:\(port)/")
        configuration.subprotocols = ["chat"]
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.socket.networkMonitor = nil
        let link = WebSocketLink(configuration: configuration)
        link.delegate = observer
        return link
    }

    @Test func itIsNotifiedInTheOrderOfEvents() async throws {
        let server = try await self.server { connection in
            for text in ["a", "b", "c"] { try await connection.send(WebSocketMessage(text)) }
            var messages = connection.messages.makeAsyncIterator()
            // The answers to a, b and c.
            for _ in 0..<3 { _ = await messages.next(isolation: #isolation) }
            try await connection.send(WebSocketMessage("all"))
            _ = await messages.next(isolation: #isolation)
            try await connection.send(WebSocketMessage("last"))
            connection.close(code: 4_999, reason: "enough")
            for await _ in connection.messages {}
        }
        let observer = Observer(answers: 4)
        let link = try self.link(server, observer)
        link.connect()
        try await eventually("the fourth message") { observer.all.contains("all") }
        _ = try await link.ping(ByteBuffer(string: "there"))
        try await link.send(WebSocketMessage("go on"))
        try await eventually("the end") { observer.all.last == "gave up connectionLost" }
        #expect(
            observer.all == [
                "opened chat true", "a", "b", "c", "all", "pong there", "last", "closed 4999 enough true",
                "gave up connectionLost",
            ]
        )
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func closeFrameIsAnsweredBehindItsAnswers() async throws {
        let answers = NIOLockedValueBox<[String]>([])
        let server = try await self.server { connection in
            for number in 0..<20 { try await connection.send(WebSocketMessage("\(number)")) }
            connection.close(code: 1_008)
            for await message in connection.messages {
                answers.withLockedValue { $0.append(message.text ?? "") }
            }
        }
        let observer = Observer(answers: 100)
        let link = try self.link(server, observer)
        link.connect()
        try await eventually("the end") { observer.all.last == "gave up connectionLost" }
        try await eventually("the answers") { answers.withLockedValue { $0 } == (0..<20).map { "\($0)" } }
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func readingIsSuspendedWhileItIsBehind() async throws {
        let sent = NIOLockedValueBox(0)
        let server = try await self.server { connection in
            for _ in 0..<200 {
                try await connection.send(WebSocketMessage([UInt8](repeating: 7, count: 1 << 20)))
                sent.withLockedValue { $0 += 1 }
            }
            for await _ in connection.messages {}
        }
        let gate = DispatchSemaphore(value: 0)
        let observer = Observer(gate: gate)
        let link = try self.link(server, observer)
        link.connect()
        // More than the limit of 8 MiB is sent, and then no more.
        let last = NIOLockedValueBox((count: 0, since: ContinuousClock.now))
        try await eventually("a server that waits") {
            let count = sent.withLockedValue { $0 }
            return last.withLockedValue { last in
                if count != last.count { last = (count, .now) }
                return count >= 8 && ContinuousClock.now - last.since > .milliseconds(500)
            }
        }
        #expect(sent.withLockedValue { $0 } < 200)
        for _ in 0..<200 { gate.signal() }
        try await eventually("all messages") { observer.all.filter { $0 == "\(1 << 20) bytes" }.count == 200 }
        link.disconnect()
        await server.shutdown(gracePeriod: .zero)
    }
}
