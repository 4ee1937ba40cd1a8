// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// Describes the frames of a stream: one line per frame, as text, with another line for its message if that is known,
/// or as JSON.
struct FrameInspector {
    /// The place where a stream stops being frames of the format, and the reason.
    struct Nonsense: Error, Hashable, CustomStringConvertible {
        var offset: Int
        var reason: String

        var description: String { "at offset \(self.offset): \(self.reason)" }
    }

    /// A piece of the stream.
    enum Finding: Hashable {
        /// The line that describes a frame.
        case frame(String)
        /// Bytes that are not a frame, in a format with separators: reading continues after the next separator.
        case malformed(Nonsense)
    }

    private let direction: FrameDirection
    private let format: WireFormat
    /// The messages of payloads; nil if they are not declared.
    private let payloads: InspectedPayloads?
    private let printsJSON: Bool
    private var decoder: FrameDecoder
    /// The offset of the next frame.
    private var offset = 0
    /// The number of frames with a wrong checksum.
    private(set) var corruptFrames = 0
    /// The number of stretches that are no frame, in a format with separators.
    private(set) var malformedStretches = 0

    init(direction: FrameDirection, format: WireFormat, payloads: InspectedPayloads?, printsJSON: Bool) {
        self.direction = direction
        self.payloads = payloads
        self.printsJSON = printsJSON
        self.format = format
        // A long run of wrong checksums is not an error here, but shown.
        self.decoder = FrameDecoder(direction: direction, format: format, maximumCorruptRun: .max)
    }

    /// Calls `print` with each frame that these bytes complete, and with each range that is not a frame.
    mutating func inspect(_ bytes: UnsafeRawBufferPointer, _ print: (Finding) -> Void) throws(Nonsense) {
        var offset = self.offset
        var (corruptFrames, malformedStretches) = (self.corruptFrames, self.malformedStretches)
        defer {
            self.offset = offset
            (self.corruptFrames, self.malformedStretches) = (corruptFrames, malformedStretches)
        }
        // The decoder is accessed meanwhile.
        let (direction, payloads, printsJSON) = (self.direction, self.payloads, self.printsJSON)
        let hasChecksum = self.format.layout.checksum != nil
        do throws(FrameError) {
            try self.decoder.decode(bytes) { frame in
                offset += frame.skippedBytes
                if let error = frame.malformation {
                    malformedStretches += 1
                    print(.malformed(Nonsense(offset: offset, reason: error.message)))
                    offset += frame.frameLength
                    return
                }
                let shown = ShownFrame(
                    frame: frame,
                    direction: direction,
                    offset: offset,
                    hasChecksum: hasChecksum,
                    message: payloads?.message(in: frame, direction)
                )
                print(.frame(printsJSON ? shown.object : shown.text))
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
        // A malformed stretch was reported before.
        guard rest == 0 || self.decoder.isSkipping else {
            throw Nonsense(
                offset: self.offset + self.decoder.skippedBytes,
                reason: "the stream ends in the middle of a frame, \(rest) bytes into it"
            )
        }
    }
}

/// A frame as it is printed.
private struct ShownFrame {
    let frame: FrameDecoder.View
    let direction: FrameDirection
    let offset: Int
    /// Whether frames of the format have a checksum.
    let hasChecksum: Bool
    let message: InspectedPayloads.Message?

    private var checksum: String { self.frame.mismatch != nil ? "wrong" : self.hasChecksum ? "right" : "none" }

    /// A line, and another one for the message.
    var text: String {
        let (frame, direction) = (self.frame, self.direction)
        let status = direction == .response ? "\(frame.status)" : "-"
        let checksum = self.checksum + (frame.mismatch.map { " (\($0))" } ?? "")
        let line = """
            \(direction)  offset \(self.offset)  type \(frame.type)  serial \(frame.serial)  status \(status)  \
            length \(frame.payload.count)  checksum \(checksum)

            """
        switch self.message {
        case .json(let value): return "\(line)  \(value.text())\n"
        case .unreadable(let reason): return "\(line)  \(reason)\n"
        case nil: return line
        }
    }

    /// A line of JSON.
    var object: String {
        let frame = self.frame
        var object = JSONLine()
        object.add("direction", "\(self.direction)")
        object.add("offset", self.offset)
        object.add("type", frame.type)
        object.add("serial", frame.serial)
        if self.direction == .response { object.add("status", frame.status.rawValue) }
        object.add("length", frame.payload.count)
        object.add("checksum", self.checksum)
        if let mismatch = frame.mismatch {
            object.add("received", FrameDecoder.ChecksumMismatch.text(mismatch.received))
            object.add("computed", FrameDecoder.ChecksumMismatch.text(mismatch.computed))
        }
        switch self.message {
        case .json(let value): object.add("message", value)
        case .unreadable(let reason): object.add("error", reason)
        case nil: break
        }
        return object.line
    }
}
