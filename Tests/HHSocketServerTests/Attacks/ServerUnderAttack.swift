// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport

@testable import HHSocketServer

/// A server with the default configuration in a separate process, so that the memory is only its own. The test gets
/// figures from another server of that process, on a Unix domain socket, which is not attacked.
enum ServerUnderAttack {
    static let framesPath = "/rpc"
    static let messagesPath = "/echo"
    /// The token of clients that the variant `strangers` knows.
    static let knownToken = "known"

    // MARK: Types

    static let synchronousEcho: UInt32 = 101
    static let echo: UInt32 = 102
    /// Never answers until it is cancelled.
    static let hang: UInt32 = 103
    /// Answers after a second, with 240 KiB that all answers share.
    static let largeAnswer: UInt32 = 104
    /// Answers after two seconds, with its own 1 KiB.
    static let lateAnswer: UInt32 = 105
    /// Answers immediately, with 60 KiB that can be compressed.
    static let compressibleAnswer: UInt32 = 106
    /// Answers with the number of its calls.
    static let counter: UInt32 = 107
    /// Echoes after a second.
    static let slowEcho: UInt32 = 108
    /// Pushes 64 KiB to every client.
    static let broadcast: UInt32 = 109
    static let blockingEcho: UInt32 = 110
    /// Occupies one of the blocking threads for 80 ms.
    static let slowBlockingEcho: UInt32 = 111
    static let push: UInt32 = 2_000

    static let honestTypes = HonestClients.Types(
        synchronous: Self.synchronousEcho,
        asynchronous: Self.echo,
        blocking: Self.blockingEcho,
        push: Self.push
    )

    private static func router(_ server: NIOLockedValueBox<SocketServer?>) -> Router {
        var router = Router()
        let answer = ByteBuffer(repeating: 0x61, count: 240 << 10)
        let line = "{\"name\": \"a name\", \"value\": 12345, \"tags\": [\"one\", \"two\"]}\n"
        let lines = ByteBuffer(string: String(repeating: line, count: (60 << 10) / line.utf8.count))
        let news = ByteBuffer(repeating: 0x61, count: 64 << 10)
        let calls = NIOLockedValueBox(0)
        router.handleSynchronously(Self.synchronousEcho) { request, _ in request.body }
        router.handle(Self.echo) { request, _ in request.body }
        router.handle(Self.hang) { request, _ in
            try await untilCancelledWithoutATrace()
            return request.body
        }
        router.handle(Self.largeAnswer) { _, _ in
            try await Task.sleep(for: .seconds(1))
            return answer
        }
        router.handle(Self.lateAnswer) { _, _ in
            try await Task.sleep(for: .seconds(2))
            return ByteBuffer(repeating: 0x61, count: 1 << 10)
        }
        router.handleSynchronously(Self.compressibleAnswer) { _, _ in lines }
        router.handle(Self.counter) { _, _ in
            let count = calls.withLockedValue { calls in
                calls += 1
                return calls
            }
            return ByteBuffer(integer: count)
        }
        router.handle(Self.slowEcho) { request, _ in
            try await Task.sleep(for: .seconds(1))
            return request.body
        }
        router.handle(Self.broadcast) { _, _ in
            await server.withLockedValue { $0 }?.push(type: Self.push, body: news)
            return ByteBuffer()
        }
        router.handleBlocking(Self.blockingEcho) { request, _ in request.body }
        router.handleBlocking(Self.slowBlockingEcho) { request, _ in
            usleep(80_000)
            return request.body
        }
        return router
    }

    private static var options: WebSocketRouteOptions {
        var options = WebSocketRouteOptions()
        options.compression = WebSocketCompression()
        return options
    }

    // MARK: The server's process

    /// Runs a server until it is asked to end.
    ///
    /// - Parameter path: The path at which the other server listens.
    static func run(_ variant: Variant, control path: String) async throws {
        try limitDescriptors(variant.descriptors)
        let log = try variant.levelOfUnreadLog.map { try FullPipe(level: $0) }
        let running = NIOLockedValueBox<SocketServer?>(nil)
        let routes: (SocketServer) throws -> Void = { server in
            running.withLockedValue { $0 = server }
            guard variant.hasWebSockets else { return }
            try server.webSocket(Self.messagesPath, options: Self.options) { connection in
                for await message in connection.messages { try await connection.send(message) }
            }
        }
        var configuration = try variant.configuration()
        if let log { configuration.logger = log.logger }
        var router = Self.router(running)
        if variant == .strangers { router.use(AuthenticationMiddleware()) }
        try await withServer(configuration, router, routes) { server in
            let meter = MemoryMeter(server)
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
                // Threads that wait to write into it could keep the process from ending.
                log?.close()
                end.finish()
                return ByteBuffer()
            }
            try await withServer(.init(unixPath: path), control) { _ in
                for await _ in ends {}
            }
            meter.end()
        }
        running.withLockedValue { $0 = nil }
    }

    /// The test's client of the other server.
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
            return try await self.client.response(within: .seconds(60)).payload
        }

        /// Returns the addresses of the server under attack.
        func addresses() async throws -> [Endpoint] {
            try JSONDecoder().decode([Int].self, from: try await self.ask(.ports).bytes)
                .map { Endpoint(host: "127.0.0.1", port: $0) }
        }

        /// Starts measuring memory.
        func mark() async throws { _ = try await self.ask(.mark) }

        func figures() async throws -> MemoryMeter.Figures {
            try JSONDecoder().decode(MemoryMeter.Figures.self, from: try await self.ask(.figures).bytes)
        }

        func end() async { _ = try? await self.ask(.end) }
    }
}

extension ByteBuffer {
    fileprivate var bytes: Data { Data(self.readableBytesView) }
}
#endif
