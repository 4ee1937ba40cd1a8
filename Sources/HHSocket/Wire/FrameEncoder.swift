import NIOCore

/// Turns frames into bytes.
public struct FrameEncoder: Sendable {
    /// Which kind of header to write.
    public let direction: FrameDirection

    @inlinable
    public init(direction: FrameDirection) {
        self.direction = direction
    }

    /// The length in bytes of a frame with a payload of `payloadLength` bytes.
    @inlinable
    public func encodedLength(payloadLength: Int) -> Int {
        self.direction.headerLength + payloadLength + Frame.trailerLength
    }

    /// Appends the whole frame to `buffer`.
    @inlinable
    public func encode(_ frame: Frame, into buffer: inout ByteBuffer) {
        let length = frame.payload.readableBytes
        let total = self.encodedLength(payloadLength: length)
        let end = self.direction.headerLength + length
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: total) { target in
            self.header(of: frame).write(to: target, direction: self.direction)
            frame.payload.withUnsafeReadableBytes { payload in
                if length > 0 {
                    UnsafeMutableRawBufferPointer(rebasing: target[self.direction.headerLength..<end])
                        .copyMemory(from: payload)
                }
                target.storeBigEndian(Adler32.checksum(payload), at: end)
            }
            return total
        }
    }

    /// Appends the frame's header alone, for payloads that are sent without being copied.
    @inlinable
    public func encodeHeader(of frame: Frame, into buffer: inout ByteBuffer) {
        let length = self.direction.headerLength
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: length) { target in
            self.header(of: frame).write(to: target, direction: self.direction)
            return length
        }
    }

    /// Appends what comes after the payload.
    @inlinable
    public func encodeTrailer(of frame: Frame, into buffer: inout ByteBuffer) {
        buffer.writeInteger(Adler32.checksum(frame.payload))
    }

    @inlinable
    func header(of frame: Frame) -> FrameHeader {
        FrameHeader(
            type: frame.type,
            serial: frame.serial,
            status: frame.status,
            length: UInt32(truncatingIfNeeded: frame.payload.readableBytes)
        )
    }
}
