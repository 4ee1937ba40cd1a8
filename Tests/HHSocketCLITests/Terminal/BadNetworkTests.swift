// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A server on the right, and a simulated cable.
private struct BadNetwork {
    let hosts: TwoHosts
    let link: Command
    let server: Command

    /// The reason why there cannot be one here; nil if there can.
    static let whyNot: String? = {
        if let reason = TwoHosts.whyNot { return reason }
        guard access("/dev/net/tun", R_OK | W_OK) == 0 else {
            return "Bad networks are NOT TESTED here: there is no /dev/net/tun."
        }
        guard system("python3 --version >/dev/null 2>&1") == 0 else {
            return "Bad networks are NOT TESTED here: there is no python3."
        }
        return nil
    }()

    /// - Parameter options: The options of the server.
    init(server options: [String] = []) async throws {
        self.hosts = try await TwoHosts(hasCable: false)
        let script = packageFolder.appendingPathComponent("Tests/HHSocketCLITests/bad_link.py").path
        let numbers = self.hosts.numbers
        self.link = try Command(
            ["python3", "-B", script, numbers[0], TwoHosts.left, numbers[1], TwoHosts.right],
            of: URL(fileURLWithPath: "/usr/bin/env"),
            keepsInputOpen: true
        )
        _ = try await self.link.lines()
        self.server = try self.hosts.start(
            [Command.hhsocket.path, "serve", "--host", TwoHosts.right, "--port", "7000"] + options,
            .right
        )
        _ = try await self.server.lines()
    }

    /// Sets the treatment of packets from now on.
    func become(_ condition: String) async throws {
        let before = self.link.output
        try self.link.type(condition)
        try await self.link.prints("its answer") { $0.count > before.count ? () : nil }
    }

    func client(_ arguments: [String]) throws -> Command {
        try self.hosts.start([Command.hhsocket.path] + arguments, .left)
    }

    /// Starts a client that pings every second, with a reply timeout of half a second: lost packets are noticed 2 s
    /// after the last byte.
    func listener(timeout: String = "0.5") async throws -> Command {
        let options = ["--verbose", "--heartbeat", "1", "--heartbeat-timeout", timeout]
        let client = try self.client(["listen", "\(TwoHosts.right):7000"] + options)
        try await client.connected(1)
        return client
    }

    func end() async throws {
        self.server.signal(SIGTERM)
        _ = try await self.server.outcome()
        self.link.signal(SIGTERM)
        _ = try await self.link.outcome()
    }
}

/// The effects of bad networks, and the client's reports with their times.
@Suite(
    .tags(.io),
    .enabled(if: BadNetwork.whyNot == nil, Comment(rawValue: BadNetwork.whyNot ?? "")),
    .timeLimit(.minutes(5))
)
struct BadNetworkTests {
    /// Returns the client's events without failed attempts, and the cause of its first loss.
    private func history(_ client: Command) async throws -> (kinds: [String], cause: String) {
        client.signal(SIGTERM)
        let outcome = try await client.outcome()
        #expect(outcome.exitCode == 0)
        let lines = outcome.errorLines.filter { $0.hasPrefix("20") && !$0.contains(" connect failed ") }
        var kinds = lines.map { $0.split(separator: " ").dropFirst().prefix(1).joined() }
        // A machine that stops for longer than the reply timeout loses the connection again.
        while let again = kinds.firstRange(of: ["lost", "connected", "lost", "connected"]) {
            kinds.removeSubrange(again.prefix(2))
        }
        return (kinds, lines.first { $0.contains(" lost ") } ?? "")
    }

    /// Waits for the client's first report of a loss. Returns the time until then.
    private func loss(_ client: Command, _ text: String = "connectionLost", since start: ContinuousClock.Instant)
        async throws -> Duration
    {
        try await client.complains(text)
        return ContinuousClock.now - start
    }

    // MARK: Packets that are lost or late

