// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The lines of standard input, which are read on demand.
final class InputLines: @unchecked Sendable {
    // Proof of Sendable: the buffer is accessed only on the queue.
    /// The longest line, in bytes: 64 MiB.
    static let maximumLength = 64 << 20

    private let queue = DispatchQueue(label: "standard input")
    private var buffer: [UInt8] = []
    /// The number of bytes of the buffer that were returned, and that were searched for the end of a line.
    private var start = 0
    private var searched = 0
    private var hasEnded = false

    /// A line without its LF.
    enum Line: Sendable {
        case bytes([UInt8])
        /// A line of more than ``maximumLength`` bytes, which were skipped.
        case tooLong
    }

    /// Returns the next line; nil at the end. A last line without LF counts if it has a byte.
    func next() async -> Line? {
        await withCheckedContinuation { reader in
            self.queue.async { reader.resume(returning: self.read()) }
        }
    }

    private func read() -> Line? {
        var isTooLong = false
        while true {
            let end = self.buffer[self.searched...].firstIndex(of: UInt8(ascii: "\n"))
            if end == nil, !self.hasEnded {
                self.searched = self.buffer.count
                if isTooLong || self.buffer.count - self.start > Self.maximumLength {
                    isTooLong = true
                    self.start = self.buffer.count
                }
                self.fill()
                continue
            }
            // The end of the input also ends its last line.
            let line = self.buffer[self.start..<(end ?? self.buffer.count)]
            guard end != nil || isTooLong || !line.isEmpty else { return nil }
            isTooLong = isTooLong || line.count > Self.maximumLength
            let bytes = isTooLong ? [] : Array(line)
            self.start = end.map { $0 + 1 } ?? self.buffer.count
            self.searched = self.start
            return isTooLong ? .tooLong : .bytes(bytes)
        }
    }

    private func fill() {
        self.buffer.removeFirst(self.start)
        self.searched -= self.start
        self.start = 0
        let count = self.buffer.count
        let length = 64 << 10
        self.buffer.append(contentsOf: repeatElement(0, count: length))
        var result: Int
        repeat {
            result = self.buffer.withUnsafeMutableBytes { bytes in
                #if canImport(Glibc) || canImport(Musl) || canImport(Darwin)
                bytes.baseAddress.map { systemRead(STDIN_FILENO, $0 + count, length) } ?? 0
                #else
                0
                #endif
            }
        } while result == -1 && errno == EINTR
        self.buffer.removeLast(length - max(0, result))
        if result <= 0 { self.hasEnded = true }
    }
}

private func systemRead(_ descriptor: CInt, _ target: UnsafeMutableRawPointer, _ count: Int) -> Int {
    read(descriptor, target, count)
}
