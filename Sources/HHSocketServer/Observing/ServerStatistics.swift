// SPDX-License-Identifier: Apache-2.0
/// Counts of a server since it started. Every number only grows. <doc:Operations> has the names of the metrics.
public struct ServerStatistics: Hashable, Sendable {
    /// Connections accepted; with TLS, once that is agreed on.
    public var connectionsAccepted = 0
    /// Connections refused because there were too many (``ServerLimits/maximumConnections``).
    public var connectionsRefused = 0
    /// Connections refused because too many came from their address (``ServerLimits/maximumConnectionsPerAddress``).
    public var connectionsRefusedByAddress = 0
    /// Connections refused because too many were made from their address in a short time
    /// (``ServerLimits/connectionRatePerAddress``).
    public var connectionsRefusedByRate = 0
    /// Connections closed for a new one, because they had been silent longest (``ServerLimits/minimumSilence``).
    public var silentEvictions = 0
    /// Connections refused by the application (``ConnectionPolicy/admit``).
    public var connectionsRefusedByAdmission = 0
    /// Times that the system had no resources for one more connection, so that none was accepted for a while.
    public var acceptFailures = 0
    /// Connections of listed proxies closed because their PROXY header was malformed, or did not arrive in time
    /// (``ServerProxies/proxyProtocol``).
    public var proxyHeaderFailures = 0
    /// Connections closed because TLS could not be agreed on, or took too long.
    public var tlsFailures = 0
    /// Connections closed because a client's certificate is revoked, or its issuer has no current list
    /// (``ServerTLS/revocationLists``).
    public var clientCertificatesRevoked = 0
    /// Requests with a right checksum, however they were answered.
    public var requests = 0
    /// Requests whose type no handler has: answered 401, or by middleware that sees them
    /// (``ServerMiddleware/seesUnknownTypes``).
    public var unknownTypes = 0
    /// Frames with a wrong checksum.
    public var badChecksums = 0
    /// Requests answered 303: a reserved serial, or one that was still in flight; or 301, with a body that is longer
    /// than allowed; or 405: a stranger's, compressed.
    public var illegalRequests = 0
    /// Requests refused by an admission (``ServerAdmission``), for example because the client has no identity.
    public var refusedByAdmission = 0
    /// Connections closed because their bytes were invalid: a length over the limit, an implausible header after a
    /// wrong checksum, several wrong checksums in a row, or a header that the wire format does not have.
    public var protocolErrors = 0
    /// Requests answered 503, because a limit was reached; the next six are among them.
    public var overloads = 0
    /// Overloads because too many bytes were held (``ServerLimits/maximumBufferedBytes`` or
    /// ``ServerLimits/maximumBufferedBytesPerConnection``).
    public var overloadsOfMemory = 0
    /// Overloads because the connection, its address or its identity exceeded its rate of requests
    /// (``ServerLimits/requestRate``, ``ServerLimits/requestRatePerAddress``, ``ServerLimits/requestRatePerIdentity``).
    public var overloadsOfRate = 0
    /// Overloads because the adaptive limit on concurrency was reached (``ServerLimits/concurrency``).
    public var overloadsOfConcurrency = 0
    /// Overloads because too many requests of the type were in flight (``RouteLimits/maximumInFlight``).
    public var overloadsOfType = 0
    /// Overloads because too many requests of the client's identity were in flight
    /// (``ServerLimits/maximumInFlightPerIdentity``).
    public var overloadsOfIdentity = 0
    /// Overloads because the maximum number of streams was open on the connection
    /// (``ServerConfiguration/streams``).
    public var overloadsOfStreams = 0
    /// Requests answered 408 because their deadline had passed before they were begun, or passed while their handler
    /// ran.
    public var deadlinesExceeded = 0
    /// Requests answered 408 because their handler exceeded its time limit (``ServerLimits/handlerTimeout``,
    /// ``RouteLimits/timeout``).
    public var handlerTimeouts = 0
    /// Requests answered 404 because their handler threw an error other than a status.
    public var handlerErrors = 0
    /// Requests answered 504, because the server was shutting down.
    public var refusedWhileDraining = 0
    /// Streams opened.
    public var streamsOpened = 0
    /// Streams answered 408, because nothing moved on them (``/HHSocket/StreamPolicy/idleLimit``).
    public var idleStreams = 0
    /// Handlers stopped because their client cancelled the request.
    public var cancelledRequests = 0
    /// Control frames without effect: unknown ones, and cancels of requests that were no longer in flight.
    public var ignoredControlFrames = 0
    /// Clients' heartbeats answered.
    public var heartbeatsAnswered = 0
    /// Pings sent.
    public var pingsSent = 0
    /// Connections closed because no byte followed our pings.
    public var deadPeers = 0
    /// Connections closed because nothing happened on them (``ServerLimits/idleTimeout``).
    public var idleEvictions = 0
    /// Connections closed because their first frame did not arrive in time (``ServerLimits/firstFrameTimeout``).
    public var firstFrameTimeouts = 0
    /// Connections closed because their client did not identify itself in time (``StrangerLimits/timeToBecomeKnown``).
    public var strangerTimeouts = 0
    /// Connections closed because too many of their frames were unproductive (``ServerLimits/unproductiveFrameRate``).
    public var frameFloods = 0
    /// Connections closed because a frame did not get on (``ServerLimits/readStallTimeout``).
    public var readStalls = 0
    /// Connections closed because their client did not read (``ServerLimits/writeStallTimeout``).
    public var writeStalls = 0
    /// Connections closed because too many bytes were held for them, or in all.
    public var memoryEvictions = 0
    /// Connections closed because their client did not read its pushes (``SlowClientPolicy/disconnect``).
    public var slowClientsClosed = 0
    /// Connections closed because their client cancelled too many requests (``ServerLimits/cancelRate``).
    public var cancelFloods = 0
    /// Connections closed because their client's identity had too many
    /// (``ServerLimits/maximumSessionsPerIdentity``).
    public var sessionsDismissed = 0
    /// Clients' hellos answered.
    public var hellos = 0
    /// Hellos, and requests to open a WebSocket, answered 503 because too many authentications waited
    /// (``ServerHello/maximumWaitingAuthentications``).
    public var authenticationsRefused = 0
    /// Requests answered with the first answer to their idempotency key.
    public var idempotentRepeats = 0
    /// Answers that were kept for an idempotency key and discarded before ``IdempotencyPolicy/lifetime``, to make room
    /// for others. A repeat of their request runs the handler again.
    public var idempotentAnswersForgotten = 0
    /// Answers that were not kept for their idempotency key, because they were too large
    /// (``IdempotencyPolicy/maximumAnswerBytes``).
    public var idempotentAnswersTooLarge = 0
    /// Go-aways sent to clients.
    public var goAwaysSent = 0
    /// Errors that were not answered, because the wire format has no status for them.
    public var errorsNotSent = 0
    /// Pushes handed to a connection; one push to three connections counts three.
    public var pushesSent = 0
    /// Pushes dropped for a connection whose client reads too slowly.
    public var pushesDropped = 0

    public init() {}

    /// The number of a counter.
    subscript(_ counter: ServerCounter) -> Int {
        get {
            // Nothing but the counters is stored here, in their order; a test holds it to that.
            withUnsafeBytes(of: self) {
                $0.load(fromByteOffset: counter.rawValue * MemoryLayout<Int>.stride, as: Int.self)
            }
        }
        set {
            withUnsafeMutableBytes(of: &self) { $0.bindMemory(to: Int.self)[counter.rawValue] = newValue }
        }
    }

    static func += (sum: inout Self, other: Self) {
        withUnsafeBytes(of: other) { sum.add($0.bindMemory(to: Int.self)) }
    }

    /// Adds counts in the order of ``ServerCounter``.
    ///
    /// It wraps: 64 bits do not overflow in the lifetime of a server, and additions that cannot fail are vectorised.
    mutating func add(_ counts: UnsafeBufferPointer<Int>) {
        withUnsafeMutableBytes(of: &self) { own in
            let sums = own.bindMemory(to: Int.self)
            for index in sums.indices { sums[index] &+= counts[index] }
        }
    }
}
