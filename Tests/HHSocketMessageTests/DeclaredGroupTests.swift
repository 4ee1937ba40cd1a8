// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import TestSupport
import Testing

@testable import HHSocketMessage

/// Messages between two tags: merged, bounded, and rejected if they do not end.
@Suite struct DeclaredGroupTests {
    /// A message with the only required field: an empty group, `must = 3`.
    private static let must: [UInt8] = [0x1B, 0x1C]

    private func expect(_ reason: MessageError.Reason, at offset: Int? = nil, in name: String, from bytes: [UInt8]) {
        #expect(throws: MessageError(reason, in: name, at: offset)) {
            try Every_Groups_Groups(serializedBytes: bytes)
        }
    }

    @Test func groupIsBetweenTwoTags() throws {
        var groups = Every_Groups_Groups()
        groups.single.number = 5
        groups.must = Every_Groups_Groups.Must()
        groups.many = [.init(), .init()]
        groups.many[0].must = 1
        groups.many[1].must = 2
        groups.chosen.number = 7
        groups.last = 9
        let bytes = try groups.serializedBytes()
        #expect(
            bytes == [0x0B, 0x08, 0x05, 0x0C, 0x13, 0x08, 0x01, 0x14, 0x13, 0x08, 0x02, 0x14] + Self.must
                + [0x23, 0x15, 0x07, 0, 0, 0, 0x24, 0xC8, 0x3E, 0x09]
        )
        #expect(try Every_Groups_Groups(serializedBytes: bytes) == groups)
    }

    @Test func groupThatComesAgainIsMerged() throws {
        let first: [UInt8] = [0x0B, 0x08, 0x05, 0x18, 0x02, 0x0C]
        let second: [UInt8] = [0x0B, 0x12, 0x01, 0x61, 0x18, 0x04, 0x0C]
        let groups = try Every_Groups_Groups(serializedBytes: first + Self.must + second)
        #expect(groups.single.number == 5)
        #expect(groups.single.text == "a")
        #expect(groups.single.numbers == [1, 2])
        // A group in a oneof is merged too, unless another of its fields was in between.
        let chosen: [UInt8] = [0x23, 0x0A, 0x01, 0x61, 0x24]
        let number: [UInt8] = [0x23, 0x15, 0x07, 0, 0, 0, 0x24]
        let merged = try Every_Groups_Groups(serializedBytes: Self.must + chosen + number)
        #expect(merged.chosen.text == "a" && merged.chosen.number == 7)
        let replaced = try Every_Groups_Groups(serializedBytes: Self.must + chosen + [0x2A, 0x00] + number)
        #expect(replaced.chosen.text.isEmpty && replaced.chosen.number == 7)
    }

    @Test func groupWithinAGroupEndsByItself() throws {
        // Single = 1 with Inner = 1001, which has an unknown group with the number 1, and names = 2.
        let inner: [UInt8] = [0xCB, 0x3E, 0x0B, 0x0C, 0x12, 0x05, 0x08, 0x03, 0x12, 0x01, 0x62, 0xCC, 0x3E]
        let groups = try Every_Groups_Groups(serializedBytes: [0x0B] + inner + [0x08, 0x04, 0x0C] + Self.must)
        #expect(groups.single.number == 4)
        #expect(groups.single.inner.names == [3: "b"])
        #expect(groups.single.inner.hasGroups == false)
    }

    @Test func groupOfAnotherWireTypeIsUnknown() throws {
        // A length-delimited field in place of the group; and a group in place of the number `last`.
        for field: [UInt8] in [[0x0A, 0x02, 0x08, 0x05], [0xCB, 0x3E, 0x08, 0x05, 0xCC, 0x3E]] {
            let groups = try Every_Groups_Groups(serializedBytes: field + Self.must)
            #expect(!groups.hasSingle && !groups.hasLast)
            #expect(groups.unknownFields.data == Data(field))
            #expect(try groups.serializedBytes() == Self.must + field)
        }
    }

    @Test func groupsThatDoNotEndAreRefused() {
        let (name, single) = ("every.groups.Groups", "every.groups.Groups.Single")
        self.expect(.truncated, at: 1, in: single, from: [0x0B])
        self.expect(.truncated, at: 3, in: single, from: [0x0B, 0x08, 0x05])
        self.expect(.truncated, at: 3, in: "every.groups.Groups.Single.Inner", from: [0x0B, 0xCB, 0x3E])
        // The end of another group, an end without a beginning, and one of a group that has ended.
        self.expect(.illegalTag, at: 1, in: single, from: [0x0B, 0x14])
        self.expect(.illegalTag, at: 0, in: name, from: [0x0C])
        self.expect(.illegalTag, at: 2, in: name, from: Self.must + [0x1C])
        // The end of the group around it, in a message within.
        self.expect(.illegalTag, at: 5, in: name, from: [0x0B, 0xCB, 0x3E, 0x0A, 0x02, 0x0C, 0x0C, 0xCC, 0x3E, 0x0C])
        // A nested message that ends after the group's end is longer than the group.
        self.expect(
            .truncated,
            at: 5,
            in: "every.groups.Groups.Single.Inner",
            from: [0x0B, 0xCB, 0x3E, 0x0A, 0x09, 0x0C]
        )
    }

    @Test func groupsAreLevels() throws {
        // Single = 1, Inner = 1001, groups = 1: a message in a group in a group, three levels each.
        func nested(_ levels: Int) throws -> [UInt8] {
            var groups = Every_Groups_Groups()
            groups.must = Every_Groups_Groups.Must()
            for _ in 0..<levels {
                var outer = Every_Groups_Groups()
                outer.must = Every_Groups_Groups.Must()
                outer.single.inner.groups = groups
                groups = outer
            }
            return try groups.serializedBytes()
        }
        // These levels, the outermost, and the group that the innermost requires: 98 levels.
        #expect(throws: Never.self) { try Every_Groups_Groups(serializedBytes: nested(32)) }
        #expect(throws: MessageError(.tooDeep(limit: 100), in: "every.groups.Groups.Must")) { try nested(33) }
        let deep = (0..<10_000).flatMap { _ in [0x0B, 0xCB, 0x3E] as [UInt8] }
        #expect(throws: (any Error).self) { try Every_Groups_Groups(serializedBytes: deep) }
        let limits = MessageLimits(depth: 2)
        #expect(throws: MessageError(.tooDeep(limit: 2), in: "every.groups.Groups.Single")) {
            try Every_Groups_Groups(serializedBytes: [0x0B, 0xCB, 0x3E, 0xCC, 0x3E, 0x0C], limits: limits)
        }
    }

    @Test func memoryOfGroupsIsBounded() {
        let bytes = (0..<1_000).flatMap { _ in [0x13, 0x08, 0x01, 0x14] as [UInt8] }
        let limits = MessageLimits(depth: 100, memory: 1_000, memoryPerByte: 1)
        #expect(throws: MessageError.self) {
            try Every_Groups_Groups(serializedBytes: bytes + Self.must, limits: limits)
        }
        #expect(throws: Never.self) { try Every_Groups_Groups(serializedBytes: bytes + Self.must) }
    }

    @Test func requiredFieldsInGroupsAreRequired() {
        #expect(throws: MessageError(.missingRequiredField(field: "must"), in: "every.groups.Groups")) {
            try Every_Groups_Groups(serializedBytes: [])
        }
        #expect(throws: MessageError(.missingRequiredField(field: "must"), in: "every.groups.Groups.Many")) {
            try Every_Groups_Groups(serializedBytes: [0x13, 0x14] + Self.must)
        }
    }
}
