// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// Changes of a network by the kernel, and the reactions of a process on it.
@Suite(
    .tags(.io),
    .enabled(if: TwoHosts.whyNot == nil, Comment(rawValue: TwoHosts.whyNot ?? "")),
    .timeLimit(.minutes(5))
)
struct NetworkChangeTests {
    /// A server on the right and a connected client on the left, which is notified of its network.
    private struct Pair {
        let hosts: TwoHosts
        let server: Command
        let client: Command

        /// - Parameter heartbeat: The client's ping interval in seconds. If a ping is not answered within half a
        ///   second, the client sends another, after which the connection is lost; but after a change of the path, the
        ///   first unanswered ping is the last.
        init(heartbeat: Int) async throws {
            self.hosts = try await TwoHosts()
            self.server = try self.hosts.start(
                [Command.hhsocket.path, "serve", "--host", TwoHosts.right, "--port", "7000"],
                .right
            )
            _ = try await self.server.lines()
            self.client = try self.hosts.start(
                [
                    Command.hhsocket.path, "listen", "\(TwoHosts.right):7000", "--verbose",
                    "--heartbeat", "\(heartbeat)", "--heartbeat-timeout", "0.5",
                ],
                .left
            )
            try await self.client.connected(1)
            let hosts = self.hosts
            try await eventually("the client listens for changes") {
                let sockets = try await hosts.start(["cat", "/proc/net/netlink"], .left).outcome()
                // The groups of links, addresses and routes, of IPv4 and IPv6.
                return sockets.lines.contains { $0.contains(" 00000551 ") }
            }
        }

        /// Returns the time until the client reported the loss of its connection.
        func lost(since start: ContinuousClock.Instant) async throws -> Duration {
            try await self.client.complains("connectionLost")
            return ContinuousClock.now - start
        }

        /// Returns the time until the client reported another connection.
        func found(since start: ContinuousClock.Instant) async throws -> Duration {
            try await self.client.connected(2)
            return ContinuousClock.now - start
        }

        /// Ends both. Returns a summary of the client's events.
        func end() async throws -> [String] {
            self.client.signal(SIGTERM)
            let outcome = try await self.client.outcome()
            #expect(outcome.exitCode == 0)
            self.server.signal(SIGTERM)
            #expect(try await self.server.outcome().exitCode == 0)
            return outcome.happenings
        }
    }

    /// Checks the history that `body` returns. A machine that stops for longer than the client's timeouts loses
    /// connections too, but not every time.
    private func expect(_ history: [String], of body: () async throws -> [String]) async throws {
        var found: [String] = []
        for _ in 0..<3 where found != history { found = try await body() }
        #expect(found == history)
    }

    @Test(arguments: [TwoHosts.Side.left, .right])
    func cableThatIsPulledHoldsAttemptsAndOnceItIsBackTheServerIsFoundAtOnce(side: TwoHosts.Side) async throws {
        // No attempt is made meanwhile.
        try await self.expect([
            "connected", "the network was lost", "lost", "the network changed", "connected", "closed",
        ]) {
            let pair = try await Pair(heartbeat: 1)
            var start = ContinuousClock.now
            try await pair.hosts.run("ip link set cable down", side)
            let lost = try await pair.lost(since: start)
            reportNetworkFault("link down, \(side)", "connectionLost", lost, stated: "2 s after the last byte")
            start = ContinuousClock.now
            try await pair.hosts.run("ip link set cable up", side)
            let found = try await pair.found(since: start)
            reportNetworkFault("link up, \(side)", "connected", found, stated: "0.2 s after the kernel tells of it")
            return try await pair.end()
        }
    }

    @Test func connectionFromALostAddressIsReplacedLongBeforeAHeartbeat() async throws {
        try await self.expect(["connected", "the network changed", "lost", "connected", "closed"]) {
            let pair = try await Pair(heartbeat: 3_600)
            let start = ContinuousClock.now
            try await pair.hosts.run(
                "ip address del \(TwoHosts.left)/24 dev cable && ip address add 10.77.0.3/24 dev cable",
                .left
            )
            let lost = try await pair.lost(since: start)
            reportNetworkFault("another address", "connectionLost", lost, stated: "0.2 s and a reply timeout of 0.5 s")
            reportNetworkFault(
                "another address",
                "connected",
                try await pair.found(since: start),
                stated: "at once after that"
            )
            // A slow machine notices the time between the addresses too.
            return try await pair.end().filter { $0 != "the network was lost" }
        }
    }

    @Test func anotherWayOutHasTheConnectionAskedWhetherItLives() async throws {
        try await self.expect(["connected", "the network changed", "lost", "connected", "closed"]) {
            let pair = try await Pair(heartbeat: 3_600)
            try await pair.hosts.swallowPackets()
            // A detail of the network that neither address nor link shows.
            try await pair.hosts.run("ip route add default via \(TwoHosts.right)", .left)
            _ = try await pair.lost(since: .now)
            try await pair.hosts.letPacketsPass()
            try await pair.client.connected(2)
            return try await pair.end().filter { $0 != "connect" }
        }
    }
}

extension Command.Outcome {
    /// The connection's history by `--verbose`, as the first words of its lines.
    fileprivate var happenings: [String] {
        self.errorLines.filter { $0.hasPrefix("20") }.compactMap { line in
            let words = line.split(separator: " ").dropFirst()
            return words.first == "the" ? words.prefix(4).joined(separator: " ") : words.first.map(String.init)
        }.map { $0.hasPrefix("the network changed") ? "the network changed" : $0 }
    }
}

extension Command {
    /// Waits until `hhsocket listen` has reported `count` connections.
    func connected(_ count: Int) async throws {
        try await self.complains("\(count) connections") { errors in
            let lines = errors.split(separator: "\n").filter { $0.hasPrefix("connected to ") }
            return lines.count >= count ? () : nil
        }
    }
}
