// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The options of commands that call for the connection's heartbeat, and for reports about the connection.
struct ConnectionOptions: ParsableArguments {
    @Option(duration: "The silence after which the server is pinged. (default: 60s)")
    var heartbeat: Duration?

    @Option(
        duration: "How long to wait for the answer to a ping. (default: 8s, or --heartbeat's value if that is less)"
    )
    var heartbeatTimeout: Duration?

    @Option(help: .value("n", "The number of unanswered pings that are tolerated."))
    var heartbeatMisses = 1

    @Flag(help: "Report on stderr what the connection did and why, and how many frames were dropped.")
    var verbose = false

    func validate() throws {
        try require(self.heartbeatMisses >= 0, "--heartbeat-misses is 0 or more, not \(self.heartbeatMisses).")
    }

    /// The heartbeat policy that the options describe.
    var heartbeatPolicy: HeartbeatPolicy {
        var policy = HeartbeatPolicy(misses: self.heartbeatMisses)
        if let heartbeat = self.heartbeat {
            policy.interval = .fixed(heartbeat)
            policy.replyTimeout = min(heartbeat, policy.replyTimeout)
        }
        if let timeout = self.heartbeatTimeout { policy.replyTimeout = timeout }
        return policy
    }

    /// Prints the history of the connection, with --verbose.
    func report(_ history: ConnectionHistory) {
        guard self.verbose else { return }
        for entry in history.entries { StandardError.line("\(entry)") }
    }
}
