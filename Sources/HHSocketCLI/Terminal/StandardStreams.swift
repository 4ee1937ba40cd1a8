// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSystem
import HHSocketTransfers
import NIOCore

/// Standard output without an additional buffer.
enum StandardOutput {
    /// The reason why the output could not be written.
    struct Failure: Error, Hashable, CustomStringConvertible {
        /// The system's error.
        var errno: CInt

        /// Whether the reader has gone, such as `head` after its lines: it wants no more, so this is not reported.
        var hasNoReader: Bool { self.errno == EPIPE }

        var description: String { "Cannot write to stdout: \(String(cString: strerror(self.errno)))" }
    }

    static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

    static func write(_ text: String) throws(Failure) {
        try self.write(ByteBuffer(string: text))
    }

    static func write(_ bytes: ByteBuffer) throws(Failure) {
        let error = bytes.withUnsafeReadableBytes { writeAll($0, to: STDOUT_FILENO) }
        if let error { throw Failure(errno: error) }
    }
}

/// Standard error, for people. A failure to write is ignored.
enum StandardError {
    static var isTerminal: Bool { isatty(STDERR_FILENO) == 1 }

    static func write(_ text: String) {
        _ = ByteBuffer(string: text).withUnsafeReadableBytes { writeAll($0, to: STDERR_FILENO) }
    }

    static func line(_ text: String) {
        self.write(text + "\n")
    }

    static func report(_ error: SocketError) { self.line("error: \(error.code): \(error.message.inOneLine)") }

    static func report(_ error: TransferError) { self.line("error: \(error.code): \(error.message.inOneLine)") }
}

/// The three standard streams as a whole.
enum StandardStreams {
    /// Opens `/dev/null` in place of each stream with which the process was started closed, since otherwise the next
    /// socket or file would get its number, and what is printed. Standard input cannot be read, nor standard output
    /// written: both are errors, as with a closed descriptor. What is written to standard error is lost.
    static func openClosed() {
        for (stream, mode) in [(STDIN_FILENO, O_WRONLY), (STDOUT_FILENO, O_RDONLY), (STDERR_FILENO, O_WRONLY)] {
            guard fcntl(stream, F_GETFD) == -1, errno == EBADF else { continue }
            let opened = open("/dev/null", mode)
            guard opened >= 0, opened != stream else { continue }
            dup2(opened, stream)
            close(opened)
        }
    }
}
