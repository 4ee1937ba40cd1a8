// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

private typealias Animal = GeneratedSamples.Extended_Animal
private typealias Collar = GeneratedSamples.Extended_Collar
private typealias TheirAnimal = ReferenceMessages.Extended_Animal

/// Extensions, whose values are among the unknown fields, compared with swift-protobuf.
@Suite struct ExtensionTests {
    private func heart() -> Animal {
        var animal = Animal()
        animal.heart = Animal.Heart()
        return animal
    }

    @Test func valuesOfEveryShapeAreReadBySwiftProtobuf() throws {
        var animal = self.heart()
        #expect(!animal.hasExtended_age && animal.Extended_age == 0)
        #expect(animal.Extended_sound == "none at all" && animal.Extended_size == .large)
        animal.Extended_age = -7
        animal.Extended_sound = "miaow"
        animal.Extended_bites = [1, -2, 3]
        animal.Extended_marks = [4, 5]
        animal.Extended_size = .small
        animal.Extended_sizes = [.small, .large]
        animal.Extended_packedSizes = [.large, .large]
        animal.Extended_print = Data([1, 2])
        animal.Extended_names = ["a", ""]
        animal.Extended_nest = GeneratedSamples.Extended_Nest()
        animal.Extended_nest.height = 1.5
        animal.Extended_egg = [GeneratedSamples.Extended_Egg(), GeneratedSamples.Extended_Egg()]
        animal.Extended_egg[1].weight = 2
        animal.Extended_mother = self.heart()
        animal.Extended_mother.name = "old"
        animal.Extended_mother.Extended_age = 9
        animal.Extended_Collar_worn = Collar()
        animal.Extended_Collar_worn.text = "red"
        animal.Extended_Collar_worn.Extended_price = 12
        animal.Extended_Collar_lost = [Collar()]
        #expect(animal.hasExtended_age && animal.Extended_age == -7)
        #expect(animal.Extended_egg[1].weight == 2 && animal.Extended_mother.Extended_age == 9)
        #expect(animal.Extended_packedSizes == [.large, .large] && animal.Extended_names == ["a", ""])

        let bytes = try animal.serializedBytes()
        let theirs = try TheirAnimal(serializedBytes: bytes, extensions: ReferenceMessages.Extended_Extended_Extensions)
        #expect(theirs.unknownFields.data.isEmpty)
        #expect(theirs.Extended_age == -7 && theirs.Extended_sound == "miaow" && theirs.Extended_size == .small)
        #expect(theirs.Extended_bites == [1, -2, 3] && theirs.Extended_marks == [4, 5])
        #expect(theirs.Extended_sizes == [.small, .large] && theirs.Extended_packedSizes == [.large, .large])
        #expect(theirs.Extended_print == Data([1, 2]) && theirs.Extended_names == ["a", ""])
        #expect(theirs.Extended_nest.height == 1.5 && theirs.Extended_egg.map(\.weight) == [0, 2])
        #expect(theirs.Extended_mother.name == "old" && theirs.Extended_mother.Extended_age == 9)
        #expect(theirs.Extended_Collar_worn.Extended_price == 12 && theirs.Extended_Collar_lost.count == 1)
        // Their bytes are read by us.
        let theirBytes: [UInt8] = try theirs.serializedBytes()
        let again = try Animal(serializedBytes: theirBytes)
        #expect(again.Extended_mother == animal.Extended_mother && again.Extended_egg == animal.Extended_egg)
        #expect(again.Extended_packedSizes == animal.Extended_packedSizes && again.Extended_nest.height == 1.5)

        animal.clearExtended_age()
        animal.Extended_bites = []
        animal.clearExtended_Collar_worn()
        #expect(!animal.hasExtended_age && animal.Extended_bites.isEmpty && !animal.hasExtended_Collar_worn)
        #expect(animal.Extended_sound == "miaow")
    }

    /// Fields in any order, several times, packed or not, with numbers that the enumeration does not declare.
    @Test func receivedValuesAreReadLikeBySwiftProtobuf() throws {
        let extensions = [
            Extended_Extensions_age, Extended_Extensions_sound, Extended_Extensions_bites, Extended_Extensions_marks,
            Extended_Extensions_size, Extended_Extensions_sizes, Extended_Extensions_packed_sizes,
            Extended_Extensions_print, Extended_Extensions_names, Extended_Extensions_Nest, Extended_Extensions_Egg,
            Collar.Extensions.worn, Collar.Extensions.lost,
        ]
        let base = Animal.messageDescriptor
        let extended = MessageDescriptor(base.name, oneofs: base.oneofs, base.fields + extensions.map(\.field))
        for seed in 0..<UInt64(scaled(300)) {
            var forge = Samples.forge(seed: seed)
            let bytes = forge.message(extended)
            let ours = try Animal(serializedBytes: bytes)
            let theirs = try TheirAnimal(
                serializedBytes: bytes,
                extensions: ReferenceMessages.Extended_Extended_Extensions
            )
            let context: Comment = "seed \(seed)"
            #expect(ours.Extended_age == theirs.Extended_age, context)
            #expect(ours.hasExtended_sound == theirs.hasExtended_sound, context)
            #expect(ours.Extended_sound == theirs.Extended_sound, context)
            #expect(ours.Extended_bites == theirs.Extended_bites, context)
            #expect(ours.Extended_marks == theirs.Extended_marks, context)
            #expect(ours.hasExtended_size == theirs.hasExtended_size, context)
            #expect(ours.Extended_size.rawValue == theirs.Extended_size.rawValue, context)
            #expect(ours.Extended_sizes.map(\.rawValue) == theirs.Extended_sizes.map(\.rawValue), context)
            #expect(ours.Extended_packedSizes.map(\.rawValue) == theirs.Extended_packedSizes.map(\.rawValue), context)
            #expect(ours.Extended_print == theirs.Extended_print, context)
            #expect(ours.Extended_names == theirs.Extended_names, context)
            #expect(ours.Extended_nest.height == theirs.Extended_nest.height, context)
            #expect(ours.Extended_egg.map(\.weight) == theirs.Extended_egg.map(\.weight), context)
            #expect(ours.Extended_Collar_worn.text == theirs.Extended_Collar_worn.text, context)
            #expect(ours.Extended_Collar_lost.map(\.text) == theirs.Extended_Collar_lost.map(\.text), context)
        }
    }

