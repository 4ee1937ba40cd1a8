// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import Testing

@testable import HHSocketMessage

private typealias Animal = GeneratedSamples.Extended_Animal

/// Fields with the number of an extension that are not values of it: they stay unknown fields when the extension
/// changes, as with swift-protobuf.
@Suite struct ExtensionRemainderTests {
    private static let heart: [UInt8] = [0x33, 0x34]

    private func animal(_ bytes: [UInt8]) throws -> Animal { try Animal(serializedBytes: Self.heart + bytes) }

    @Test func fieldsOfAnotherWireTypeStay() throws {
        // age as a text, then as a number; the worn collar as a number; the nest as a delimited message.
        let text = MessageForge.tag(100, .lengthDelimited) + [0x01, 0x61]
        let number = MessageForge.tag(120, .varint) + [0x05]
        let nest = MessageForge.tag(109, .lengthDelimited) + [0x00]
        var animal = try self.animal(text + MessageForge.tag(100, .varint) + [0x07] + number + nest)
        #expect(animal.Extended_age == 7)
        animal.Extended_age = 8
        #expect(animal.unknownFields.data == Data(text + number + nest + MessageForge.tag(100, .varint) + [0x08]))
        animal.clearExtended_age()
        animal.Extended_Collar_worn.text = "red"
        #expect(animal.Extended_Collar_worn.text == "red")
        animal.clearExtended_Collar_worn()
        animal.Extended_nest.height = 1
        animal.clearExtended_nest()
        #expect(animal.unknownFields.data == Data(text + number + nest))
    }

    @Test func valuesThatCannotComePackedStay() throws {
        // names as a number; bites, which may be packed, as a fixed number and packed.
        let names = MessageForge.tag(108, .varint) + [0x01]
        let bites = MessageForge.tag(102, .fixed32) + [1, 0, 0, 0]
        var animal = try self.animal(names + bites + MessageForge.tag(102, .lengthDelimited) + [0x02, 0x02, 0x04])
        #expect(animal.Extended_bites == [1, 2])
        animal.Extended_bites = [3]
        animal.Extended_names = ["a"]
        #expect(animal.Extended_bites == [3] && animal.Extended_names == ["a"])
        animal.clearExtended_bites()
        animal.clearExtended_names()
        #expect(animal.unknownFields.data == Data(names + bites))
    }

    @Test func numbersThatAClosedEnumerationDoesNotDeclareStay() throws {
        // size: 3 is small, 5 is large.
        let unknown = MessageForge.tag(104, .varint) + [0x63]
        var animal = try self.animal(unknown + MessageForge.tag(104, .varint) + [0x05])
        #expect(animal.Extended_size == .large)
        animal.Extended_size = .small
        #expect(animal.unknownFields.data == Data(unknown + MessageForge.tag(104, .varint) + [0x03]))
        animal.clearExtended_size()
        #expect(animal.unknownFields.data == Data(unknown) && !animal.hasExtended_size)
        // Packed values have a tag each afterwards.
        let sizes = MessageForge.tag(106, .varint)
        animal = try self.animal(
            MessageForge.tag(106, .lengthDelimited) + [0x04, 0x63, 0x03, 0xE4, 0x00] + sizes + [5]
        )
        #expect(animal.Extended_packedSizes == [.small, .large])
        animal.Extended_packedSizes = [.large]
        let rest = sizes + [0x63] + sizes + [0xE4, 0x00]
        #expect(
            animal.unknownFields.data == Data(rest + MessageForge.tag(106, .lengthDelimited) + [0x01, 0x05])
        )
        animal.clearExtended_packedSizes()
        #expect(animal.unknownFields.data == Data(rest))
    }

    @Test func valueThatIsMalformedIsReplaced() throws {
        // sound, with invalid UTF-8, and truncated packed numbers.
        let sound = MessageForge.tag(101, .lengthDelimited) + [0x01, 0xFF]
        let sizes = MessageForge.tag(105, .lengthDelimited) + [0x02, 0x63, 0x80]
        var animal = try self.animal(sound + sizes)
        #expect(!animal.hasExtended_sound && animal.Extended_sizes.isEmpty)
        animal.Extended_sound = "miaow"
        animal.Extended_sizes = [.small]
        #expect(animal.Extended_sound == "miaow" && animal.Extended_sizes == [.small])
    }
}
