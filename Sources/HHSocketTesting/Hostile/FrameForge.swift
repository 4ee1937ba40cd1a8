import HHSocket
import NIOCore

/// The faults of a frame to send.
struct Flaws: Sendable {
    var corruptsChecksum = false
    /// The payload's length that the header announces instead of the true one, in bytes.
    var announcedLength: UInt32?
    /// The number of bytes after which the frame is cut.
    var keptBytes: Int?

    /// Returns bytes without those behind the cut.
    func cut(_ bytes: ByteBuffer) -> ByteBuffer {
        guard let kept = self.keptBytes else { return bytes }
        return bytes.getSlice(at: bytes.readerIndex, length: min(max(0, kept), bytes.readableBytes)) ?? bytes
    }
}

/// An encoder of frames, correct or not.
struct FrameForge: Sendable {
    let format: WireFormat
    /// The length of the encoded header, in bytes.
    let headerLength: Int
    private let encoder: FrameEncoder
    private let lengthOffset: Int
    private let lengthOrder: Endianness

    init(direction: FrameDirection, format: WireFormat) {
        self.format = format
        self.encoder = FrameEncoder(direction: direction, format: format)
        var offset = 0
        var length = (offset: 0, order: Endianness.big)
        for field in direction == .request ? format.layout.request : format.layout.response {
            if field == .length(.big) { length = (offset, .big) }
            if field == .length(.little) { length = (offset, .little) }
            offset += field.width
        }
        self.headerLength = offset
        (self.lengthOffset, self.lengthOrder) = length
    }

    func append(_ frame: Frame, _ flaws: Flaws, to buffer: inout ByteBuffer) {
        var bytes = ByteBuffer()
        self.encoder.encode(frame, into: &bytes)
        if flaws.corruptsChecksum, self.format.layout.checksum != nil {
            let last = bytes.writerIndex - 1 - (self.format.layout.tail == nil ? 0 : 4)
            bytes.setInteger((bytes.getInteger(at: last) ?? UInt8(0)) ^ 0x5A, at: last)
        }
        if let length = flaws.announcedLength {
            bytes.setInteger(length, at: bytes.readerIndex + self.lengthOffset, endianness: self.lengthOrder)
        }
        if let kept = flaws.keptBytes, let slice = bytes.readSlice(length: min(max(0, kept), bytes.readableBytes)) {
            bytes = slice
        }
        buffer.writeBuffer(&bytes)
    }
}
