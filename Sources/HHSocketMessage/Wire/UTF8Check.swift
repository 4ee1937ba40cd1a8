// SPDX-License-Identifier: Apache-2.0
/// Checks whether bytes are UTF-8, by table 3-7 of the Unicode standard.
enum UTF8Check {
    @inline(__always)
    static func isValid(_ start: UnsafePointer<UInt8>, _ end: UnsafePointer<UInt8>) -> Bool {
        var next = start
        while end - next >= 8 {
            let word = UnsafeRawPointer(next).loadUnaligned(as: UInt64.self)
            guard word & 0x8080_8080_8080_8080 == 0 else { return Self.isValidFromHere(next, end) }
            next += 8
        }
        while next < end {
            guard next.pointee < 0x80 else { return Self.isValidFromHere(next, end) }
            next += 1
        }
        return true
    }

    private static func isValidFromHere(_ start: UnsafePointer<UInt8>, _ end: UnsafePointer<UInt8>) -> Bool {
        var next = start
        while next < end {
            let first = next.pointee
            next += 1
            if first < 0x80 { continue }
            // The range of the second byte, and the number of bytes after it.
            let second: ClosedRange<UInt8>
            let more: Int
            switch first {
            case 0xC2...0xDF: (second, more) = (0x80...0xBF, 0)
            case 0xE0: (second, more) = (0xA0...0xBF, 1)
            case 0xE1...0xEC, 0xEE...0xEF: (second, more) = (0x80...0xBF, 1)
            case 0xED: (second, more) = (0x80...0x9F, 1)
            case 0xF0: (second, more) = (0x90...0xBF, 2)
            case 0xF1...0xF3: (second, more) = (0x80...0xBF, 2)
            case 0xF4: (second, more) = (0x80...0x8F, 2)
            default: return false
            }
            guard end - next > more, second.contains(next.pointee) else { return false }
            next += 1
            for _ in 0..<more {
                guard next.pointee & 0xC0 == 0x80 else { return false }
                next += 1
            }
        }
        return true
    }
}
