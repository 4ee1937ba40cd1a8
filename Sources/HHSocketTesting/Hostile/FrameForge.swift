// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The faults of a frame to send.
struct Flaws: Sendable {
    var corruptsChecksum = false
    /// The payload's length that the header announces instead of the true one, in bytes.
    var announcedLength: UInt32?
    /// The number of bytes after which the frame is cut.
    var keptBytes: Int?

    /// Returns bytes without those after the cut.
    func cut(_ bytes: ByteBuffer) -> ByteBuffer {
        guard let kept = self.keptBytes else { return bytes }
        return bytes.getSlice(at: bytes.readerIndex, length: min(max(0, kept), bytes.readableBytes)) ?? bytes
    }
}

/// An encoder of frames, correct or not.
struct FrameForge: Sendable {
    let format: WireFormat
    private let encoder: FrameEncoder

    init(direction: FrameDirection, format: WireFormat) {
        self.format = format
        self.encoder = FrameEncoder(direction: direction, format: format)
    }

    func append(_ frame: Frame, _ flaws: Flaws, to buffer: inout ByteBuffer) {
        var bytes = ByteBuffer()
        // Only the codec knows what length it announces.
        if let length = flaws.announcedLength, !self.format.hasCodec {
            self.encoder.encodeHeader(of: frame, announcing: length, into: &bytes)
            bytes.writeImmutableBuffer(frame.payload)
            self.encoder.encodeTrailer(of: frame, into: &bytes)
        } else {
            self.encoder.encode(frame, into: &bytes)
        }
        let layout = self.format.layout
        if flaws.corruptsChecksum, layout.checksum != nil {
            let last = bytes.writerIndex - 1 - (layout.tail == nil ? 0 : 4) - (layout.bodyEnd?.count ?? 0)
            bytes.setInteger((bytes.getInteger(at: last) ?? UInt8(0)) ^ 0x5A, at: last)
        }
        if let kept = flaws.keptBytes, let slice = bytes.readSlice(length: min(max(0, kept), bytes.readableBytes)) {
            bytes = slice
        }
        buffer.writeBuffer(&bytes)
    }
}
