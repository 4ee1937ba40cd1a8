// SPDX-License-Identifier: Apache-2.0
/// A check of UTF-8 that arrives in pieces (RFC 3629; table 3-7 of the Unicode standard), which detects a fault at its
/// first byte.
///
/// The state is what the incomplete sequence still needs: the number of bytes, and the range of the next one.
package struct UTF8Validator: Hashable, Sendable {
    /// The number of bytes that the last sequence still needs.
    private var missing: UInt8 = 0
    /// The range of the next of them.
    private var low: UInt8 = 0x80
    private var high: UInt8 = 0xBF

    package init() {}

    /// Whether `bytes` are UTF-8.
    @inline(__always)
    package static func isValid(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let start = bytes.baseAddress else { return true }
        let end = start + bytes.count
        let rest = Self.endOfASCII(start, end)
        return rest == end || Self.isValidFromHere(UnsafeRawBufferPointer(start: rest, count: end - rest))
    }

    @inline(never)
    private static func isValidFromHere(_ bytes: UnsafeRawBufferPointer) -> Bool {
        var validator = UTF8Validator()
        return validator.append(bytes) && validator.isComplete
    }

    /// Whether no sequence is unfinished.
    package var isComplete: Bool { self.missing == 0 }

    /// Checks the next bytes. Returns false as soon as one cannot belong to UTF-8; the validator must not be used after
    /// that.
    package mutating func append(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard var next = bytes.baseAddress else { return true }
        let end = next + bytes.count
        guard self.finish(&next, end) else { return false }
        while next < end {
            let byte = next.load(as: UInt8.self)
            next += 1
            if byte < 0x80 {
                next = Self.endOfASCII(next, end)
            } else {
                guard self.begin(byte), self.finish(&next, end) else { return false }
            }
        }
        return true
    }

    /// Takes the rest of a sequence, as far as it has arrived.
    @inline(__always)
    private mutating func finish(_ next: inout UnsafeRawPointer, _ end: UnsafeRawPointer) -> Bool {
        while self.missing > 0, next < end {
            let byte = next.load(as: UInt8.self)
            guard self.low <= byte, byte <= self.high else { return false }
            self.missing -= 1
            (self.low, self.high) = (0x80, 0xBF)
            next += 1
        }
        return true
    }

    /// Begins a sequence of several bytes: overlong forms, surrogates and numbers beyond U+10FFFF show in the second.
    @inline(__always)
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

    /// The first byte that is not ASCII, found eight at a time.
    @inline(__always)
    private static func endOfASCII(_ start: UnsafeRawPointer, _ end: UnsafeRawPointer) -> UnsafeRawPointer {
        var next = start
        while end - next >= 8, next.loadUnaligned(as: UInt64.self) & 0x8080_8080_8080_8080 == 0 { next += 8 }
        while next < end, next.load(as: UInt8.self) < 0x80 { next += 1 }
        return next
    }
}
