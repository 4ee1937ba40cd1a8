// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import Testing

@testable import HHSocketMessage

private typealias Animal = GeneratedSamples.Extended_Animal
private typealias Collar = GeneratedSamples.Extended_Collar

/// Malformed extensions, for callers that name them.
@Suite struct ExtensionCheckTests {
    private static let extensions = [
        Extended_Extensions_age, Extended_Extensions_sound, Extended_Extensions_mother, Collar.Extensions.worn,
    ]
    /// An animal with an age, and a sound that is not UTF-8.
    private static let malformed: [UInt8] =
        [0x33, 0x34] + MessageForge.tag(101, .lengthDelimited) + [0x01, 0xFF] + MessageForge.tag(100, .varint) + [0x07]

    @Test func malformedExtensionIsAnErrorInJSONAndTheOthersAreNotLost() throws {
        let animal = try Animal(serializedBytes: Self.malformed)
        #expect(!animal.hasExtended_sound && animal.Extended_age == 7)
        var options = MessageJSON.EncodingOptions()
        options.types = MessageTypes(extensions: Self.extensions)
        let error = #expect(throws: MessageJSONError.self) { try animal.jsonString(options: options) }
        #expect(
            error.map { "\($0)" } == #"$["[extended.sound]"]: the value of the extension cannot be read: "#
                + "extended.Animal: the string extended.sound is not UTF-8"
        )
        // With the command line's writer.
        var writer = MessageJSONWriter(options)
        let message = try DynamicMessage(Animal.messageDescriptor, serializedBytes: Self.malformed)
        #expect(writer.json(message).text(isIndented: false) == #"{"heart":{},"[extended.age]":7}"#)
        #expect(writer.faults.count == 1)
        // Callers that did not name the extension are not affected.
        options.types = MessageTypes(extensions: [Extended_Extensions_age])
        #expect(try animal.jsonString(options: options) == #"{"heart":{},"[extended.age]":7}"#)
    }

    @Test func extensionsAreCheckedWhereTheyAreNamed() throws {
        let sound = [Extended_Extensions_age, Extended_Extensions_sound]
        #expect(throws: MessageError.self) { try Animal(serializedBytes: Self.malformed, extensions: sound) }
        let same = try Animal(serializedBytes: Self.malformed, extensions: [Extended_Extensions_age])
        #expect(try same.serializedBytes() == Self.malformed)
        // Within other messages: a flea whose mother is without a heart.
        var animal = Animal()
        animal.heart = Animal.Heart()
        animal.tail.flea.heart = Animal.Heart()
        #expect(try Animal(serializedBytes: animal.serializedBytes(), extensions: Self.extensions) == animal)
        animal.tail.flea.Extended_mother = Animal()
        let bytes = try animal.serializedBytes()
        #expect(try Animal(serializedBytes: bytes) == animal)
        let error = #expect(throws: MessageError.self) {
            try Animal(serializedBytes: bytes, extensions: Self.extensions)
        }
        #expect(error?.reason == .missingRequiredField(field: "heart"))
        // And within other extensions.
        var mother = Animal()
        mother.heart = Animal.Heart()
        mother.unknownFields.bytes = Array(Self.malformed.dropFirst(2))
        animal.tail.flea.Extended_mother = mother
        #expect(throws: MessageError.self) {
            try Animal(serializedBytes: animal.serializedBytes(), extensions: Self.extensions)
        }
    }

    @Test func extensionsWithinExtensionsAreBounded() throws {
        // Each mother lies within the bytes of the next animal, where the decoder counts no levels.
        func animal(_ depth: Int) -> [UInt8] {
            (0..<depth).reduce([0x33, 0x34]) { inner, _ in
                [0x33, 0x34] + MessageForge.tag(111, .lengthDelimited) + MessageForge.delimited(inner)
            }
        }
        var options = MessageJSON.EncodingOptions()
        options.types = MessageTypes(extensions: Self.extensions)
        let shallow = try Animal(serializedBytes: animal(90), extensions: Self.extensions)
        #expect(try shallow.jsonString(options: options).hasSuffix(String(repeating: "}", count: 91)))
        let deep = animal(4_000)
        let message = try Animal(serializedBytes: deep)
        #expect(message.hasExtended_mother)
        let error = #expect(throws: MessageError.self) {
            try Animal(serializedBytes: deep, extensions: Self.extensions)
        }
        #expect(error?.reason == .tooDeep(limit: 100))
        #expect(throws: MessageJSONError.self) { try message.jsonString(options: options) }
    }
}
