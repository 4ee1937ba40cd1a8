/// What a server has done since it started. Every number only grows.
public struct ServerStatistics: Hashable, Sendable {
    /// Connections accepted; with TLS, once that is agreed on.
    public var connectionsAccepted = 0
    /// Connections closed because TLS could not be agreed on, or took too long.
    public var tlsFailures = 0
    /// Requests with a right checksum, however they were answered.
    public var requests = 0
    /// Requests answered 401, because no handler has their type.
    public var unknownTypes = 0
    /// Frames with a wrong checksum.
    public var badChecksums = 0
    /// Requests answered 303: a reserved serial, or one that was still in flight.
    public var illegalRequests = 0
    /// Connections closed because their bytes made no sense: a length over the limit, or nonsense after a wrong checksum, a
    /// run of wrong checksums, or a header that the wire format does not have.
    public var protocolErrors = 0
    /// Requests answered 503, because too many were in flight on their connection.
    public var overloads = 0
    /// Requests answered 504, because the server was shutting down.
    public var refusedWhileDraining = 0
    /// Handlers stopped because their client cancelled the request.
    public var cancelledRequests = 0
    /// Control frames without effect: unknown ones, and cancels of what was no longer in flight.
    public var ignoredControlFrames = 0
    /// Clients' heartbeats answered.
    public var heartbeatsAnswered = 0
    /// Pings sent.
    public var pingsSent = 0
    /// Connections closed because no byte followed our pings.
    public var deadPeers = 0
    /// Errors that were not answered, because the wire format has no status to say so.
    public var errorsNotSent = 0
    /// Pushes handed to a connection; one push to three connections counts three.
    public var pushesSent = 0
    /// Pushes dropped for a connection whose client reads too slowly.
    public var pushesDropped = 0

    public init() {}

    static func += (sum: inout Self, other: Self) {
        sum.connectionsAccepted += other.connectionsAccepted
        sum.tlsFailures += other.tlsFailures
        sum.requests += other.requests
        sum.unknownTypes += other.unknownTypes
        sum.badChecksums += other.badChecksums
        sum.illegalRequests += other.illegalRequests
        sum.protocolErrors += other.protocolErrors
        sum.overloads += other.overloads
        sum.refusedWhileDraining += other.refusedWhileDraining
        sum.cancelledRequests += other.cancelledRequests
        sum.ignoredControlFrames += other.ignoredControlFrames
        sum.heartbeatsAnswered += other.heartbeatsAnswered
        sum.pingsSent += other.pingsSent
        sum.deadPeers += other.deadPeers
        sum.errorsNotSent += other.errorsNotSent
        sum.pushesSent += other.pushesSent
        sum.pushesDropped += other.pushesDropped
    }
}
