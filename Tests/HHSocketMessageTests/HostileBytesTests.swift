// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketMessage

#if canImport(HHSocketProtobufC)
@testable import HHSocketProtobufC
import CProtobufC
#endif

/// Bytes of an attacker: a right value or a typed error.
@Suite struct HostileBytesTests {
    private func expect<Message: ProtobufMessage>(
        _ reason: MessageError.Reason,
        in name: String? = nil,
        at offset: Int? = nil,
        from bytes: [UInt8],
        as type: Message.Type,
        sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let expected = MessageError(reason, in: name ?? Message.protoMessageName, at: offset)
        #expect(throws: expected, sourceLocation: sourceLocation) { try Message(serializedBytes: bytes) }
    }

    @Test func messageCutAnywhereIsAMessageOrATypedError() throws {
        var forge = Samples.forge(seed: 7)
        let bytes = forge.message(Every_Thing2_Required.messageDescriptor)
        var refused = 0
        for length in 0..<bytes.count {
            do {
                _ = try Every_Thing2_Required(serializedBytes: bytes.prefix(length))
            } catch {
                refused += 1
            }
        }
        // Each lacks at least a required field.
        #expect(refused >= bytes.count)
    }

    @Test func fieldOfAnotherWireTypeIsUnknown() throws {
        // a_double = 1, sent as a varint; an_int32 = 3, packed, although it is not repeated.
        for bytes: [UInt8] in [[0x08, 0x01], [0x1A, 0x00]] {
            let message = try Every_Thing_Scalars(serializedBytes: bytes + [0x72, 0x01, 0x61])
            #expect(message.unknownFields.data == Data(bytes))
            #expect(message.aString == "a")
            #expect(try message.serializedBytes() == [0x72, 0x01, 0x61] + bytes)
        }
        // strings = 5, sent as a number.
        let repeated = try Every_Thing2_Repeated(serializedBytes: [0x28, 0x01])
        #expect(repeated.strings == [])
        #expect(repeated.unknownFields.data == Data([0x28, 0x01]))
    }

    @Test func varintsThatAreTooLongAreRefused() {
        let endless = [UInt8](repeating: 0xFF, count: 11)
        // an_int64 = 4.
        self.expect(.malformedVarint, at: 1, from: [0x20] + endless, as: Every_Thing_Scalars.self)
        // Ten bytes, but more than 64 bits.
        self.expect(
            .malformedVarint,
            at: 1,
            from: [0x20] + endless.prefix(9) + [0x02],
            as: Every_Thing_Scalars.self
        )
        self.expect(.truncated, at: 1, from: [0x20, 0xFF], as: Every_Thing_Scalars.self)
    }

    @Test func invalidTagsAreRejected() {
        // The number 0; wire types 6 and 7; a number that is too large; six bytes.
        for tag: [UInt8] in [
            [0x00], [0x0E], [0x0F], [0xFF, 0xFF, 0xFF, 0xFF, 0x7F], [0x88, 0x80, 0x80, 0x80, 0x80, 0x00],
        ] {
            self.expect(.illegalTag, at: 0, from: tag + [0x01], as: Every_Thing_Scalars.self)
        }
    }

    @Test func unknownGroupsAreKept() throws {
        // A group in a group, a number, and a text that looks like an end tag.
        let group: [UInt8] = [0x9B, 0x06, 0x08, 0x01, 0x13, 0x14, 0x1A, 0x02, 0x9C, 0x06, 0x9C, 0x06]
        let message = try Every_Thing_Scalars(serializedBytes: group + [0x72, 0x01, 0x61])
        #expect(message.aString == "a")
        #expect(message.unknownFields.data == Data(group))
        #expect(try message.serializedBytes() == [0x72, 0x01, 0x61] + group)
        #expect(try Every_Thing_Scalars(serializedBytes: message.serializedBytes()) == message)
    }

    @Test func groupsThatDoNotEndAreRefused() {
        self.expect(.truncated, at: 2, from: [0x9B, 0x06], as: Every_Thing_Scalars.self)
        // The end of another, and one without a beginning.
        self.expect(.illegalTag, at: 2, from: [0x9B, 0x06, 0xA4, 0x06], as: Every_Thing_Scalars.self)
        self.expect(.illegalTag, at: 0, from: [0x9C, 0x06], as: Every_Thing_Scalars.self)
        let deep = (0..<10_000).flatMap { _ in [0x9B, 0x06] as [UInt8] }
        self.expect(.tooDeep(limit: 100), from: deep, as: Every_Thing_Scalars.self)
    }

