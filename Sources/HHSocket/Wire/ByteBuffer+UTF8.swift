// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

extension ByteBuffer {
    /// Whether the readable bytes are UTF-8.
    package var isUTF8: Bool { self.withUnsafeReadableBytes { UTF8Validator.isValid($0) } }
}
