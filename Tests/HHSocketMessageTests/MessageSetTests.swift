// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

private typealias Picnic = GeneratedSamples.Extended_Picnic
private typealias TheirPicnic = ReferenceMessages.Extended_Picnic
private typealias Items = GeneratedSamples.Sets_Items
private typealias Text = GeneratedSamples.Sets_Text
private typealias Number = GeneratedSamples.Sets_Number

/// Messages with the option `message_set_wire_format`.
@Suite struct MessageSetTests {
    /// 1547769, the number of the text.
    private static let textType: [UInt8] = [0x10] + MessageForge.varint(1_547_769)

    private static func item(_ fields: [UInt8]...) -> [UInt8] { [0x0B] + fields.flatMap(\.self) + [0x0C] }
    private static func content(_ bytes: [UInt8]) -> [UInt8] { [0x1A] + MessageForge.delimited(bytes) }
    /// A text with a value.
    private static func text(_ value: String) -> [UInt8] { [0x0A] + MessageForge.delimited(Array(value.utf8)) }

    @Test func itemIsAGroupWithANumberAndAMessage() throws {
        var items = Items()
        #expect(!items.hasSets_Text_text && !items.hasSets_number)
        items.Sets_Text_text.value = "a"
        #expect(try items.serializedBytes() == Self.item(Self.textType, Self.content(Self.text("a"))))
        // A number that does not fit into a tag.
        items.Sets_number.value = 7
        let number: [UInt8] = [0x10] + MessageForge.varint(2_000_000_000)
        let both =
            Self.item(Self.textType, Self.content(Self.text("a"))) + Self.item(number, Self.content([0x08, 0x07]))
        #expect(try items.serializedBytes() == both)
        #expect(try Items(serializedBytes: both) == items)
        items.Sets_Text_text.value = "b"
        #expect(items.Sets_Text_text.value == "b" && items.Sets_number.value == 7)
        items.clearSets_number()
        #expect(!items.hasSets_number)
        items.clearSets_Text_text()
        #expect(items == Items())
    }

    @Test func swiftProtobufReadsAndWritesTheSameItems() throws {
        var picnic = Picnic()
        picnic.basket.Extended_Apple_apple.seeds = 7
        let bytes = try picnic.serializedBytes()
        let theirs = try TheirPicnic(serializedBytes: bytes, extensions: ReferenceMessages.Extended_Extended_Extensions)
        #expect(theirs.basket.Extended_Apple_apple.seeds == 7 && theirs.basket.unknownFields.data.isEmpty)
        #expect(try theirs.serializedBytes() == bytes)
    }

