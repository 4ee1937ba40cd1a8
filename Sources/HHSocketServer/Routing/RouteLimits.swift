// SPDX-License-Identifier: Apache-2.0
/// The bounds of requests of one type, in addition to those of the server (``ServerLimits``). Given to a group, they
/// apply to each of its types separately, unless that has its own bounds.
public struct RouteLimits: Hashable, Sendable {
    /// The largest body of a request, in bytes, decompressed.
    package var maximumBodyLength: Int?
    /// The number of requests of the type, of all connections, that may be in flight.
    package var maximumInFlight: Int?
    /// The time that a handler may take, from the arrival of the request.
    package var timeout: Duration?
    /// The adaptive limit on requests of the type that are in flight.
    package var concurrency: AdaptiveConcurrency?

    /// - Parameters:
    ///   - maximumBodyLength: The largest body of a request, in bytes, decompressed. A larger one is answered
    ///     ``/HHSocket/Status/illegalLength`` (301), and the connection stays. Nil, the default: only
    ///     ``ServerLimits/maximumPayloadLength``.
    ///   - maximumInFlight: The number of requests of the type, of all connections, that may be in flight. Further ones
    ///     are answered ``/HHSocket/Status/overloaded`` (503). Those that are answered on the event loop do not count.
    ///     Nil, the default: no limit but the server's.
    ///   - timeout: The time that a handler may take, from the arrival of the request. Then the request is answered
    ///     ``/HHSocket/Status/deadlineExceeded`` (408), and the handler is cancelled. Nil, the default:
    ///     ``ServerLimits/handlerTimeout``.
    ///   - concurrency: The adaptive limit on requests of the type that are in flight. Nil, the default:
    ///     ``ServerLimits/concurrency``.
    public init(
        maximumBodyLength: Int? = nil,
        maximumInFlight: Int? = nil,
        timeout: Duration? = nil,
        concurrency: AdaptiveConcurrency? = nil
    ) {
        self.maximumBodyLength = maximumBodyLength
        self.maximumInFlight = maximumInFlight
        self.timeout = timeout
        self.concurrency = concurrency
    }

    /// These, and where they have no bound the one of `others`.
    func or(_ others: RouteLimits) -> RouteLimits {
        RouteLimits(
            maximumBodyLength: self.maximumBodyLength ?? others.maximumBodyLength,
            maximumInFlight: self.maximumInFlight ?? others.maximumInFlight,
            timeout: self.timeout ?? others.timeout,
            concurrency: self.concurrency ?? others.concurrency
        )
    }

    /// The reason why these limits are invalid; nil if they are valid.
    var fault: String? {
        if let length = self.maximumBodyLength, length < 0 { return "maximumBodyLength must not be below 0" }
        if let count = self.maximumInFlight, count <= 0 { return "maximumInFlight must be above 0" }
        if let time = self.timeout, time <= .zero { return "timeout must be above 0" }
        return nil
    }
}