    @Test func aTenthOfAllPacketsIsLostAndNoCallIs() async throws {
        let network = try await BadNetwork()
        try await network.become("loss 10")
        let listener = try await network.listener()
        let start = ContinuousClock.now
        let calls = try await network.client([
            "call", "\(TwoHosts.right):7000", "--type", "1000", "--body", "0123456789", "--repeat", "300",
            "--in-flight", "10", "--timeout", "100",
        ]).outcome()
        #expect(calls.exitCode == 0, "\(calls.errors)")
        #expect(calls.output.count == 3_000)
        reportNetworkFault(
            "10 % loss",
            "300 calls answered, 10 at a time,",
            ContinuousClock.now - start,
            stated: "none lost"
        )
        _ = try await self.history(listener)
        try await network.end()
    }

    @Test func delayAndJitterAreNoLoss() async throws {
        let network = try await BadNetwork(server: ["--push", "2001:tick", "--push-every", "0.5"])
        try await network.become("delay 100 50")
        let listener = try await network.listener(timeout: "60")
        let start = ContinuousClock.now
        let calls = try await network.client([
            "call", "\(TwoHosts.right):7000", "--type", "1000", "--body", "x", "--repeat", "20", "--in-flight", "5",
            "--json",
        ]).outcome()
        #expect(calls.exitCode == 0, "\(calls.errors)")
        let times = try calls.objects().compactMap { $0["ms"] as? Double }
        #expect(times.count == 20)
        #expect(times.allSatisfy { $0 >= 100 }, "\(times)")
        reportNetworkFault(
            "100 ± 50 ms each way",
            "20 calls answered, 5 at a time,",
            ContinuousClock.now - start,
            stated: "no loss"
        )
        // 3 s, in which three pings are answered late.
        _ = try await listener.lines(6)
        #expect(try await self.history(listener).kinds == ["connected", "closed"])
        try await network.end()
    }

    // MARK: Packets that do not come

    @Test func partitionIsNoticedInTimeAndHealed() async throws {
        let network = try await BadNetwork()
        let client = try await network.listener()
        try await network.become("down")
        let start = ContinuousClock.now
        let time = try await self.loss(client, since: start)
        reportNetworkFault("partition", "connectionLost", time, stated: "2 s after the last byte")
        try await network.become("up")
        let healed = ContinuousClock.now
        try await client.connected(2)
        reportNetworkFault(
            "partition healed",
            "connected",
            ContinuousClock.now - healed,
            stated: "the attempt under way, or the next"
        )
        let history = try await self.history(client)
        #expect(history.kinds == ["connected", "lost", "connected", "closed"])
        #expect(history.cause.contains("answered no heartbeat"))
        try await network.end()
    }

    // MARK: Firewalls

    private static let hasFirewall = BadNetwork.whyNot == nil && system("nft --version >/dev/null 2>&1") == 0

    private func firewall(_ network: BadNetwork, _ rule: String?) async throws {
        let flush =
            "nft add table inet f; nft 'add chain inet f in { type filter hook input priority 0; }'; nft flush chain inet f in"
        try await network.hosts.run(
            flush + (rule.map { "; nft 'add rule inet f in tcp dport 7000 \($0)'" } ?? ""),
            .right
        )
    }

    @Test(
        .enabled(if: BadNetworkTests.hasFirewall, "There is no nft (nftables) here: firewalls are NOT TESTED."),
        arguments: [("drop", "answered no heartbeat"), ("reject with tcp reset", "Connection reset by peer")]
    )
    func firewallThatComesUpIsNoticedAndSurvived(rule: String, cause: String) async throws {
        let network = try await BadNetwork()
        let client = try await network.listener()
        try await self.firewall(network, rule)
        let start = ContinuousClock.now
        let time = try await self.loss(client, since: start)
        reportNetworkFault(
            "firewall, \(rule)",
            cause,
            time,
            stated: rule == "drop" ? "2 s after the last byte" : "with the next ping, 1 s"
        )
        if rule != "drop" { _ = try await self.loss(client, "connectionRefused", since: start) }
        try await self.firewall(network, nil)
        try await client.connected(2)
        let history = try await self.history(client)
        #expect(history.kinds == ["connected", "lost", "connected", "closed"])
        #expect(history.cause.contains(cause), "\(history.cause)")
        try await network.end()
    }
}

/// Prints a line of the table of `make test-network`.
func reportNetworkFault(_ fault: String, _ report: String, _ time: Duration, stated: String) {
    let seconds = String(format: "%.2f s", time.inSeconds)
    print("network: \(fault): \(report) after \(seconds) (stated: \(stated))")
}
