// SPDX-License-Identifier: Apache-2.0
/// Counts of a server since it started. Every number only grows. <doc:Operations> has the names of the metrics.
public struct ServerStatistics: Hashable, Sendable {
    /// Connections accepted; with TLS, once that is agreed on.
    public package(set) var connectionsAccepted = 0
    /// Connections refused because there were too many (``ServerLimits/maximumConnections``).
    public package(set) var connectionsRefused = 0
    /// Connections refused because too many came from their address (``ServerLimits/maximumConnectionsPerAddress``).
    public package(set) var connectionsRefusedByAddress = 0
    /// Connections refused because too many were made from their address in a short time
    /// (``ServerLimits/connectionRatePerAddress``).
    public package(set) var connectionsRefusedByRate = 0
    /// Connections closed for a new one, because they had been silent longest (``ServerLimits/minimumSilence``).
    public package(set) var silentEvictions = 0
    /// Connections refused by the application (``ConnectionPolicy/admit``).
    public package(set) var connectionsRefusedByAdmission = 0
    /// Times that the system had no resources for one more connection, so that none was accepted for a while.
    public package(set) var acceptFailures = 0
    /// Connections of listed proxies closed because their PROXY header was malformed, or did not arrive in time
    /// (``ServerProxies/proxyProtocol``).
    public package(set) var proxyHeaderFailures = 0
    /// Connections closed because TLS could not be agreed on, or took too long.
    public package(set) var tlsFailures = 0
    /// Connections closed because a client's certificate is revoked, or its issuer has no current list
    /// (``ServerTLS/revocationLists``).
    public package(set) var clientCertificatesRevoked = 0
    /// Requests with a right checksum, however they were answered.
    public package(set) var requests = 0
    /// Requests whose type no handler has: answered 401, or by middleware that sees them
    /// (``ServerMiddleware/seesUnknownTypes``).
    public package(set) var unknownTypes = 0
    /// Frames with a wrong checksum.
    public package(set) var badChecksums = 0
    /// Requests answered 303: a reserved serial, or one that was still in flight; or 301, with a body that is longer
    /// than allowed; or 405: a stranger's, compressed.
    public package(set) var illegalRequests = 0
    /// Requests refused by an admission (``ServerAdmission``), for example because the client has no identity.
    public package(set) var refusedByAdmission = 0
    /// Connections closed because their bytes were invalid: a length over the limit, an implausible header after a
    /// wrong checksum, several wrong checksums in a row, or a header that the wire format does not have.
    public package(set) var protocolErrors = 0
    /// Requests answered 503, because a limit was reached; the next six are among them.
    public package(set) var overloads = 0
    /// Overloads because too many bytes were held (``ServerLimits/maximumBufferedBytes`` or
    /// ``ServerLimits/maximumBufferedBytesPerConnection``).
    public package(set) var overloadsOfMemory = 0
    /// Overloads because the connection, its address or its identity exceeded its rate of requests
    /// (``ServerLimits/requestRate``, ``ServerLimits/requestRatePerAddress``, ``ServerLimits/requestRatePerIdentity``).
    public package(set) var overloadsOfRate = 0
    /// Overloads because the adaptive limit on concurrency was reached (``ServerLimits/concurrency``).
    public package(set) var overloadsOfConcurrency = 0
    /// Overloads because too many requests of the type were in flight (``RouteLimits``).
    public package(set) var overloadsOfType = 0
    /// Overloads because too many requests of the client's identity were in flight
    /// (``ServerLimits/maximumInFlightPerIdentity``).
    public package(set) var overloadsOfIdentity = 0
    /// Overloads because the maximum number of streams was open on the connection
    /// (``ServerConfiguration/streams``).
    public package(set) var overloadsOfStreams = 0
    /// Requests answered 408 because their deadline had passed before they were begun, or passed while their handler
    /// ran.
    public package(set) var deadlinesExceeded = 0
    /// Requests answered 408 because their handler exceeded its time limit (``ServerLimits/handlerTimeout``,
    /// ``RouteLimits``).
    public package(set) var handlerTimeouts = 0
    /// Requests answered 404 because their handler threw an error other than a status.
    public package(set) var handlerErrors = 0
    /// Requests answered 504, because the server was shutting down.
    public package(set) var refusedWhileDraining = 0
    /// Streams opened.
    public package(set) var streamsOpened = 0
    /// Streams answered 408, because nothing moved on them (``/HHSocket/StreamPolicy/idleLimit``).
    public package(set) var idleStreams = 0
    /// Handlers stopped because their client cancelled the request.
    public package(set) var cancelledRequests = 0
    /// Control frames without effect: unknown ones, and cancels of requests that were no longer in flight.
    public package(set) var ignoredControlFrames = 0
    /// Clients' heartbeats answered.
    public package(set) var heartbeatsAnswered = 0
    /// Pings sent.
    public package(set) var pingsSent = 0
    /// Connections closed because no byte followed our pings.
    public package(set) var deadPeers = 0
    /// Connections closed because nothing happened on them (``ServerLimits/idleTimeout``).
    public package(set) var idleEvictions = 0
    /// Connections closed because their first frame did not arrive in time: 10 s after TLS, or to a required hello.
    public package(set) var firstFrameTimeouts = 0
    /// Connections closed because their client did not identify itself in time (``StrangerLimits/timeToBecomeKnown``).
    public package(set) var strangerTimeouts = 0
    /// Connections closed because too many of their frames were unproductive, such as heartbeats, unknown types and
    /// wrong checksums: more than 1,000 a second, and 20,000 at once.
    public package(set) var frameFloods = 0
    /// Connections closed because a frame did not get on (``ServerLimits/readStallTimeout``).
    public package(set) var readStalls = 0
    /// Connections closed because their client did not read (``ServerLimits/writeStallTimeout``).
    public package(set) var writeStalls = 0
    /// Connections closed because too many bytes were held for them, or in all.
    public package(set) var memoryEvictions = 0
    /// Connections closed because their client did not read its pushes (``SlowClientPolicy/disconnect``).
    public package(set) var slowClientsClosed = 0
    /// Connections closed because their client cancelled too many requests (``ServerLimits/cancelRate``).
    public package(set) var cancelFloods = 0
    /// Connections closed because their client's identity had too many
    /// (``ServerLimits/maximumSessionsPerIdentity``).
    public package(set) var sessionsDismissed = 0
    /// Clients' hellos answered.
    public package(set) var hellos = 0
    /// Hellos, and requests to open a WebSocket, answered 503 because 4,096 authentications waited
    /// (``ServerHello/maximumConcurrentAuthentications``).
    public package(set) var authenticationsRefused = 0
    /// Requests answered with the first answer to their idempotency key.
    public package(set) var idempotentRepeats = 0
    /// Answers that were kept for an idempotency key and discarded before ``IdempotencyPolicy/lifetime``, to make room
    /// for others. A repeat of their request runs the handler again.
    public package(set) var idempotentAnswersForgotten = 0
    /// Answers that were not kept for their idempotency key, because they were too large (``IdempotencyPolicy``).
    public package(set) var idempotentAnswersTooLarge = 0
    /// Go-aways sent to clients.
    public package(set) var goAwaysSent = 0
    /// Errors that were not answered, because the wire format has no status for them.
    public package(set) var errorsNotSent = 0
    /// Pushes handed to a connection; one push to three connections counts three.
    public package(set) var pushesSent = 0
    /// Pushes dropped for a connection whose client reads too slowly.
    public package(set) var pushesDropped = 0

    package init() {}

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