    @Test func extensionsHaveTheirFullNamesInJSON() throws {
        var animal = self.heart()
        animal.name = "Kim"
        animal.Extended_age = 3
        animal.Extended_packedSizes = [.large]
        animal.Extended_Collar_worn.text = "red"
        animal.Extended_Collar_worn.Extended_price = 12
        var options = MessageJSON.EncodingOptions()
        #expect(try animal.jsonString() == #"{"name":"Kim","heart":{}}"#)
        let extensions = [
            Extended_Extensions_age, Extended_Extensions_packed_sizes, Collar.Extensions.worn,
            GeneratedSamples.Extended_Extensions_price,
        ]
        options.types = MessageTypes(extensions: extensions)
        let text = try animal.jsonString(options: options)
        #expect(
            text == #"{"name":"Kim","heart":{},"[extended.age]":3,"[extended.packed_sizes]":["LARGE"],"#
                + #""[extended.Collar.worn]":{"text":"red","[extended.price]":"12"}}"#
        )
        let theirs = try TheirAnimal(
            jsonString: text,
            extensions: ReferenceMessages.Extended_Extended_Extensions
        )
        #expect(theirs.Extended_Collar_worn.Extended_price == 12)
        var reading = MessageJSON.DecodingOptions()
        #expect(throws: MessageJSONError.self) { try Animal(jsonString: text, options: reading) }
        reading.types = options.types
        #expect(try Animal(jsonString: text, options: reading) == animal)
        #expect(throws: MessageJSONError.self) {
            try Animal(jsonString: #"{"heart":{},"[extended.age]":"x"}"#, options: reading)
        }
    }

    @Test func unreadableValueIsAbsent() throws {
        // age as a text; sound with invalid UTF-8; the collar with a truncated text; the size with an undeclared
        // number.
        let bytes: [UInt8] =
            [0x33, 0x34] + [0xA2, 0x06, 0x01, 0x61] + [0xAA, 0x06, 0x01, 0xFF] + [0xC2, 0x07, 0x02, 0x0A, 0x05]
            + [0xC0, 0x06, 0x63]
        let animal = try Animal(serializedBytes: bytes)
        #expect(!animal.hasExtended_age && !animal.hasExtended_sound)
        #expect(!animal.hasExtended_Collar_worn && !animal.hasExtended_size)
        #expect(animal.Extended_sound == "none at all")
        // All of it is sent on.
        #expect(try animal.serializedBytes() == bytes)
    }
}

/// Malformed groups.
@Suite struct GroupTests {
    private func expect(_ reason: MessageError.Reason, at offset: Int?, from bytes: [UInt8]) {
        let error = #expect(throws: MessageError.self) { try Animal(serializedBytes: bytes) }
        #expect(error?.reason == reason)
        #expect(error?.offset == offset)
        for engine in Engine.allCases {
            let other = #expect(throws: MessageError.self) { try engine.message(bytes, Animal.messageDescriptor) }
            #expect(other?.reason == reason)
            #expect(other?.offset == offset)
        }
    }

    @Test func groupsThatDoNotEndAreRefused() {
        // heart is 6, a leg 2 with a claw 2 in it, the tail 5 with a flea 2, which has a length.
        self.expect(.truncated, at: 1, from: [0x33])
        self.expect(.truncated, at: 3, from: [0x33, 0x34, 0x13])
        self.expect(.illegalTag, at: 1, from: [0x13, 0x34])
        self.expect(.illegalTag, at: 2, from: [0x33, 0x34, 0x34])
        // The end tag of the tail within the flea is invalid.
        self.expect(.illegalTag, at: 3, from: [0x2B, 0x12, 0x01, 0x2C])
        // The claw ends, and the leg does not.
        self.expect(.truncated, at: 3, from: [0x13, 0x13, 0x14])
    }

    @Test func depthIsBounded() throws {
        // Tails with fleas in them: two levels each.
        func nested(_ count: Int) -> [UInt8] {
            (0..<count).reduce([0x33, 0x34]) { inner, _ in
                [0x33, 0x34, 0x2B, 0x12] + MessageForge.delimited(inner) + [0x2C]
            }
        }
        let deep = try Animal(serializedBytes: nested(49))
        #expect(try Animal(serializedBytes: deep.serializedBytes()) == deep)
        self.expect(.tooDeep(limit: 100), at: nil, from: nested(50))
    }

    @Test func groupThatComesTwiceIsMerged() throws {
        let bytes: [UInt8] = [0x33, 0x34, 0x2B, 0x0A, 0x01, 0x02, 0x2C, 0x2B, 0x0A, 0x01, 0x04, 0x2C]
        #expect(try Animal(serializedBytes: bytes).tail.rings == [1, 2])
    }
}
