import Dispatch
import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The lines of standard input, which are read as they are asked for.
final class InputLines: @unchecked Sendable {
    // Proof of Sendable: the buffer is touched on the queue alone.
    /// The longest line, in bytes: 64 MiB.
    static let maximumLength = 64 << 20

    private let queue = DispatchQueue(label: "standard input")
    private var buffer: [UInt8] = []
    /// The number of bytes of the buffer that were returned, and that were searched for the end of a line.
    private var start = 0
    private var searched = 0
    private var hasEnded = false

    /// Returns the next line without its LF; nil at the end. A last line without LF counts if it has a byte.
    func next() async -> [UInt8]? {
        await withCheckedContinuation { reader in
            self.queue.async { reader.resume(returning: self.read()) }
        }
    }

    private func read() -> [UInt8]? {
        while true {
            if let end = self.buffer[self.searched...].firstIndex(of: UInt8(ascii: "\n")) {
                let line = Array(self.buffer[self.start..<end])
                self.start = end + 1
                self.searched = self.start
                return line
            }
            self.searched = self.buffer.count
            if self.hasEnded || self.buffer.count - self.start > Self.maximumLength {
                guard self.start < self.buffer.count else { return nil }
                let line = Array(self.buffer[self.start...])
                self.buffer = []
                self.start = 0
                self.searched = 0
                return line
            }
            self.fill()
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
