import HHSocket
import NIOCore

/// What is wrong with a frame that is about to leave.
struct Flaws: Sendable {
    var corruptsChecksum = false
    /// What the header says of the payload's length, in bytes, instead of the truth.
    var announcedLength: UInt32?
    /// Only so many bytes leave.
    var keptBytes: Int?
}

/// Makes the bytes of frames, right ones and wrong ones.
struct FrameForge: Sendable {
    let direction: FrameDirection

    func append(_ frame: Frame, _ flaws: Flaws = Flaws(), to buffer: inout ByteBuffer) {
        var bytes = ByteBuffer()
        FrameEncoder(direction: self.direction).encode(frame, into: &bytes)
        if flaws.corruptsChecksum {
            let last = bytes.writerIndex - 1
            bytes.setInteger((bytes.getInteger(at: last) ?? UInt8(0)) ^ 0x5A, at: last)
        }
        if let length = flaws.announcedLength {
            bytes.setInteger(length, at: bytes.readerIndex + self.direction.headerLength - 4)
        }
        if let kept = flaws.keptBytes, let slice = bytes.readSlice(length: min(max(0, kept), bytes.readableBytes)) {
            bytes = slice
        }
        buffer.writeBuffer(&bytes)
    }

    func bytes(of frame: Frame, _ flaws: Flaws = Flaws()) -> ByteBuffer {
        var buffer = ByteBuffer()
        self.append(frame, flaws, to: &buffer)
        return buffer
    }
}
