import HHSocket
import NIOCore

/// Thrown by a handler to answer with another status than 200.
public struct StatusError: Error, Hashable, Sendable {
    /// The answer's status.
    public var status: Status
    /// The answer's payload; the client finds it in its error.
    public var body: ByteBuffer

    /// - Parameters:
    ///   - status: The answer's status, any 32 bits; those that are not listed in ``HHSocket/Status`` reach the client
    ///     as the code `server(status)`.
    ///   - body: The answer's payload; empty by default.
    public init(_ status: Status, body: ByteBuffer = ByteBuffer()) {
        self.status = status
        self.body = body
    }
}

extension Status {
    /// What a request is answered whose handler throws `error`.
    init(answering error: any Error) {
        self = (error as? StatusError)?.status ?? .unknown
    }
}
