// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// A network that drops packets: nothing is refused, reset or answered, as behind a router that has forgotten the
/// connection. The loopback interface cannot do that.
@Suite(
    .tags(.io),
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
        let silence = try await listen.complains("the silence") { errors in
            errors.firstMatch(of: /connectionLost: .* answered no heartbeat, silent for ([0-9.]+) seconds/)
                .flatMap { Double($0.output.1) }
        }
        // A ping is due after 1 s, and two reply timeouts of 0.5 s follow.
        #expect(ContinuousClock.now - start >= .seconds(2))
        #expect(silence >= 1)
        // TCP alone would have continued for a quarter of an hour, and still does at the other end.
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
