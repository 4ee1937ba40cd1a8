#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport

@testable import HHSocketServer

/// A server with the default configuration in a process of its own, so that its memory is nobody else's. The test asks
/// it for figures by another server of that process, on a Unix domain socket, which is under no attack.
enum ServerUnderAttack {
    /// How it differs from the default.
    enum Variant: String, CaseIterable, Sendable {
        case plain
        /// The attackers come over TLS, to a second listener.
        case tls
        case answersInOrder
        /// The attackers come over WebSocket, to the port that takes plain TCP too.
        case framesOverWebSocket
        /// The attackers come to WebSockets whose messages are echoed.
        case messages

        /// The path that is attacked.
        var path: String? {
            switch self {
            case .framesOverWebSocket: ServerUnderAttack.framesPath
            case .messages: ServerUnderAttack.messagesPath
            case .plain, .tls, .answersInOrder: nil
            }
        }

        var isWebSocket: Bool { self.path != nil }

        func configuration() throws -> SocketServer.Configuration {
            var configuration = SocketServer.Configuration()
            switch self {
            case .plain: break
            case .tls:
                let identity = try TestCertificate(.server).identity
                configuration.listeners.append(ServerListener(tls: ServerTLS(identity: identity)))
            case .answersInOrder: configuration.answersInOrder = true
            case .framesOverWebSocket, .messages:
                let url = "tcp+ws://127.0.0.1:0\(ServerUnderAttack.framesPath)"
                configuration.listeners = [try ServerListener(url: url)]
            }
            return configuration
        }
    }

    static let framesPath = "/rpc"
    static let messagesPath = "/echo"
    static let synchronousEcho: UInt32 = 101
    static let echo: UInt32 = 102
    /// It answers nothing until it is cancelled.
    static let hang: UInt32 = 103
    /// It answers after a second, with 240 KiB that all answers share.
    static let largeAnswer: UInt32 = 104

    private static var options: WebSocketRouteOptions {
        var options = WebSocketRouteOptions()
        options.compression = WebSocketCompression()
        return options
    }

    private static var router: Router {
        var router = Router()
        let answer = ByteBuffer(repeating: 0x61, count: 240 << 10)
        router.handleSynchronously(Self.synchronousEcho) { request, _ in request.body }
        router.handle(Self.echo) { request, _ in request.body }
        router.handle(Self.hang) { request, _ in
            try await untilCancelled()
            return request.body
        }
        router.handle(Self.largeAnswer) { _, _ in
            try await Task.sleep(for: .seconds(1))
            return answer
        }
        return router
    }

    /// Runs until it is asked to end.
    ///
    /// - Parameter path: Where the other server listens.
    static func run(_ variant: Variant, control path: String) async throws {
        let routes: (SocketServer) throws -> Void = { server in
            guard variant.isWebSocket else { return }
            try server.webSocket(Self.messagesPath, options: Self.options) { connection in
                for await message in connection.messages { try await connection.send(message) }
            }
        }
        try await withServer(try variant.configuration(), Self.router, routes) { server in
            let meter = Meter(server)
            let (ends, end) = AsyncStream.makeStream(of: Void.self)
            var control = Router()
            control.handleSynchronously(Control.Question.ports.rawValue) { _, _ in
                ByteBuffer(bytes: try JSONEncoder().encode(server.addresses.map(\.port)))
            }
            control.handleSynchronously(Control.Question.mark.rawValue) { _, _ in
                meter.mark()
                return ByteBuffer()
            }
            control.handleSynchronously(Control.Question.figures.rawValue) { _, _ in
                ByteBuffer(bytes: try JSONEncoder().encode(meter.figures))
            }
            control.handleSynchronously(Control.Question.end.rawValue) { _, _ in
                end.finish()
                return ByteBuffer()
            }
            try await withServer(.init(unixPath: path), control) { _ in
                for await _ in ends {}
            }
            meter.end()
        }
    }

    /// What the server holds and does.
    struct Figures: Codable, Sendable, CustomStringConvertible {
        /// The bytes of resident memory that the process has gained at most since the mark.
        var growth = 0
        /// The bytes that the server said it held at most since the mark.
        var held = 0
        // And now:
        var bufferedBytes = 0
        var connections = 0
        var requestsInFlight = 0

        var description: String {
            """
            at most \(self.held >> 20) MiB held by its account and \(self.growth >> 20) MiB gained; now \(self.bufferedBytes) bytes \
            held, \(self.connections) connections, \(self.requestsInFlight) requests in flight
            """
        }
    }

    /// Looks at the memory every few milliseconds, from a thread of its own.
    private final class Meter: Sendable {
        private struct State {
            var baseline: Int
            var figures = Figures()
            var isOver = false
        }

        private let server: SocketServer
        private let state = NIOLockedValueBox(State(baseline: residentBytes()))

        init(_ server: SocketServer) {
            self.server = server
            Thread.detachNewThread { [self] in
                while !self.look().isOver { usleep(5_000) }
            }
        }

        @discardableResult
        private func look() -> State {
            let (resident, held) = (residentBytes(), self.server.bufferedBytes)
            return self.state.withLockedValue { state in
                state.figures.growth = max(state.figures.growth, resident - state.baseline)
                state.figures.held = max(state.figures.held, held)
                return state
            }
        }

        func mark() {
            // What was freed before would be used again, as if nothing were gained.
            returnFreeMemory()
            self.state.withLockedValue { $0 = State(baseline: residentBytes()) }
        }

        var figures: Figures {
            var figures = self.look().figures
            figures.bufferedBytes = self.server.bufferedBytes
            figures.connections = self.server.connectionCount
            figures.requestsInFlight = self.server.requestsInFlight
            return figures
        }

        func end() {
            self.state.withLockedValue { $0.isOver = true }
        }
    }

    /// The test's side of the other server.
    final class Control: Sendable {
        fileprivate enum Question: UInt32 {
            case ports = 101
            case mark, figures, end
        }

        private let client: HostileClient

        /// Waits until the server listens.
        init(_ path: String) async throws {
            self.client = try await eventually("a server at \(path)") {
                try? await HostileClient(to: Endpoint(unixPath: path))
            }
        }

        private func ask(_ question: Question) async throws -> ByteBuffer {
            await self.client.perform(.request(question.rawValue, serial: 50))
            return try await self.client.response(within: patience).payload
        }

        /// Where the server under attack listens.
        func addresses() async throws -> [Endpoint] {
            try JSONDecoder().decode([Int].self, from: try await self.ask(.ports).bytes)
                .map { Endpoint(host: "127.0.0.1", port: $0) }
        }

        /// Measures memory from here on.
        func mark() async throws { _ = try await self.ask(.mark) }

        func figures() async throws -> Figures {
            try JSONDecoder().decode(Figures.self, from: try await self.ask(.figures).bytes)
        }

        func end() async { _ = try? await self.ask(.end) }
    }
}

extension ByteBuffer {
    fileprivate var bytes: Data { Data(self.readableBytesView) }
}
#endif
