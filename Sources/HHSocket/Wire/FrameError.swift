/// A byte stream that cannot be decoded any further. Where the next frame starts is unknown, so the connection must end.
public enum FrameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A header announced a payload of `length` bytes; `limit` are allowed.
    case payloadTooLarge(length: Int, limit: Int, type: UInt32, serial: UInt32)

    public var description: String {
        switch self {
        case .payloadTooLarge(let length, let limit, let type, let serial):
            """
            a frame of type \(type), serial \(serial) announces a payload of \(length) bytes, over the limit of \(limit); \
            either the peer speaks another protocol or the limit (maximumPayloadLength) is too low
            """
        }
    }
}
