// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import Testing

@testable import HHSocketMessage

/// Packed numbers are read in one of two ways, which depends on the length of their range.
@Suite struct PackedNumbersTests {
    /// Numbers with encodings of 1, 2, 3, 5 and 10 bytes.
    private static let numbers: [Int32] = [1, 127, 128, 300, 0, 16_384, .max, -1, 5, .min, 20_000, 7]

    private static func varint(_ number: Int32) -> [UInt8] {
        var (rest, bytes) = (UInt64(bitPattern: Int64(number)), [UInt8]())
        while rest >= 0x80 {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        return bytes + [UInt8(rest)]
    }

    /// `int32s` of `Every_Thing_Repeated`, packed.
    private static func field(_ range: [UInt8]) -> [UInt8] {
        [0x1A] + varint(Int32(range.count)) + range
    }

    @Test func rangesOfAnyLengthAreRead() throws {
        for first in Self.numbers.indices {
            for count in 0...60 {
                let numbers = (0..<count).map { Self.numbers[(first + $0) % Self.numbers.count] }
                let field = Self.field(numbers.flatMap(Self.varint))
                #expect(try Every_Thing_Repeated(serializedBytes: field).int32S == numbers)
                // A second range is appended.
                #expect(try Every_Thing_Repeated(serializedBytes: field + field).int32S == numbers + numbers)
            }
        }
    }

    @Test func rangesThatEndWithinANumberAreMalformed() throws {
        for number in Self.numbers where !(0...127).contains(number) {
            for count in 0...40 {
                let whole = [UInt8](repeating: 1, count: count) + Self.varint(number)
                let cut = Self.field(whole.dropLast())
                // The next field's bytes do not complete the number.
                #expect(throws: MessageError.self) {
                    try Every_Thing_Repeated(serializedBytes: cut + [0x1A, 0x01, 0x01])
                }
            }
        }
    }

    @Test func encodingsThatAreTooLongAreMalformed() throws {
        let endless = [UInt8](repeating: 0xFF, count: 11)
        for count in 0...40 {
            let field = Self.field([UInt8](repeating: 1, count: count) + endless + [1])
            let position = field.count - endless.count - 1
            let expected = MessageError(.malformedVarint, in: Every_Thing_Repeated.protoMessageName, at: position)
            #expect(throws: expected) { try Every_Thing_Repeated(serializedBytes: field) }
        }
    }

    /// The least memory with which a message can be read.
    private static func leastMemory(_ bytes: [UInt8]) -> Int? {
        (0...10_000).first { memory in
            let limits = MessageLimits(memory: memory, memoryPerByte: 0)
            return (try? Every_Thing_Repeated(serializedBytes: bytes, limits: limits)) != nil
        }
    }

    @Test func rangesOfAnyLengthCountTowardsTheMemoryLimit() throws {
        let base = try #require(Self.leastMemory(Self.field([])))
        for count in [1, 8, 32, 33, 100] {
            let field = Self.field([UInt8](repeating: 1, count: count))
            #expect(Self.leastMemory(field) == base + count * MemoryLayout<Int32>.stride)
        }
    }
}
