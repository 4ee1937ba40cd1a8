import ArgumentParser
import HHSocket
import HHSocketServer

/// What becomes of clients when a signal ends the server.
struct ShutdownOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            How long a signal lets requests in flight go on, and clients stay that were told to go away; 0: everything is \
            closed at once. (default: 5)
            """,
            valueName: "seconds"
        )
    )
    var grace: SecondsOrZero?

    @Option(
        help: ArgumentHelp(
            "A server that clients may use instead, best first; may be given several times.",
            valueName: "host:port"
        ),
        transform: Self.endpoint
    )
    var goAwayTo: [Endpoint] = []

    private static func endpoint(_ text: String) throws -> Endpoint {
        guard let endpoint = Endpoint(text), endpoint.unixPath == nil else {
            throw ValidationError("\"\(text)\" is no host:port.")
        }
        return endpoint
    }

    /// What the options amount to.
    var policy: ShutdownPolicy {
        var policy = ShutdownPolicy()
        policy.gracePeriod = self.grace?.duration ?? .seconds(5)
        policy.otherEndpoints = self.goAwayTo
        return policy
    }
}
