// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import Testing

@testable import HHSocketMessage

private typealias Basket = GeneratedSamples.Extended_Basket
private typealias Picnic = GeneratedSamples.Extended_Picnic
private typealias TheirPicnic = ReferenceMessages.Extended_Picnic

/// Messages with `message_set_wire_format`, beside those of swift-protobuf.
@Suite struct MessageSetTests {
    /// An item with the extension `apple`, which has seven seeds.
    private let item: [UInt8] = [0x0B, 0x10, 0xF9, 0xBB, 0x5E, 0x1A, 0x02, 0x08, 0x07, 0x0C]

    @Test func extensionsAreWrittenAsItems() throws {
        var picnic = Picnic()
        picnic.basket.Extended_Apple_apple.seeds = 7
        let bytes = try picnic.serializedBytes()
        #expect(bytes == [0x0A, 10] + self.item)
        let theirs = try TheirPicnic(serializedBytes: bytes, extensions: ReferenceMessages.Extended_Extended_Extensions)
        #expect(theirs.basket.Extended_Apple_apple.seeds == 7 && theirs.basket.unknownFields.data.isEmpty)
        #expect(try theirs.serializedBytes() == bytes)
        #expect(try Picnic(serializedBytes: bytes) == picnic)
    }

    @Test(
        arguments: [
            // The message before its number.
            [0x0B, 0x1A, 0x02, 0x08, 0x07, 0x10, 0xF9, 0xBB, 0x5E, 0x0C],
            // What an item may not have, and a second message after both.
            [0x0B, 0x08, 0x01, 0x10, 0xF9, 0xBB, 0x5E, 0x1A, 0x02, 0x08, 0x07, 0x1A, 0x02, 0x08, 0x09, 0x0C],
            // As an extension of other messages.
            [0xCA, 0xDF, 0xF3, 0x05, 0x02, 0x08, 0x07],
        ] as [[UInt8]]
    ) func itemsOfOtherFormsAreRead(bytes: [UInt8]) throws {
        let basket = try Basket(serializedBytes: bytes)
        #expect(basket.Extended_Apple_apple.seeds == 7)
        #expect(try basket.serializedBytes() == self.item)
    }

    @Test func itemsOfUnknownExtensionsAreKept() throws {
        let unknown: [UInt8] = [0x0B, 0x10, 0x05, 0x1A, 0x03, 0x61, 0x62, 0x63, 0x0C]
        // A number that needs 30 bits, and a field that is no item.
        let large: [UInt8] = [0x0B, 0x10, 0x80, 0x80, 0x80, 0x80, 0x02, 0x1A, 0x00, 0x0C]
        let field: [UInt8] = [0x28, 0x01]
        let bytes = unknown + self.item + large + field
        #expect(try Basket(serializedBytes: bytes).serializedBytes() == bytes)
        // Without a number or a message there is nothing to keep.
        #expect(try Basket(serializedBytes: [0x0B, 0x10, 0x05, 0x0C, 0x0B, 0x0C] as [UInt8]).unknownFields.isEmpty)
    }

    @Test func brokenItemsAreErrors() {
        for count in 1..<self.item.count {
            #expect(throws: MessageError.self) { try Basket(serializedBytes: self.item.prefix(count)) }
        }
        #expect(throws: MessageError.self) {
            // Each item takes memory of its own.
            try Basket(serializedBytes: self.item, limits: MessageLimits(memory: 4, memoryPerByte: 0))
        }
        #expect(throws: MessageError.self) {
            try Basket(serializedBytes: self.item, limits: MessageLimits(depth: 1))
        }
    }
}
