import HHSocket
import NIOCore

/// Describes the frames of a stream, one line per frame.
struct FrameInspector {
    /// The place where a stream stops being frames of the format, and the reason.
    struct Nonsense: Error, Hashable, CustomStringConvertible {
        var offset: Int
        var reason: String

        var description: String { "at offset \(self.offset): \(self.reason)" }
    }

    private let direction: FrameDirection
    private let format: WireFormat
    private var decoder: FrameDecoder
    /// The offset of the next frame.
    private var offset = 0
    /// The number of frames with a wrong checksum.
    private(set) var corruptFrames = 0

    init(direction: FrameDirection, format: WireFormat) {
        self.direction = direction
        self.format = format
        // A long run of wrong checksums is not an error here, but shown.
        self.decoder = FrameDecoder(direction: direction, format: format, maximumCorruptRun: .max)
    }

    /// Calls `print` with a line for each frame that these bytes complete.
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

    /// Checks that the stream does not end within a frame.
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