    @Test func lengthsBeyondTheEndAreRefused() {
        // a_string = 14 with 2 GiB, with 2^63, and one byte too much.
        let tag: [UInt8] = [0x72]
        self.expect(
            .truncated,
            at: 6,
            from: tag + [0x80, 0x80, 0x80, 0x80, 0x08, 0x61],
            as: Every_Thing_Scalars.self
        )
        self.expect(
            .truncated,
            at: 11,
            from: tag + [UInt8](repeating: 0x80, count: 9) + [0x01],
            as: Every_Thing_Scalars.self
        )
        self.expect(.truncated, at: 2, from: tag + [0x03, 0x61, 0x62], as: Every_Thing_Scalars.self)
    }

    @Test(
        arguments: [
            [0x80], [0xC0, 0x80], [0xE0, 0x80, 0x80], [0xED, 0xA0, 0x80], [0xF4, 0x90, 0x80, 0x80],
            [0xF8, 0x88, 0x80, 0x80, 0x80],
            [0xE2, 0x82], [0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0x61, 0xFF], [0xC3, 0x28],
        ] as [[UInt8]]
    )
    func textThatIsNotUTF8IsRefused(_ text: [UInt8]) {
        self.expect(
            .invalidUTF8(field: "a_string"),
            at: 2,
            from: [0x72, UInt8(text.count)] + text,
            as: Every_Thing_Scalars.self
        )
        // Nor is it valid in Swift.
        #expect(!Self.isText(text))
    }

    @Test func textThatIsNotUTF8InAMapIsTheMaps() {
        // string_string = 1, whose key, and then whose value, is invalid UTF-8.
        for tag in [0x0A, 0x12] as [UInt8] {
            self.expect(
                .invalidUTF8(field: Self.texts.name),
                at: Self.texts.bytes.count + 3,
                from: Self.texts.bytes + [0x03, tag, 0x01, 0xFF],
                as: Every_Thing_Maps.self
            )
        }
    }

    private static let texts: (name: String, bytes: [UInt8]) = {
        let name = "string_string"
        let field = Every_Thing_Maps.messageDescriptor.fields.first { $0.name == name }
        return (name, MessageForge.tag(field?.number ?? 0, .lengthDelimited))
    }()

    /// Whether Swift decodes the bytes unchanged: it replaces invalid UTF-8.
    private static func isText(_ bytes: [UInt8]) -> Bool {
        String(decoding: bytes, as: UTF8.self).utf8.elementsEqual(bytes)
    }

    @Test func textThatIsUTF8IsTakenAsItIs() throws {
        for text in ["", "NUL \0 within", "\u{7F}\u{80}\u{7FF}\u{800}\u{FFFF}\u{10000}\u{10FFFF}", "a\u{0301}é"] {
            let bytes = [0x72] + MessageForge.delimited(Array(text.utf8))
            let message = try Every_Thing_Scalars(serializedBytes: bytes)
            #expect(Array(message.aString.utf8) == Array(text.utf8))
            #expect(try message.serializedBytes() == (text.isEmpty ? [] : bytes))
        }
    }

    @Test func everyTextIsJudgedAsSwiftDoes() {
        var random = SeededGenerator(seed: 3)
        // Bytes that begin and continue characters, more often than in random bytes.
        let pieces: [UInt8] = [
            0x41, 0x7F, 0x80, 0xBF, 0xC2, 0xDF, 0xE0, 0xA0, 0x9F, 0xED, 0xEF, 0xF0, 0x90, 0x8F, 0xF4, 0xF5,
        ]
        for _ in 0..<scaled(10_000) {
            let text = (0..<Int.random(in: 1...12, using: &random)).map { _ in
                pieces.randomElement(using: &random) ?? 0
            }
            #expect(text.withUnsafeBytes { UTF8Validator.isValid($0) } == Self.isText(text), "\(text)")
        }
    }

    /// A node in a node, `depth` times.
    private func nodes(_ depth: Int) -> [UInt8] {
        var lengths: [Int] = []
        var length = 0
        for _ in 1..<max(depth, 1) {
            lengths.append(length)
            length += 1 + MessageForge.varint(UInt64(length)).count
        }
        return lengths.reversed().flatMap {
            MessageForge.tag(Self.left, .lengthDelimited) + MessageForge.varint(UInt64($0))
        }
    }

