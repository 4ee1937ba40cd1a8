import ArgumentParser
import HHSocketServer

/// What bounds the server. What is not given is as `ServerLimits` has it.
struct LimitOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "How many connections may be open; one too many is told to go away. (default: no limit)",
            valueName: "n"
        )
    )
    var maxConnections: Int?

    @Option(
        help: ArgumentHelp(
            "How many of them may come from one address, or one IPv6 network of 64 bits. (default: no limit)",
            valueName: "n"
        )
    )
    var maxConnectionsPerAddress: Int?

    @Option(
        help: ArgumentHelp(
            """
            How many requests may be in flight; further ones are answered 503. Those that are answered at once never \
            are. (default: 1048576)
            """,
            valueName: "n"
        )
    )
    var maxInFlight: Int?

    @Option(help: ArgumentHelp("How many of them may be one connection's. (default: 65536)", valueName: "n"))
    var maxInFlightPerConnection: Int?

    @Option(
        help: ArgumentHelp(
            """
            How many requests a second a connection may make, and as many at once; further ones are answered 503. \
            (default: no limit)
            """,
            valueName: "n"
        )
    )
    var rate: Double?

    @Flag(
        help: """
            Find out how many requests can be in flight without waiting for one another; further ones are answered 503.
            """
    )
    var adaptiveConcurrency = false

    @Option(
        help: ArgumentHelp(
            "How long a client may be silent; then it is told to go away. 0: for ever. (default: 600)",
            valueName: "seconds"
        )
    )
    var idleTimeout: SecondsOrZero?

    @Option(
        help: ArgumentHelp(
            "The largest payload; a client that announces a larger one is answered 301, and closed. (default: 16777216)",
            valueName: "bytes"
        )
    )
    var maxPayload: Int?

    /// 1 GiB: what is beyond is a slip.
    private static let largestPayload = 1 << 30

    func validate() throws {
        for (name, value) in [
            ("--max-connections", self.maxConnections),
            ("--max-connections-per-address", self.maxConnectionsPerAddress),
            ("--max-in-flight", self.maxInFlight),
            ("--max-in-flight-per-connection", self.maxInFlightPerConnection),
        ] {
            if let value, value < 1 { throw ValidationError("\(name) is 1 or more, not \(value).") }
        }
        if let rate = self.rate, !(rate > 0 && rate <= 1e9) {
            throw ValidationError("--rate is above 0, and 1000000000 at most, not \(rate).")
        }
        if let bytes = self.maxPayload, !(1...Self.largestPayload).contains(bytes) {
            throw ValidationError("--max-payload is a number from 1 to \(Self.largestPayload), not \(bytes).")
        }
    }

    /// What the options amount to.
    var limits: ServerLimits {
        var limits = ServerLimits()
        limits.maximumConnections = self.maxConnections
        limits.maximumConnectionsPerAddress = self.maxConnectionsPerAddress
        if let count = self.maxInFlight { limits.maximumInFlight = count }
        if let count = self.maxInFlightPerConnection { limits.maximumInFlightPerConnection = count }
        limits.requestRate = self.rate.map { RequestRate(perSecond: $0) }
        limits.concurrency = self.adaptiveConcurrency ? AdaptiveConcurrency() : nil
        if let time = self.idleTimeout { limits.idleTimeout = time.duration == .zero ? nil : time.duration }
        if let bytes = self.maxPayload {
            limits.maximumPayloadLength = bytes
            // As many payloads as by default must find room, or the largest could never be received.
            limits.maximumBufferedBytesPerConnection = max(limits.maximumBufferedBytesPerConnection, 4 * bytes)
            limits.maximumBufferedBytes = max(
                limits.maximumBufferedBytes,
                limits.maximumBufferedBytesPerConnection
            )
        }
        return limits
    }
}
