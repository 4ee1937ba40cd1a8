import ArgumentParser
import HHSocket
import NIOCore

/// `HOST:PORT[,HOST:PORT…]`
struct ServerAddresses: ExpressibleByArgument, Sendable {
    var endpoints: [Endpoint]

    init?(argument: String) {
        let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
        let endpoints = parts.compactMap { Endpoint($0) }
        guard endpoints.count == parts.count else { return nil }
        self.endpoints = endpoints
    }

    static let help = ArgumentHelp(
        "The servers, tried in this order; an IPv6 address in brackets.",
        valueName: "host:port,..."
    )
}

/// A positive number of seconds, fractions allowed.
struct Seconds: ExpressibleByArgument, Sendable {
    var duration: Duration

    init(_ duration: Duration) {
        self.duration = duration
    }

    init?(argument: String) {
        // Up to 31 years: what is beyond is a slip, and what is far beyond could not be added to the clock.
        guard let seconds = Double(argument), seconds >= 0.001, seconds <= 1e9 else { return nil }
        self.duration = .seconds(seconds)
    }
}

/// `TYPE:TEXT`
struct PushText: ExpressibleByArgument, Sendable {
    var type: UInt32
    var body: ByteBuffer

    init?(argument: String) {
        guard let colon = argument.firstIndex(of: ":"),
            let type = UInt32(argument[..<colon])
        else { return nil }
        self.type = type
        self.body = ByteBuffer(string: String(argument[argument.index(after: colon)...]))
    }
}

/// How `call` and `listen` keep their connection, and what they tell of it.
struct ConnectionOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Ping after so much silence. (default: 60)", valueName: "seconds"))
    var heartbeat: Seconds?

    @Option(
        help: ArgumentHelp(
            "How long a ping waits for an answer. (default: 8, or --heartbeat's if that is less)",
            valueName: "seconds"
        )
    )
    var heartbeatTimeout: Seconds?

    @Option(help: "How many pings may stay unanswered before the server is dead.")
    var heartbeatMisses = 1

    @Flag(help: "Tell on stderr what the connection did and why, when the command ends.")
    var verbose = false

    func validate() throws {
        guard self.heartbeatMisses >= 0 else {
            throw ValidationError("--heartbeat-misses is 0 or more, not \(self.heartbeatMisses).")
        }
    }

    /// The policy that the options amount to.
    var policy: HeartbeatPolicy {
        var policy = HeartbeatPolicy(misses: self.heartbeatMisses)
        if let heartbeat = self.heartbeat {
            policy.interval = .fixed(heartbeat.duration)
            policy.replyTimeout = min(heartbeat.duration, policy.replyTimeout)
        }
        if let timeout = self.heartbeatTimeout { policy.replyTimeout = timeout.duration }
        return policy
    }

    /// Prints the history, if that was asked for.
    func tell(_ history: ConnectionHistory) {
        guard self.verbose else { return }
        for entry in history.entries { StandardError.line("\(entry)") }
    }
}
