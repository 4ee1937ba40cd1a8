// SPDX-License-Identifier: Apache-2.0
/// Checks UTF-8 that arrives in pieces (RFC 3629), and detects a fault at its first byte.
///
/// The state is what the incomplete sequence still needs: the number of bytes, and the range of the next one.
package struct UTF8Validator: Hashable, Sendable {
    /// The number of bytes that the last sequence still needs.
    private var missing: UInt8 = 0
    /// The range of the next of them.
    private var low: UInt8 = 0x80
    private var high: UInt8 = 0xBF

    package init() {}

    /// Whether no sequence is unfinished.
    package var isComplete: Bool { self.missing == 0 }

    /// Checks the next bytes. Returns false as soon as one cannot belong to UTF-8; the validator must not be used after
    /// that.
    package mutating func append(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var index = 0
        while index < bytes.count {
            if self.missing == 0 {
                index = Self.endOfASCII(bytes, from: index)
                guard index < bytes.count else { return true }
                guard self.begin(bytes[index]) else { return false }
            } else {
                guard (self.low...self.high).contains(bytes[index]) else { return false }
                self.missing -= 1
                (self.low, self.high) = (0x80, 0xBF)
            }
            index += 1
        }
        return true
    }

    /// Begins a sequence of several bytes: overlong forms, surrogates and numbers beyond U+10FFFF show in the second.
    private mutating func begin(_ byte: UInt8) -> Bool {
        switch byte {
        case 0xC2...0xDF: self.missing = 1
        case 0xE0: (self.missing, self.low) = (2, 0xA0)
        case 0xED: (self.missing, self.high) = (2, 0x9F)
        case 0xE1...0xEF: self.missing = 2
        case 0xF0: (self.missing, self.low) = (3, 0x90)
        case 0xF1...0xF3: self.missing = 3
        case 0xF4: (self.missing, self.high) = (3, 0x8F)
        default: return false
        }
        return true
    }

    /// The index of the first byte from `start` on that is not ASCII, found eight at a time.
    private static func endOfASCII(_ bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
        var index = start
        while bytes.count - index >= 8 {
            let word = bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            guard word & 0x8080_8080_8080_8080 == 0 else { break }
            index += 8
        }
        while index < bytes.count, bytes[index] < 0x80 { index += 1 }
        return index
    }
}
