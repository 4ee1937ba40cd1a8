import HHSocket
import NIOCore

/// Something the server sent without being asked.
public struct SocketPush: Sendable, Hashable {
    public var type: UInt32
    public var status: Status
    /// The payload.
    public var body: ByteBuffer
    /// The custom fields of the push's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] = [:]
    /// What the server said beside the body, by name; empty where it said nothing, as without an agreement on
    /// ``ProtocolFeature/metadata``.
    public var metadata: [String: String] = [:]
    /// The server that sent it.
    public var endpoint: Endpoint

    /// The payload as text; bytes that are not UTF-8 are replaced.
    public var string: String { String(buffer: self.body) }
}
