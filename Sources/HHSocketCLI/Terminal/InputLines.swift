// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import NIOCore

/// The lines of an input, which are read on demand.
final class InputLines: @unchecked Sendable {
    // Proof of Sendable: the variables are accessed only on the queue.
    /// The longest line, in bytes: 64 MiB.
    static let maximumLength = 64 << 20

    private let input: Input
    private let queue = DispatchQueue(label: "input")
    private var buffer = ByteBuffer()
    /// The number of bytes of the buffer in which there is no end of a line.
    private var searched = 0
    private var hasEnded = false
    /// Whether the beginning of the buffer belongs to a line that was too long.
    private var isSkipping = false

    /// A line without its LF.
    enum Line: Sendable {
        case bytes(ByteBuffer)
        /// A line of more than ``maximumLength`` bytes, which are skipped.
        case tooLong
    }

    init(_ input: Input = .standard) {
        self.input = input
    }

    /// Returns the next line; nil at the end. A last line without LF counts if it has a byte.
    func next() async throws(Input.Failure) -> Line? {
        let line: Result<Line?, Input.Failure> = await withCheckedContinuation { reader in
            self.queue.async { reader.resume(returning: Result { () throws(Input.Failure) in try self.read() }) }
        }
        if ThreadSanitizer.isRunning { self.queue.sync {} }
        return try line.get()
    }

    private func read() throws(Input.Failure) -> Line? {
        while true {
            let end = self.endOfLine()
            if end == nil, !self.hasEnded {
                self.searched = self.buffer.readableBytes
                if self.isSkipping {
                    self.buffer.clear(minimumCapacity: Input.step)
                    self.searched = 0
                } else if self.searched > Self.maximumLength {
                    // Reported at once: the line may have no end.
                    self.isSkipping = true
                    return .tooLong
                }
                self.buffer.discardReadBytes()
                self.hasEnded = try !self.input.append(to: &self.buffer)
                continue
            }
            // The end of the input also ends its last line.
            let length = end ?? self.buffer.readableBytes
            guard end != nil || length > 0 else { return nil }
            // A copy: a slice would keep the buffer, which would be copied when more is read into it.
            var line = ByteBuffer()
            let isTooLong = length > Self.maximumLength
            if !isTooLong, let slice = self.buffer.getSlice(at: self.buffer.readerIndex, length: length) {
                line.writeImmutableBuffer(slice)
            }
            self.buffer.moveReaderIndex(forwardBy: end == nil ? length : length + 1)
            self.searched = 0
            if self.isSkipping {
                self.isSkipping = false
                continue
            }
            return isTooLong ? .tooLong : .bytes(line)
        }
    }

    /// Returns the number of bytes before the next LF; nil if none has been read.
    private func endOfLine() -> Int? {
        self.buffer.withUnsafeReadableBytes { bytes in
            guard let start = bytes.baseAddress, self.searched < bytes.count else { return nil }
            let end = memchr(start + self.searched, CInt(UInt8(ascii: "\n")), bytes.count - self.searched)
            return end.map { UnsafeRawPointer($0) - start }
        }
    }
}
