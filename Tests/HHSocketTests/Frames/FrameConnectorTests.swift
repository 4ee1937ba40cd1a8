// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(5))) struct FrameConnectorTests {
    /// A driver that is never used here.
    private final class IdleDriver: ConnectionDriver {
        let requests = NIOLockedValueBox(0)
        var currentEndpoint: Endpoint? { nil }
        var lastError: SocketError? { nil }
        var isClosed: Bool { false }
        var isNetworkReachable: Bool { true }
        func notConnected() -> SocketError { SocketError(.notConnected, message: "idle") }
        func perform(_ request: DriverRequest, in turn: inout Turn) { self.requests.withLockedValue { $0 += 1 } }
        func measure() {}
    }

    private final class IdleHost: LinkHost, FrameHost {
        func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {}
        func connectionIsReady(_ connection: PendingConnection, in turn: inout Turn) {}
        func receivedGoAway(_ frame: Frame, on id: ConnectionID, in turn: inout Turn) {}
    }

    /// A thread that runs its wake-ups when the test requests it.
    private final class ManualThread: Sendable {
        private let waiting = NIOLockedValueBox<[@Sendable () -> Void]>([])
        private let isRunning = NIOLockedValueBox(false)

        var count: Int { self.waiting.withLockedValue { $0.count } }

        var loopThread: LoopThread {
            LoopThread(
                isCurrent: { self.isRunning.withLockedValue { $0 } },
                wake: { body in self.waiting.withLockedValue { $0.append(body) } },
                now: { .now() }
            )
        }

        func run() {
            self.isRunning.withLockedValue { $0 = true }
            let bodies = self.waiting.withLockedValue { waiting in
                defer { waiting = [] }
                return waiting
            }
            for body in bodies { body() }
            self.isRunning.withLockedValue { $0 = false }
        }
    }

    /// Returns the number of requests to the driver by a gate that lets calls through.
    private func requests(driverGoes: Bool) async throws -> Int {
        let endpoint = Endpoint(host: "example.org", port: 1)
        var configuration = SocketConfiguration(servers: [endpoint])
        let (words, gatekeeper) = AsyncStream<Void>.makeStream()
        configuration.gate = HandshakeGate { _ in for await _ in words { return } }
        let connector = FrameConnector(FrameRules(configuration))
        let thread = ManualThread()
        let loop = SocketLoop(eventLoop: MultiThreadedEventLoopGroup.singleton.any(), thread: thread.loopThread)
        var driver: IdleDriver? = IdleDriver()
        let requests = driver?.requests
        let host = IdleHost()
        if let driver { connector.attach(to: driver, host) }
        let made = try connector.makeLink(ConnectionID(number: 1), to: endpoint, agreement: nil, on: loop, for: host)
        let connection = try #require(made as? PendingConnection)
        loop.submit(.closure { connection.shakeHands(attempt: 1, in: &$0) })
        thread.run()
        gatekeeper.yield()
        // The gate has returned, and its result waits for the thread.
        try await eventually("the gate's return") { thread.count == 1 }
        if driverGoes { driver = nil }
        thread.run()
        withExtendedLifetime((connector, connection, driver, host)) {}
        return requests?.withLockedValue { $0 } ?? 0
    }

    @Test func driverIsNotifiedThatTheGateHasReturned() async throws {
        #expect(try await self.requests(driverGoes: false) == 1)
    }

    @Test func gateThatReturnsWhenTheDriverHasGoneIsIgnored() async throws {
        #expect(try await self.requests(driverGoes: true) == 0)
    }
}
