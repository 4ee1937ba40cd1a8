// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

extension ByteBuffer {
    /// Whether the readable bytes are UTF-8.
    package var isUTF8: Bool { self.withUnsafeReadableBytes { UTF8Validator.isValid($0) } }

    /// The text that the readable bytes are; nil if they are not UTF-8.
    package var utf8Text: String? { self.isUTF8 ? String(buffer: self) : nil }
}
