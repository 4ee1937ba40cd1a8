// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOPosix
import TestSupport
import Testing

@testable import HHSocket

private func path(_ name: String) -> NetworkPath { NetworkPath(isReachable: true, name: name) }

/// A system whose network the test controls.
private final class System: Sendable {
    private struct State {
        var path = NetworkPath(isReachable: true, name: "first")
        var report: [@Sendable (NetworkPath) -> Void] = []
        var cancelled = 0
    }

    private final class Watcher: PathWatcher {
        let system: System

        init(_ system: System) { self.system = system }

        func cancel() { self.system.state.withLockedValue { $0.cancelled += 1 } }
    }

    private let state = NIOLockedValueBox(State())

    var watched: Int { self.state.withLockedValue { $0.report.count } }
    var cancelled: Int { self.state.withLockedValue { $0.cancelled } }

    func makeMonitor() -> SystemNetworkMonitor {
        SystemNetworkMonitor { _, report in
            let path = self.state.withLockedValue { state in
                state.report.append(report)
                return state.path
            }
            report(path)
            return Watcher(self)
        }
    }

    /// All watchers report it, even cancelled ones, which may have begun a report before.
    func change(_ path: NetworkPath, on monitor: SystemNetworkMonitor) {
        let report = self.state.withLockedValue { state in
            state.path = path
            return state.report
        }
        monitor.perform { for report in report { report(path) } }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SystemNetworkMonitorTests {
    @Test func manyObserversShareOneWatcherWhichEndsWithTheLast() async throws {
        let system = System()
        let monitor = system.makeMonitor()
        #expect(!monitor.isWatching)
        do {
            let streams = (0..<100).map { _ in monitor.paths() }
            for stream in streams {
                #expect(try await first(of: stream, "the present path") == path("first"))
            }
            #expect(system.watched == 1)
            #expect(monitor.isWatching)
            withExtendedLifetime(streams) {}
        }
        try await eventually("the end") { !monitor.isWatching }
        #expect(system.cancelled == 1)
    }

    @Test func onlyAnotherPathIsReportedAndNoWordOfAWatcherThatWasCancelled() async throws {
        let system = System()
        let monitor = system.makeMonitor()
        _ = try await first(of: monitor.paths(), "the present path")
        try await eventually("the end") { !monitor.isWatching }
        system.change(path("second"), on: monitor)

        var paths = monitor.paths().makeAsyncIterator()
        #expect(await paths.next() == path("second"))
        #expect(system.watched == 2)
        system.change(path("second"), on: monitor)
        system.change(path("third"), on: monitor)
        system.change(NetworkPath(isReachable: false), on: monitor)
        #expect(await paths.next() == path("third"))
        #expect(await paths.next() == NetworkPath(isReachable: false))
    }

    @Test func socketsShareOneWatcherFromTheFirstThatConnectsToTheLastThatIsReleased() async throws {
        let system = System()
        let monitor = system.makeMonitor()
        var configuration = SocketConfiguration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.networkMonitor = monitor
        configuration.eventLoopGroup = MultiThreadedEventLoopGroup.singleton
        configuration.backoff.base = .seconds(600)
        do {
            let sockets = (0..<50).map { _ in Socket(configuration: configuration) }
            #expect(!monitor.isWatching)
            for socket in sockets {
                socket.connect()
                socket.connect()
            }
            try await eventually("observers") { monitor.observerCount == 50 }
            #expect(system.watched == 1)
            sockets.first?.disconnect()
            // A closed socket may connect again. A release build would release the others before.
            withExtendedLifetime(sockets) { #expect(monitor.observerCount == 50) }
        }
        try await eventually("the end") { !monitor.isWatching }
        #expect(system.cancelled == 1)
    }

    @Test func realSystemReportsItsPath() async throws {
        let monitor = SystemNetworkMonitor(watching: watchSystemPath)
        _ = try await first(of: monitor.paths(), "the present path")
        try await eventually("the end") { !monitor.isWatching }
    }
}
