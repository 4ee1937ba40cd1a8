// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Servers that are restarted in turn while their clients continue to make calls.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct RollingRestartTests {
    private static let clients = 200
    private static let restarts = effort < 10 ? 6 : 40

    /// The outcomes of the calls of all clients.
    private struct Tally {
        var succeeded = 0
        var failures: [SocketError] = []
    }

    private static var router: Router {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        // Some requests are being handled when their server is shut down.
        router.handle(102) { request, _ in
            try await Task.sleep(for: .milliseconds(Int.random(in: 1...20)))
            return request.body
        }
        return router
    }

    private static func start(at endpoint: Endpoint?) async throws -> SocketServer {
        let deadline = ContinuousClock.now + .seconds(60)
        while true {
            var configuration = SocketServer.Configuration(port: endpoint?.port ?? 0)
            configuration.shutdown.gracePeriod = .seconds(60)
            configuration.shutdown.retryAfter = .zero ... .milliseconds(500)
            let server = SocketServer(configuration: configuration, router: Self.router)
            do {
                try await server.start()
                return server
            } catch {
                // An outgoing connection of another process may have used the port for a moment.
                guard error.code == .bindFailed, ContinuousClock.now < deadline else { throw error }
            }
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    @Test func noCallIsLost() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let servers = NIOLockedValueBox([try await Self.start(at: nil), try await Self.start(at: nil)])
        let endpoints = try servers.withLockedValue { $0 }.map { try #require($0.address) }
        let tally = NIOLockedValueBox(Tally())
        let isOver = NIOLockedValueBox(false)
        var clients = (0..<Self.clients).map { index in
            // Half of the clients begin with each server.
            var configuration = SocketClient.Configuration(
                servers: index.isMultiple(of: 2) ? endpoints : endpoints.reversed()
            )
            configuration.socket.eventLoopGroup = group
            configuration.timeout = .seconds(60)
            // Every other pair uses hello.
            configuration.hello = index % 4 < 2 ? HelloPolicy() : nil
            let client = SocketClient(configuration: configuration)
            client.connect()
            return client
        }
        await withTaskGroup { tasks in
            for (index, client) in clients.enumerated() {
                tasks.addTask {
                    var number = 0
                    while !isOver.withLockedValue({ $0 }) {
                        number += 1
                        let body = "\(index) \(number)"
                        let type: UInt32 = number.isMultiple(of: 4) ? 102 : 101
                        do throws(SocketError) {
                            let answer = try await client.data(for: SocketRequest(type: type, body: body))
                            #expect(answer.string == body)
                            tally.withLockedValue { $0.succeeded += 1 }
                        } catch {
                            tally.withLockedValue { $0.failures.append(error) }
                        }
                        try? await Task.sleep(for: .milliseconds(5))
                    }
                }
            }
            tasks.addTask {
                do {
                    for restart in 0..<Self.restarts {
                        let index = restart % 2
                        // Waits until all clients are connected to a server.
                        let before = tally.withLockedValue { $0.succeeded }
                        try await eventually("calls go on") {
                            tally.withLockedValue { $0.succeeded + $0.failures.count } > before + 2 * Self.clients
                        }
                        await servers.withLockedValue { $0[index] }.shutdown()
                        let successor = try await Self.start(at: endpoints[index])
                        servers.withLockedValue { $0[index] = successor }
                    }
                } catch {
                    Issue.record(error)
                }
                isOver.withLockedValue { $0 = true }
            }
        }
        let (succeeded, failures) = tally.withLockedValue { ($0.succeeded, $0.failures) }
        #expect(failures.isEmpty, "\(failures.count) of \(succeeded): \(failures.prefix(3))")
        #expect(succeeded > Self.restarts * 2 * Self.clients)
        for client in clients { await client.close() }
        // The clients are released before the threads that they run on.
        clients = []
        for server in servers.withLockedValue({ $0 }) { await server.shutdown(gracePeriod: .zero) }
        try await group.shutdownGracefully()
    }
}
