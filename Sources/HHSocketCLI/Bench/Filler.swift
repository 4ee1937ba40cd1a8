// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A generator of bytes that do not repeat soon, and are the same in every run (xorshift32).
struct Filler {
    private var state: UInt32

    /// - Parameter seed: Any number but zero.
    init(seed: UInt32) {
        self.state = seed
    }

    /// Returns a buffer of the next `length` bytes.
    mutating func bytes(_ length: Int) -> ByteBuffer {
        var state = self.state
        var buffer = ByteBuffer()
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: length) { bytes in
            for index in 0..<length {
                state ^= state << 13
                state ^= state >> 17
                state ^= state << 5
                bytes[index] = UInt8(truncatingIfNeeded: state)
            }
            return length
        }
        self.state = state
        return buffer
    }
}
