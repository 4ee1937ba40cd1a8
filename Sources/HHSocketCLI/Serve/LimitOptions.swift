// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketServer

/// The limits of a server. Options that are not given have the defaults of `ServerLimits`.
struct LimitOptions: ParsableArguments {
    @Option(
        number: """
            The largest number of connections. To admit a further client, the connection that has been silent longest, \
            for at least 5 s, is closed; if there is none, the client is told to go away. (default: the limit of file \
            descriptors, less a reserve)
            """
    )
    var maxConnections: Int?

    @Option(
        number: """
            The largest number of connections from one address, or one IPv6 network of 64 bits. A further client is told \
            to go away. (default: half of all)
            """
    )
    var maxConnectionsPerAddress: Int?

    @Option(
        help: .value(
            "connections/s",
            """
            The number of new connections per second that one address may make, with bursts of ten times as many; 0 means \
            no limit. A further client is told to go away. (default: 100)
            """
        )
    )
    var connectionRate: Double?

    @Option(
        number: """
            The largest number of requests in flight. Further ones are answered with status 503, unless they can be \
            answered immediately. (default: 1048576)
            """
    )
    var maxInFlight: Int?

    @Option(number: "The largest number of requests in flight on one connection. (default: 1024)")
    var maxInFlightPerConnection: Int?

    @Option(
        help: .value(
            "requests/s",
            """
            The number of requests per second that a connection may make, which is also the largest burst. Further ones \
            are answered with status 503. (default: no limit)
            """
        )
    )
    var rate: Double?

    @Option(
        help: .value(
            "requests/s",
            """
            The number of requests per second that all connections from one address, or one IPv6 network of 64 bits, may \
            make together. (default: no limit)
            """
        )
    )
    var ratePerAddress: Double?

    @Option(
        duration: """
            The time that a handler may take. Then its request is answered with status 408, and the handler is \
            cancelled. (default: no limit)
            """
    )
    var handlerTimeout: Duration?

    @Flag(
        help: """
            Measure how many requests can be in flight without delaying each other, and answer further ones with status \
            503.
            """
    )
    var adaptiveConcurrency = false

    @Option(durationOrZero: "The silence after which a client is told to go away; 0 means never. (default: 10m)")
    var idleTimeout: Duration?

    @Option(
        size: "The largest payload. A larger one is answered with status 301, and the client is closed. (default: 16M)"
    )
    var maxPayload: Int?

    @Option(
        size: """
            The memory that may be held for all connections. Above seven eighths of it, the connections that hold most are \
            closed. A payload is at most a quarter of it. (default: 1G)
            """
    )
    var maxMemory: Int?

    /// 1 GiB: a larger value is a mistake.
    private static let largestPayload = 1 << 30
    /// 1 MiB: a hundred connections cost as much by themselves.
    private static let leastMemory = 1 << 20
    /// The number of payloads of the largest length that must fit into memory, as by default: otherwise the largest
    /// could never be received.
    private static let payloadsInMemory = 4

    func validate() throws {
        for (name, value) in [
            ("--max-connections", self.maxConnections),
            ("--max-connections-per-address", self.maxConnectionsPerAddress),
            ("--max-in-flight", self.maxInFlight),
            ("--max-in-flight-per-connection", self.maxInFlightPerConnection),
        ] {
            if let value, value < 1 { throw ValidationError("\(name) is 1 or more, not \(value).") }
        }
        for (name, rate) in [("--rate", self.rate), ("--rate-per-address", self.ratePerAddress)] {
            if let rate, !(rate > 0 && rate <= 1e9) {
                throw ValidationError("\(name) is above 0, and 1000000000 at most, not \(rate).")
            }
        }
        if let rate = self.connectionRate, !(rate >= 0 && rate <= 1e8) {
            throw ValidationError("--connection-rate is 0 or more, and 100000000 at most, not \(rate).")
        }
        if let bytes = self.maxPayload, !(1...Self.largestPayload).contains(bytes) {
            throw ValidationError("--max-payload is a size from 1 byte to 1G, not \(bytes) bytes.")
        }
        if let bytes = self.maxMemory, bytes < Self.leastMemory {
            throw ValidationError("--max-memory is a size of 1M or more, not \(bytes) bytes.")
        }
        if let bytes = self.maxMemory, let payload = self.maxPayload, payload > bytes / Self.payloadsInMemory {
            throw ValidationError("--max-memory has room for \(Self.payloadsInMemory) payloads of --max-payload.")
        }
    }

    /// The limits that the options describe.
    var limits: ServerLimits {
        var limits = ServerLimits()
        limits.maximumConnections = self.maxConnections
        limits.maximumConnectionsPerAddress = self.maxConnectionsPerAddress
        if let rate = self.connectionRate {
            limits.connectionRatePerAddress =
                rate == 0 ? nil : RequestRate(perSecond: rate, burst: max(1, Int((10 * rate).rounded(.up))))
        }
        if let count = self.maxInFlight { limits.maximumInFlight = count }
        if let count = self.maxInFlightPerConnection { limits.maximumInFlightPerConnection = count }
        limits.requestRate = self.rate.map { RequestRate(perSecond: $0) }
        limits.requestRatePerAddress = self.ratePerAddress.map { RequestRate(perSecond: $0) }
        limits.handlerTimeout = self.handlerTimeout
        limits.concurrency = self.adaptiveConcurrency ? AdaptiveConcurrency() : nil
        if let time = self.idleTimeout { limits.idleTimeout = time == .zero ? nil : time }
        let payload = self.maxPayload ?? limits.maximumPayloadLength
        let memory = self.maxMemory ?? max(limits.maximumBufferedBytes, Self.payloadsInMemory * payload)
        limits.maximumBufferedBytes = memory
        limits.maximumPayloadLength = min(payload, memory / Self.payloadsInMemory)
        limits.maximumBufferedBytesPerConnection =
            min(memory, max(limits.maximumBufferedBytesPerConnection, Self.payloadsInMemory * payload))
        return limits
    }
}
