import HHSocket
import NIOCore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A server's answer with status 200. Answers with another status are errors.
public struct SocketResponse: Sendable, Hashable {
    /// The request's type, as the server repeated it.
    public var type: UInt32
    /// The serial that joined the answer to its request.
    public var serial: UInt32
    public var status: Status
    /// The payload.
    public var body: ByteBuffer
    /// The custom fields of the answer's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] = [:]
    /// The server that answered.
    public var endpoint: Endpoint

    /// An answer that no server gave, such as an interceptor's.
    public init(
        type: UInt32,
        serial: UInt32 = 0,
        status: Status = .ok,
        body: ByteBuffer,
        header: [String: [UInt8]] = [:],
        endpoint: Endpoint
    ) {
        self.type = type
        self.serial = serial
        self.status = status
        self.body = body
        self.header = header
        self.endpoint = endpoint
    }

    /// The payload as `Data`.
    public var data: Data { Data(self.body.readableBytesView) }

    /// The payload as text; bytes that are not UTF-8 are replaced.
    public var string: String { String(buffer: self.body) }
}