    private static let left: UInt32 = {
        Every_Thing_Node.messageDescriptor.fields.first { $0.kind == .message && $0.presence == .explicit }?.number ?? 0
    }()

    @Test func depthIsBounded() throws {
        _ = try Every_Thing_Node(serializedBytes: self.nodes(100))
        for engine in Engine.allCases { _ = try engine.message(self.nodes(100), Every_Thing_Node.messageDescriptor) }
        for depth in [101, 10_000] {
            self.expect(.tooDeep(limit: 100), from: self.nodes(depth), as: Every_Thing_Node.self)
        }
        _ = try Every_Thing_Node(serializedBytes: self.nodes(7), limits: MessageLimits(depth: 7))
        #expect(throws: MessageError(.tooDeep(limit: 7), in: "every.thing.Node")) {
            try Every_Thing_Node(serializedBytes: self.nodes(8), limits: MessageLimits(depth: 7))
        }
    }

    /// Other platforms have threads with such stacks.
    @Test func depthFitsIntoASmallStack() throws {
        let bytes = self.nodes(100)
        let thread = Outcome<Result<Every_Thing_Node, any Error>>()
        let small = Thread {
            thread.value = Result { try Every_Thing_Node(serializedBytes: bytes) }
        }
        small.stackSize = 512 << 10
        small.start()
        while !small.isFinished { Thread.sleep(forTimeInterval: 0.001) }
        let node = try #require(thread.value).get()
        #expect(try node.serializedBytes() == bytes)
    }

    /// A message that lies within itself, and has a map of texts.
    private final class Chain: Sendable {
        static let descriptor: MessageDescriptor = .init(
            "chain",
            [
                .init("next", number: 1, kind: .message, presence: .explicit, type: { .message(Chain.descriptor) }),
                .map("texts", number: 2, key: .string, value: .string),
                .map("chains", number: 3, key: .string, value: .message, type: { .message(Chain.descriptor) }),
            ]
        )
    }

    @Test(arguments: [(100, 2, true), (101, 2, false), (100, 3, false), (99, 3, false), (98, 3, true)])
    func entryOfAMapToNoMessageIsNoLevel(depth: Int, map: UInt8, isRead: Bool) {
        // The entry of a map to messages is one, and its message is another.
        let entry: [UInt8] = map == 2 ? [0x12, 0x00] : [0x1A, 0x02, 0x12, 0x00]
        let bytes = (1..<depth).reduce(entry) { inner, _ in [0x0A] + MessageForge.delimited(inner) }
        for engine in Engine.allCases {
            var error: MessageError?
            do throws(MessageError) {
                _ = try engine.message(bytes, Chain.descriptor)
            } catch let thrown {
                error = thrown
            }
            #expect((error == nil) == isRead, "\(engine): \(String(describing: error))")
        }
    }

    /// All of its fields are unknown, and remains of another block in memory must not be used.
    @Test func messageWithoutFieldsKnowsNoField() throws {
        for number in 1...64 as ClosedRange<UInt32> {
            let bytes = MessageForge.tag(number, .fixed32) + [1, 2, 3, 4]
            for engine in Engine.allCases {
                #expect(try engine.rewritten(bytes, Every_Thing_Nothing.messageDescriptor) == bytes)
            }
            #expect(try Every_Thing_Nothing(serializedBytes: bytes).serializedBytes() == bytes)
        }
        #if canImport(HHSocketProtobufC)
        // As protoc-gen-c generates it. This memory has no other initialisation, and is compared with bytes from the
        // wire.
        let table = MessageTable(Every_Thing_Nothing.messageDescriptor)
        let descriptor = table.root.pointee.protobufC.assumingMemoryBound(to: ProtobufCMessageDescriptor.self)
        withExtendedLifetime(table) { #expect(descriptor.pointee.fields == nil) }
        #endif
    }

    /// protobuf-c takes 32 bytes for each field while it reads, in blocks that double: more than the limit, where the
    /// values themselves are a fraction of it.
    @Test func manyValuesThatTakeLittleMemoryAreReadByEveryEngine() throws {
        let count = 1_048_600
        let number = try #require(
            Every_Thing_Repeated.messageDescriptor.fields.first { $0.name == "unpacked_int32s" }?.number
        )
        let one = MessageForge.tag(number, .varint) + [7]
        var bytes: [UInt8] = []
        bytes.reserveCapacity(one.count * count)
        for _ in 0..<count { bytes += one }
        #expect(try Every_Thing_Repeated(serializedBytes: bytes).unpackedInt32S.count == count)
        for engine in Engine.allCases { _ = try engine.message(bytes, Every_Thing_Repeated.messageDescriptor) }
    }

    @Test func descriptorMayBeUsedByManyThreadsFirst() async throws {
        for _ in 0..<scaled(200) {
            let inner = MessageDescriptor("inner", [.init("number", number: 1, kind: .int32, presence: .explicit)])
            let outer = MessageDescriptor(
                "outer",
                (1...20).map {
                    .init("field \($0)", number: $0, kind: .message, presence: .explicit, type: { .message(inner) })
                }
            )
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        for engine in Engine.allCases { _ = try engine.message([0x0A, 0x02, 0x08, 0x01], outer) }
                    }
                }
                try await group.waitForAll()
            }
        }
    }

    @Test func messageThatLiesTooDeepInItselfIsNotWritten() throws {
        var node = Every_Thing2_Recursive()
        for _ in 0..<98 {
            var outer = Every_Thing2_Recursive()
            outer.must = node
            node = outer
        }
        // The innermost lacks a required field before the depth exceeds the limit.
        #expect(throws: MessageError(.missingRequiredField(field: "must"), in: "every.thing2.Recursive")) {
            try node.serializedBytes()
        }
        for _ in 0..<2 {
            var outer = Every_Thing2_Recursive()
            outer.must = node
            node = outer
        }
        #expect(throws: MessageError(.tooDeep(limit: 100), in: "every.thing2.Recursive")) { try node.serializedBytes() }
    }

    @Test func missingRequiredFieldIsNamed() throws {
        self.expect(.missingRequiredField(field: "a_double"), from: [], as: Every_Thing2_Required.self)
        #expect(throws: MessageError(.missingRequiredField(field: "a_double"), in: "every.thing2.Required")) {
            try Every_Thing2_Required().serializedBytes()
        }
        // Within another message as well.
        var outer = Every_Thing2_Repeated()
        outer.required = [Every_Thing2_Required()]
        #expect(throws: MessageError(.missingRequiredField(field: "a_double"), in: "every.thing2.Required")) {
            try outer.serializedBytes()
        }
        self.expect(
            .missingRequiredField(field: "a_double"),
            in: "every.thing2.Required",
            from: [0x32, 0x00],
            as: Every_Thing2_Repeated.self
        )
    }

    @Test func requiredFieldsMayComeInTwoHalves() throws {
        // protobuf merges the messages of a singular field, and checks required fields at the end.
        var forge = Samples.forge(seed: 11)
        forge.addsUnknownFields = false
        let whole = try Every_Thing2_Required(
            serializedBytes: forge.message(Every_Thing2_Required.messageDescriptor)
        ).serializedBytes()
        let first = whole.prefix(9)
        let halves =
            [0x8A, 0x01] + MessageForge.delimited(Array(first))
            + [0x8A, 0x01] + MessageForge.delimited(Array(whole.dropFirst(9)))
        let message = try Every_Thing2_Optionals(serializedBytes: halves)
        #expect(try message.required.serializedBytes() == whole)
        for engine in Engine.allCases {
            let rewritten = try engine.rewritten(halves, Every_Thing2_Optionals.messageDescriptor)
            #expect(try Every_Thing2_Optionals(serializedBytes: rewritten) == message)
        }
    }

    @Test func moreMemoryThanTheLimitIsATypedError() {
        // A million empty messages, each of which allocates memory.
        let bytes = (0..<1 << 20).flatMap { _ in [0x7A, 0x00] as [UInt8] }
        let limits = MessageLimits(memory: 1 << 20, memoryPerByte: 8)
        for engine in Engine.allCases {
            let error = #expect(throws: MessageError.self) {
                try engine.message(bytes, Every_Thing_Maps.messageDescriptor, limits: limits)
            }
            #expect(error?.reason == .needsTooMuchMemory(limit: 17 << 20))
        }
        // In generated messages each takes a word.
        _ = try? Every_Thing_Maps(serializedBytes: bytes)
        let strict = MessageLimits(memory: 1_000, memoryPerByte: 2)
        #expect(throws: MessageError(.needsTooMuchMemory(limit: 1_000 + 2 * bytes.count), in: "every.thing.Maps")) {
            try Every_Thing_Maps(serializedBytes: bytes, limits: strict)
        }
    }
}

/// The result of a thread, once it has ended.
private final class Outcome<Value>: @unchecked Sendable {
    // Proof of Sendable: the thread writes it, and the test reads it once the thread has ended.
    var value: Value?
}
