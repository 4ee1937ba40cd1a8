// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketMessage

private typealias Animal = GeneratedSamples.Extended_Animal
private typealias Collar = GeneratedSamples.Extended_Collar

/// The limits on untrusted bytes in the values of extensions, which must not destroy other fields.
@Suite struct ExtensionBoundsTests {
    private static let heart: [UInt8] = [0x33, 0x34]

    private func storage(_ bytes: [UInt8]) -> UnknownStorage {
        var storage = UnknownStorage()
        storage.bytes = bytes
        return storage
    }

    @Test func memoryOfAllOccurrencesIsBoundedTogether() throws {
        // Empty messages of a few bytes each, which take far more than eight times that in an array.
        let type = GeneratedSamples.Every_Thing2_Choices.self
        let stride = MemoryLayout<GeneratedSamples.Every_Thing2_Choices>.stride
        try #require(stride > 24)
        let count = (64 << 20) / (stride - 24)
        let field = MessageForge.tag(100, .lengthDelimited) + [0]
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count * field.count)
        for _ in 0..<count { bytes += field }
        #expect(self.storage(bytes).messages(100, type).isEmpty)
        #expect(self.storage(Array(bytes.prefix(30))).messages(100, type).count == 10)
    }

    @Test func messageThatComesOftenIsMergedWithoutACopy() throws {
        // Each adds a leg to the mother. A copy for each would take quadratic time.
        let piece = MessageForge.tag(111, .lengthDelimited) + MessageForge.delimited([0x13, 0x08, 0x01, 0x14])
        let growth = try WorkGrowth(16_000) { count in
            let storage = self.storage(Array(repeatElement(piece, count: count).joined()))
            return { #expect(storage.message(111, Animal.self)?.leg.count == count) }
        }
        #expect(growth.isLinear, "\(growth)")
    }

    @Test func groupsBeyondTheStandardDepthAreNotLost() throws {
        // Decoded within wider limits; the group is unknown, and before the extension.
        let depth = 150
        let start = MessageForge.tag(99, .startGroup)
        let end = MessageForge.tag(99, .endGroup)
        let group =
            Array(repeatElement(start, count: depth).joined()) + Array(repeatElement(end, count: depth).joined())
        let age = MessageForge.tag(100, .varint) + [0x07]
        var animal = try Animal(serializedBytes: Self.heart + group + age, limits: MessageLimits(depth: 200))
        #expect(animal.Extended_age == 7)
        animal.Extended_age = 8
        #expect(animal.Extended_age == 8)
        animal.clearExtended_age()
        #expect(animal.unknownFields.data == Data(group))
    }

    @Test func tooDeepValueIsAbsent() throws {
        var deep = Animal()
        deep.heart = Animal.Heart()
        for _ in 0..<60 {
            var outer = Animal()
            outer.heart = Animal.Heart()
            outer.tail.flea = deep
            deep = outer
        }
        var animal = Animal()
        animal.heart = Animal.Heart()
        animal.Extended_mother.name = "shallow"
        animal.Extended_age = 3
        // A part of it must not be kept either.
        animal.Extended_mother = deep
        #expect(!animal.hasExtended_mother)
        #expect(animal.Extended_age == 3)
        #expect(try animal.serializedBytes() == Self.heart + MessageForge.tag(100, .varint) + [0x03])
    }

    @Test func malformedPartMakesTheWholeValueNone() throws {
        // names: a text, invalid UTF-8, and another text.
        let names = MessageForge.tag(108, .lengthDelimited)
        let bytes = names + [0x01, 0x61] + names + [0x01, 0xFF] + names + [0x01, 0x62]
        let animal = try Animal(serializedBytes: Self.heart + bytes + MessageForge.tag(100, .varint) + [0x07])
        #expect(animal.Extended_names.isEmpty)
        #expect(animal.Extended_age == 7)
        // marks: eight bytes and three.
        let marks = MessageForge.tag(103, .lengthDelimited) + MessageForge.delimited([UInt8](repeating: 1, count: 11))
        #expect(try Animal(serializedBytes: Self.heart + marks).Extended_marks.isEmpty)
        // A complete collar, and one with a truncated text.
        let worn = MessageForge.tag(120, .lengthDelimited)
        let collars = worn + [0x03, 0x0A, 0x01, 0x61] + worn + [0x02, 0x0A, 0x05]
        #expect(try !Animal(serializedBytes: Self.heart + collars).hasExtended_Collar_worn)
    }

    @Test func anyBytesAreReadAndReplaced() throws {
        var random = SeededGenerator(seed: 20_261_127)
        for _ in 0..<scaled(3_000) {
            // The numbers of the extensions with any wire type, and any bytes.
            var bytes = Self.heart
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let tag = UInt32.random(in: 99...122, using: &random) << 3 | UInt32.random(in: 0...5, using: &random)
                bytes += MessageForge.varint(UInt64(tag))
                bytes += random.bytes(Int.random(in: 0...6, using: &random)).map { $0 & 0x3F }
            }
            guard var animal = try? Animal(serializedBytes: bytes) else { continue }
            let lost = animal.Extended_Collar_lost
            animal.Extended_Collar_lost = lost
            #expect(animal.Extended_Collar_lost == lost)
            animal.Extended_egg = animal.Extended_egg
            animal.Extended_sizes = animal.Extended_sizes
            animal.Extended_bites.append(1)
            #expect(animal.Extended_bites.last == 1)
            animal.Extended_nest.height = 2
            #expect(animal.Extended_nest.height == 2)
            animal.Extended_size = .small
            animal.Extended_print.append(1)
            animal.Extended_mother.name = "x"
            #expect(animal.Extended_mother.name == "x" && animal.Extended_size == .small)
            #expect(try Animal(serializedBytes: animal.serializedBytes()) == animal)
        }
    }
}
