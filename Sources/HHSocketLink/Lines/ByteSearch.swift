// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem

extension UnsafeRawBufferPointer {
    /// Returns the offset of the first such byte at or behind `start`, found by the system's fastest search.
    package func firstIndex(of byte: UInt8, from start: Int) -> Int? {
        guard let base = self.baseAddress, start < self.count,
            let found = memchr(base + start, CInt(byte), self.count - start)
        else { return nil }
        return UnsafeRawPointer(found) - base
    }
}
