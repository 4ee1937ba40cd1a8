import ArgumentParser
import HHSocket

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

    @Option(
        help: ArgumentHelp(
            "Connect through this proxy: http://user:password@host:port, or socks5://…; the user and password are optional.",
            valueName: "url"
        ),
        transform: Self.proxy
    )
    var proxy: Proxy?

    @OptionGroup var tls: ClientTLSOptions

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

    private static func proxy(_ url: String) throws -> Proxy {
        do throws(SocketError) {
            return try Proxy(url: url)
        } catch {
            throw ValidationError(error.message)
        }
    }

    /// Makes a connection what the options say.
    func apply(to configuration: inout SocketConfiguration) throws {
        configuration.heartbeat = self.policy
        configuration.proxy = self.proxy
        configuration.tls = self.tls.tls
    }

    /// Prints the history, if that was asked for.
    func tell(_ history: ConnectionHistory) {
        guard self.verbose else { return }
        for entry in history.entries { StandardError.line("\(entry)") }
    }
}