    @Test func brokenItemsAreErrors() {
        let item = Self.item(Self.textType, Self.content(Self.text("a")))
        for count in 1..<item.count {
            #expect(throws: MessageError.self) { try Items(serializedBytes: item.prefix(count)) }
        }
        #expect(throws: MessageError.self) {
            // Kept items take memory.
            try Items(serializedBytes: item, limits: MessageLimits(memory: 4, memoryPerByte: 0))
        }
        #expect(throws: MessageError.self) { try Items(serializedBytes: item, limits: MessageLimits(depth: 1)) }
    }

    @Test func partsOfAnItemComeInEitherOrderAndTheFirstOfEachCounts() throws {
        let (a, b) = (Self.content(Self.text("a")), Self.content(Self.text("b")))
        let other: [UInt8] = [0x10, 0x05]
        let unknown: [UInt8] = [0x20, 0x01, 0x2B, 0x1A, 0x00, 0x2C]
        let forms = [
            Self.item(Self.textType, a), Self.item(a, Self.textType), Self.item(Self.textType, a, other),
            Self.item(Self.textType, a, b), Self.item(a, Self.textType, b), Self.item(unknown, a, Self.textType),
        ]
        for bytes in forms {
            var items = try Items(serializedBytes: bytes)
            #expect(items.Sets_Text_text.value == "a")
            // The item is sent on as received, and replaced as a whole.
            #expect(try items.serializedBytes() == bytes)
            items.Sets_Text_text = Text()
            #expect(try items.serializedBytes() == Self.item(Self.textType, Self.content([])))
        }
        for bytes in [Self.item(Self.textType), Self.item(a), Self.item(other, a), Self.item()] {
            var items = try Items(serializedBytes: bytes)
            #expect(!items.hasSets_Text_text)
            items.clearSets_Text_text()
            #expect(try items.serializedBytes() == bytes)
        }
    }

    @Test func itemsOfOneNumberAreMergedWithThoseOfSendersThatDoNotKnowTheOption() throws {
        let plain = MessageForge.tag(1_547_769, .lengthDelimited)
        let note: [UInt8] = [0x12, 0x01, 0x6E]
        let bytes =
            Self.item(Self.textType, Self.content(Self.text("a"))) + plain + MessageForge.delimited(note) + [
                0x28, 0x01,
            ]
            + Self.item(Self.textType, Self.content(Self.text("c")))
        var items = try Items(serializedBytes: bytes)
        #expect(items.Sets_Text_text.value == "c" && items.Sets_Text_text.note == "n")
        items.clearSets_Text_text()
        #expect(items.unknownFields.data == Data([0x28, 0x01]))
    }

    @Test func setsLieWithinEachOther() throws {
        var items = Items()
        items.Sets_number.value = 1
        items.Sets_number.inner.Sets_number.value = 2
        items.Sets_number.inner.Sets_Text_text.value = "x"
        let same = try Items(serializedBytes: items.serializedBytes())
        #expect(same == items && same.Sets_number.inner.Sets_Text_text.value == "x")
        // A deeply nested message is within the bytes of the others, which do not count as levels.
        let deep = (0..<200).reduce(items) { inner, _ in
            var outer = Items()
            outer.Sets_number.value = 3
            outer.Sets_number.inner = inner
            return outer
        }
        let read = try Items(serializedBytes: deep.serializedBytes())
        #expect((0..<200).reduce(read) { outer, _ in outer.Sets_number.inner } == items)
    }

    @Test func tooDeepMessageIsAbsent() {
        var items = Items()
        var text = Text()
        text.value = "x"
        items.Sets_Text_text = text
        var deep = Number()
        deep.value = 1
        // Unknown groups were read with wider limits.
        deep.unknownFields.bytes = Array(repeatElement([0x23], count: 150).joined())
        deep.unknownFields.bytes += repeatElement(0x24, count: 150)
        items.Sets_number = deep
        #expect(!items.hasSets_number && items.Sets_Text_text.value == "x")
    }

    @Test func malformedMessageIsAbsentUnlessExtensionsAreChecked() throws {
        let extensions = [Text.Extensions.text, Sets_Extensions_number]
        let notUTF8 = Self.item(Self.textType, Self.content([0x0A, 0x01, 0xFF]))
        let items = try Items(serializedBytes: notUTF8)
        #expect(!items.hasSets_Text_text)
        #expect(try items.serializedBytes() == notUTF8)
        let error = #expect(throws: MessageError.self) { try Items(serializedBytes: notUTF8, extensions: extensions) }
        #expect(error?.reason == .invalidUTF8(field: "value") && error?.message == "sets.Text")
        // An item with another number within the text is of another message.
        let number = Self.item([0x10] + MessageForge.varint(2_000_000_000), Self.content([]))
        let missing = #expect(throws: MessageError.self) { try Items(serializedBytes: number, extensions: extensions) }
        #expect(missing?.reason == .missingRequiredField(field: "value"))
        #expect(try Items(serializedBytes: number, extensions: [Text.Extensions.text]).serializedBytes() == number)
        // The group itself is read in any case.
        #expect(throws: MessageError.self) { try Items(serializedBytes: Array(notUTF8.dropLast())) }
    }

    @Test func itemsHaveTheNamesOfTheirMessagesInJSON() throws {
        var items = Items()
        items.Sets_Text_text.value = "a"
        items.Sets_number.value = 7
        items.Sets_number.inner.Sets_Text_text.note = "n"
        var options = MessageJSON.EncodingOptions()
        options.types = MessageTypes(extensions: [Sets_Extensions_number, Text.Extensions.text])
        let text = try items.jsonString(options: options)
        #expect(
            text == #"{"[sets.Text]":{"value":"a"},"[sets.number]":{"value":7,"inner":{"[sets.Text]":{"note":"n"}}}}"#
        )
        var reading = MessageJSON.DecodingOptions()
        reading.types = options.types
        #expect(try Items(jsonString: text, options: reading) == items)
        #expect(try Items(jsonString: #"{"[sets.Text]":null}"#, options: reading) == Items())
        #expect(throws: MessageJSONError.self) { try Items(jsonString: #"{"[sets.number]":{}}"#, options: reading) }
    }

    @Test func anyBytesAreReadAndReplaced() throws {
        var random = SeededGenerator(seed: 20_261_128)
        for _ in 0..<scaled(3_000) {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                let part = [Self.textType, [0x0B], [0x0C], [0x1A, 0x02, 0x0A, 0x00], [0x10, 0x05]].randomElement(
                    using: &random
                )
                bytes += (part ?? []) + (Bool.random(using: &random) ? [] : random.bytes(1))
            }
            guard var items = try? Items(serializedBytes: bytes) else { continue }
            items.Sets_Text_text.value += "x"
            #expect(items.Sets_Text_text.value.hasSuffix("x"))
            items.Sets_number.value = 1
            #expect(try Items(serializedBytes: items.serializedBytes()) == items)
            items.clearSets_Text_text()
            #expect(!items.hasSets_Text_text && items.Sets_number.value == 1)
        }
    }
}
