// SPDX-License-Identifier: Apache-2.0
import InMemoryLogging
import Logging
import Testing

@testable import HHSocket

@Suite struct ConnectionLogTests {
    private let a = Endpoint(host: "a", port: 1)
    private let b = Endpoint(host: "b", port: 2)

    /// The log of these events: level, message and metadata, one line each.
    private func lines(_ level: Logger.Level = .trace, _ events: SocketEvent...) -> [String] {
        let handler = InMemoryLogHandler()
        var logger = Logger(label: "test", factory: { _ in handler })
        logger.logLevel = level
        var log = ConnectionLog(logger)
        for event in events { log.happened(event) }
        return handler.entries.map { entry in
            let metadata = entry.metadata.sorted { $0.key < $1.key }.map { " \($0.key)=\($0.value)" }.joined()
            return "\(entry.level) \(entry.message)\(metadata)"
        }
    }

    @Test func everyLineNamesTheServerAndTheAttempt() {
        let refused = SocketError(.connectionRefused, message: "refused", endpoint: self.a)
        let lines = self.lines(
            .trace,
            .connecting(self.a, attempt: 1),
            .connectFailed(refused),
            .waiting(delay: .seconds(2), reason: refused),
            .connecting(self.b, attempt: 2),
            .handshaking(self.b),
            .connected(self.b),
            .disconnected(SocketError(.connectionLost, message: "lost", endpoint: self.b)),
            .connecting(self.b, attempt: 1),
            .connected(self.b)
        )
        #expect(
            lines == [
                "trace connecting attempt=1 server=a:1",
                "debug connect failed attempt=1 cause=connectionRefused error=refused server=a:1",
                "debug waiting to reconnect attempt=1 cause=connectionRefused delay=2.0 seconds error=refused server=a:1",
                "trace connecting attempt=2 server=b:2",
                "trace handshaking attempt=2 server=b:2",
                "debug connected attempt=2 server=b:2",
                "debug connection lost cause=connectionLost error=lost server=b:2",
                "trace connecting attempt=1 server=b:2",
                "debug connected attempt=1 server=b:2",
            ]
        )
    }

    @Test func switchesTheNetworkAndTheAppsLifeAreReportedToo() {
        let lines = self.lines(
            .trace,
            .switched(from: self.a, to: self.b),
            .switchFailed(SocketError(.connectTimeout, message: "slow", endpoint: self.a)),
            .goAway(self.a, reason: "restart", retryAfter: .milliseconds(1_500)),
            .networkChanged(isReachable: false),
            .networkChanged(isReachable: true),
            .enteredBackground,
            .willEnterForeground,
            .closed
        )
        #expect(
            lines == [
                "debug switched to another server from=a:1 server=b:2",
                "debug no other server could be reached cause=connectTimeout error=slow server=a:1",
                "debug the server sent a go-away reason=restart retry_after=1.5 seconds server=a:1",
                "debug the network was lost",
                "debug the network changed",
                "debug the app went to the background",
                "debug the app returns to the foreground",
                "debug closed by the user",
            ]
        )
    }

    @Test func onlyStoppedAttemptsAreLoggedAsWarnings() {
        let refused = SocketError(.connectionRefused, message: "refused", endpoint: self.a)
        let lines = self.lines(
            .info,
            .connecting(self.a, attempt: 1),
            .connectFailed(refused),
            .gaveUp(SocketError(.noServerReachable, message: "none", endpoint: self.a))
        )
        #expect(
            lines == ["warning gave up connecting attempt=1 cause=noServerReachable error=none server=a:1"]
        )
    }
}
