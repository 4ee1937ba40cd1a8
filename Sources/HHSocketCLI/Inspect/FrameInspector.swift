import HHSocket
import NIOCore

/// Tells what a stream of frames holds, a line each.
struct FrameInspector {
    /// Where and why a stream stops making sense.
    struct Nonsense: Error, Hashable, CustomStringConvertible {
        var offset: Int
        var reason: String

        var description: String { "at offset \(self.offset): \(self.reason)" }
    }

    private let direction: FrameDirection
    private let format: WireFormat
    private var decoder: FrameDecoder
    /// Where the next frame begins.
    private var offset = 0
    /// Frames whose checksum is wrong.
    private(set) var corruptFrames = 0

    init(direction: FrameDirection, format: WireFormat) {
        self.direction = direction
        self.format = format
        // A run of wrong checksums is what somebody who inspects wants to see.
        self.decoder = FrameDecoder(direction: direction, format: format, maximumCorruptRun: .max)
    }

    /// Hands `print` a line for each frame that is complete with these bytes.
    mutating func inspect(_ bytes: UnsafeRawBufferPointer, _ print: (String) -> Void) throws(Nonsense) {
        var offset = self.offset
        var corruptFrames = self.corruptFrames
        defer {
            self.offset = offset
            self.corruptFrames = corruptFrames
        }
        do throws(FrameError) {
            try self.decoder.decode(bytes) { frame in
                print(self.line(for: frame, at: offset))
                offset += frame.frameLength
                if frame.mismatch != nil { corruptFrames += 1 }
            }
        } catch {
            throw Nonsense(offset: offset, reason: error.message)
        }
    }

    /// The stream has ended.
    func finish() throws(Nonsense) {
        let rest = self.decoder.bufferedBytes
        guard rest == 0 else {
            throw Nonsense(offset: self.offset, reason: "the stream ends in the middle of a frame, \(rest) bytes into it")
        }
    }

    private func line(for frame: FrameDecoder.View, at offset: Int) -> String {
        let status = self.direction == .response ? "\(frame.status)" : "-"
        let checksum =
            switch (self.format.layout.checksum, frame.mismatch) {
            case (nil, _): "none"
            case (_, nil): "right"
            case (_, let mismatch?): "wrong (received \(mismatch.received), computed \(mismatch.computed))"
            }
        return """
            \(self.direction)  offset \(offset)  type \(frame.type)  serial \(frame.serial)  status \(status)  \
            length \(frame.payload.count)  checksum \(checksum)

            """
    }
}
