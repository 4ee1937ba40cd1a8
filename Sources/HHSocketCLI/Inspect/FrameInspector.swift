import HHSocket
import NIOCore

/// Describes the frames of a stream, one line per frame.
struct FrameInspector {
    /// Where and why a stream cannot be read as frames of the format.
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
        // A long run of wrong checksums is not an error here: it is to be shown.
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
        let (direction, hasChecksum) = (self.direction, self.format.layout.checksum != nil)
        do throws(FrameError) {
            try self.decoder.decode(bytes) { frame in
                print(Self.line(for: frame, direction, hasChecksum: hasChecksum, at: offset))
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
            throw Nonsense(
                offset: self.offset,
                reason: "the stream ends in the middle of a frame, \(rest) bytes into it"
            )
        }
    }

    private static func line(
        for frame: FrameDecoder.View,
        _ direction: FrameDirection,
        hasChecksum: Bool,
        at offset: Int
    ) -> String {
        let status = direction == .response ? "\(frame.status)" : "-"
        let checksum =
            switch frame.mismatch {
            case let mismatch?: "wrong (received \(mismatch.received), computed \(mismatch.computed))"
            case nil: hasChecksum ? "right" : "none"
            }
        return """
            \(direction)  offset \(offset)  type \(frame.type)  serial \(frame.serial)  status \(status)  \
            length \(frame.payload.count)  checksum \(checksum)

            """
    }
}
