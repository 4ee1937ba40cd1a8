import NIOCore

/// Which way a frame travels; the two ways have different headers.
public enum FrameDirection: Sendable, Hashable {
    /// Client to server: `type serial length`, 12 bytes.
    case request
    /// Server to client: `type serial status length`, 16 bytes.
    case response

    /// The header's length in bytes.
    @inlinable
    public var headerLength: Int {
        switch self {
        case .request: 12
        case .response: 16
        }
    }
}

/// One message on the wire.
///
/// All words are unsigned 32-bit big-endian. After the header come `length` bytes of payload and the payload's adler32
/// (RFC 1950, so an empty payload's is 1).
public struct Frame: Sendable, Hashable {
    /// What the frame is about: the name of an RPC or push, or one of ``FrameType``'s control types.
    public var type: UInt32
    /// Joins a response to its request.
    public var serial: UInt32
    /// The verdict of a response. A request has none on the wire; here it is ``Status/ok``.
    public var status: Status
    public var payload: ByteBuffer

    @inlinable
    public init(type: UInt32, serial: UInt32, status: Status = .ok, payload: ByteBuffer = ByteBuffer()) {
        self.type = type
        self.serial = serial
        self.status = status
        self.payload = payload
    }

    /// The length in bytes of the checksum after each payload.
    public static let trailerLength = 4
    /// The largest payload accepted by default, in bytes: 16 MiB.
    public static let defaultMaximumPayloadLength = 16 << 20
}

extension Frame: CustomStringConvertible {
    public var description: String {
        "frame type \(self.type) serial \(self.serial) status \(self.status) \(self.payload.readableBytes) B"
    }
}
