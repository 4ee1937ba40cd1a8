// SPDX-License-Identifier: Apache-2.0
import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// Two hosts on this machine with a cable between them: a network namespace for each. The namespaces have no names, so
/// that they end with the last process in them, however a test ends.
package final class TwoHosts: Sendable {
    package enum Side: Sendable { case left, right }

    package static let left = "10.77.0.1"
    package static let right = "10.77.0.2"

    /// The reason why there cannot be such hosts here; nil if there can.
    package static let whyNot: String? = {
        #if os(Linux)
        let reason: String
        if geteuid() != 0 {
            reason = "only root may make network namespaces; see make test-network"
        } else if system(quiet("ip -V && nsenter -V && unshare -V")) != 0 {
            reason = "ip (iproute2), nsenter or unshare (util-linux) is missing"
        } else if system(
            quiet("unshare --net sh -c 'ip link add one type veth peer name other && \(swallowing("add"))'")
        ) != 0 {
            reason = "the kernel, or this container, allows no network namespaces with cables between them"
        } else {
            return nil
        }
        #else
        let reason = "network namespaces are Linux's"
        #endif
        return "What networks do is NOT TESTED here: \(reason)."
    }()

    private static func quiet(_ command: String) -> String { "(\(command)) >/dev/null 2>&1" }

    private static func swallowing(_ verb: String) -> String { "ip route \(verb) blackhole \(self.left)/32" }

    /// The processes that hold the namespaces. They end by themselves if the test does not end them.
    private let holders: [Command]
    /// The identifiers of the processes that hold the namespaces.
    package let numbers: [String]

    /// - Parameter hasCable: Whether there is a cable between them.
    package init(hasCable: Bool = true) async throws {
        let holders = try (0..<2).map { _ in
            try Self.command(["unshare", "--net", "sh", "-c", "echo $$; exec sleep 600"])
        }
        var numbers: [String] = []
        for holder in holders { numbers += try await holder.lines() }
        self.holders = holders
        self.numbers = numbers
        guard hasCable else { return }
        try await Self.run("ip link add cable netns \(numbers[0]) type veth peer name cable netns \(numbers[1])")
        for (side, address) in [(Side.left, Self.left), (.right, Self.right)] {
            try await self.run("ip address add \(address)/24 dev cable && ip link set cable up", side)
        }
    }

    /// Starts a program on one of them.
    package func start(_ arguments: [String], _ side: Side) throws -> Command {
        try Self.command(["nsenter", "--target", self.numbers[side == .left ? 0 : 1], "--net"] + arguments)
    }

    /// Silently drops all packets between the hosts from now on.
    package func swallowPackets() async throws { try await self.run(Self.swallowing("add"), .right) }

    package func letPacketsPass() async throws { try await self.run(Self.swallowing("del"), .right) }

    /// Runs a script of the shell on one of them, to its end.
    package func run(_ script: String, _ side: Side) async throws {
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
