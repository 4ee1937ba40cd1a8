// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer

/// The options for a shutdown by a signal.
struct ShutdownOptions: ParsableArguments {
    @Option(
        durationOrZero: """
            How long, after a signal, requests in flight may run and clients may stay connected. With 0 everything is \
            closed at once. (default: 5s)
            """
    )
    var grace: Duration?

    @Option(
        help: .value("host:port", "A server that clients may use instead, the best first. May be given several times."),
        transform: Self.endpoint
    )
    var goAwayTo: [Endpoint] = []

    private static func endpoint(_ text: String) throws -> Endpoint {
        guard let endpoint = Endpoint(text), endpoint.unixPath == nil else {
            throw ValidationError("write HOST:PORT, with an IPv6 address in brackets")
        }
        return endpoint
    }

    /// The policy that the options describe.
    var policy: ShutdownPolicy {
        var policy = ShutdownPolicy()
        policy.gracePeriod = self.grace ?? .seconds(5)
        policy.otherEndpoints = self.goAwayTo
        return policy
    }
}
