import HHSocket

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
import Foundation
#endif

/// Times and sizes of a call, as in `URLSessionTaskMetrics`.
public struct SocketTaskMetrics: Sendable, Hashable {
    /// When the socket thread took the call up.
    public var queued: Date
    /// When the request began to leave, the last time where it was sent several times; nil if it never left.
    public var sent: Date?
    /// When the first byte of the answer came; nil if none did.
    public var firstByte: Date?
    /// When the call completed.
    public var completed: Date
    /// From ``queued`` to ``completed``, by a clock that nobody sets.
    public var duration: Duration
    /// The server that the request was sent to, the last one; nil if it never left.
    public var server: Endpoint?
    /// How often the request was sent, or stood in line behind a server that does not read.
    public var attempts: Int
    /// The number of bytes of bodies that were sent, in all attempts.
    public var bytesSent: Int
    /// The number of bytes of the answer's body that have arrived.
    public var bytesReceived: Int
}
