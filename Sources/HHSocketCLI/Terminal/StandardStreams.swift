// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Standard output without an additional buffer.
enum StandardOutput {
    /// The output has lost its reader (EPIPE), or failed in another way.
    struct Closed: Error {}

    static var isTerminal: Bool { isatty(STDOUT_FILENO) == 1 }

    static func write(_ text: String) throws(Closed) {
        try self.write(ByteBuffer(string: text))
    }

    static func write(_ bytes: ByteBuffer) throws(Closed) {
        let error = bytes.withUnsafeReadableBytes { writeAll($0, to: STDOUT_FILENO) }
        if error != nil { throw Closed() }
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
}
