import Foundation
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// A network that swallows packets: nothing is refused, reset or answered, as behind a router that has forgotten the
/// connection. On the loopback interface there is no such thing.
@Suite(
    .enabled(if: TwoHosts.whyNot == nil, Comment(rawValue: TwoHosts.whyNot ?? "")),
    .timeLimit(.minutes(5))
)
struct SwallowedPacketsTests {
    @Test func lossIsNoticedByTheHeartbeatAndTheServerIsFoundOncePacketsPassAgain() async throws {
        let hosts = try await TwoHosts()
        let server = try hosts.start(
            [Command.hhsocket.path, "serve", "--host", TwoHosts.right, "--port", "7000"],
            .right
        )
        _ = try await server.lines()
        let address = "\(TwoHosts.right):7000"
        let start = ContinuousClock.now
        let listen = try hosts.start(
            [Command.hhsocket.path, "listen", address, "--verbose", "--heartbeat", "1", "--heartbeat-timeout", "0.5"],
            .left
        )
        try await listen.connected(1)

        try await hosts.swallowPackets()
        let silence = try await value {
            listen.errors.firstMatch(of: /connectionLost: .* answered no heartbeat, silent for ([0-9.]+) seconds/)
                .flatMap { Double($0.output.1) }
        }
        // A ping is due after 1 s, and two reply timeouts of 0.5 s follow.
        #expect(ContinuousClock.now - start >= .seconds(2))
        #expect(silence >= 1)
        // TCP by itself would have gone on for a quarter of an hour, and still does so at the other end.
        #expect(server.errors == "")

        try await hosts.letPacketsPass()
        try await listen.connected(2)
        listen.signal(SIGTERM)
        let outcome = try await listen.outcome()
        #expect(outcome.exitCode == 0)
        let happened = outcome.errorLines.filter { $0.hasPrefix("20") && !$0.contains(" connect failed ") }
            .compactMap { $0.split(separator: " ").dropFirst().first }
        #expect(happened == ["connected", "lost", "connected", "closed"])
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }
}

extension Command {
    /// Waits until it has told so many connections.
    fileprivate func connected(_ count: Int) async throws {
        _ = try await value {
            let lines = self.errors.split(separator: "\n").filter { $0.hasPrefix("connected to ") }
            return lines.count >= count ? true : nil
        }
    }
}

/// Two hosts on this machine with a cable between them: a network namespace for each. Without names, so that they go with
/// the last process in them, however a test ends.
private final class TwoHosts: Sendable {
    enum Side { case left, right }

    static let left = "10.77.0.1"
    static let right = "10.77.0.2"

    /// Why there cannot be such hosts here; nil if there can.
    static let whyNot: String? = {
        #if os(Linux)
        let reason: String
        if geteuid() != 0 {
            reason = "only root may make network namespaces"
        } else if system(quiet("ip -V && nsenter -V && unshare -V")) != 0 {
            reason = "ip (iproute2), nsenter or unshare (util-linux) is missing"
        } else if system(
            quiet("unshare --net sh -c 'ip link add one type veth peer name other && \(swallowing("add"))'")
        )
            != 0
        {
            reason = "the kernel, or this container, allows no network namespaces with cables between them"
        } else {
            return nil
        }
        #else
        let reason = "network namespaces are Linux's"
        #endif
        return "Swallowed packets are NOT TESTED here: \(reason)."
    }()

    private static func quiet(_ command: String) -> String { "(\(command)) >/dev/null 2>&1" }

    private static func swallowing(_ verb: String) -> String { "ip route \(verb) blackhole \(self.left)/32" }

    /// They do nothing but hold their namespaces, and end by themselves if nobody ends them.
    private let holders: [Command]
    private let numbers: [String]

    init() async throws {
        let holders = try (0..<2).map { _ in
            try Self.command(["unshare", "--net", "sh", "-c", "echo $$; exec sleep 600"])
        }
        var numbers: [String] = []
        for holder in holders { numbers += try await holder.lines() }
        self.holders = holders
        self.numbers = numbers
        try await Self.run("ip link add cable netns \(numbers[0]) type veth peer name cable netns \(numbers[1])")
        for (side, address) in [(Side.left, Self.left), (.right, Self.right)] {
            try await self.run("ip address add \(address)/24 dev cable && ip link set cable up", side)
        }
    }

    /// Starts a program on one of them.
    func start(_ arguments: [String], _ side: Side) throws -> Command {
        try Self.command(["nsenter", "--target", self.numbers[side == .left ? 0 : 1], "--net"] + arguments)
    }

    /// From now on whatever the two send each other is lost without a word.
    func swallowPackets() async throws { try await self.run(Self.swallowing("add"), .right) }

    func letPacketsPass() async throws { try await self.run(Self.swallowing("del"), .right) }

    private func run(_ script: String, _ side: Side) async throws {
        try await Self.succeed(self.start(["sh", "-c", script], side))
    }

    private static func run(_ script: String) async throws {
        try await self.succeed(self.command(["sh", "-c", script]))
    }

    private static func succeed(_ command: Command) async throws {
        let outcome = try await command.outcome()
        guard outcome.exitCode == 0 else { throw Unexpected(description: "failed: \(outcome.errors)") }
    }

    private static func command(_ arguments: [String]) throws -> Command {
        try Command(arguments, of: URL(fileURLWithPath: "/usr/bin/env"))
    }
}
