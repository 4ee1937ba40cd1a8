// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// Random messages in JSON, written and read by us and by swift-protobuf.
@Suite struct JSONComparisonTests {
    /// The number of messages of each kind.
    private static let messages = scaled(60)

    private struct Comparison: SampleVisitor {
        var seed: UInt64
        var compared = 0
        var refused = 0

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            // Unknown fields have no form in JSON.
            var options = BinaryDecodingOptions()
            options.discardUnknownFields = true
            for _ in 0..<JSONComparisonTests.messages {
                self.seed += 1
                var forge = Samples.forge(seed: self.seed)
                let bytes = forge.message(Ours.messageDescriptor)
                let seed = self.seed
                func context() -> Comment { "\(Ours.protoMessageName), seed \(seed)" }
                let expected = try Theirs(serializedBytes: bytes, options: options)
                let message = try Ours(serializedBytes: bytes)
                let text: String
                do throws(MessageJSONError) {
                    text = try message.jsonString()
                } catch {
                    // A time out of range, which both reject.
                    #expect(throws: (any Error).self, "\(error)") { try expected.jsonString() }
                    self.refused += 1
                    continue
                }
                try #require(try Theirs(jsonString: text) == expected, "\(context()): \(text)")
                let theirText = try expected.jsonString()
                let read = try Ours(jsonString: theirText)
                let again = try Theirs(serializedBytes: read.serializedBytes())
                try #require(again == expected, "\(context()): \(theirText)")
                // Names as in the .proto, enumerations and large integers as numbers, and on many lines.
                var form = MessageJSON.EncodingOptions()
                form.preserveProtoFieldNames = true
                form.alwaysPrintEnumsAsInts = true
                form.alwaysPrintInt64sAsNumbers = true
                form.alwaysPrintFieldsWithNoPresence = true
                form.isIndented = true
                let other = try message.jsonString(options: form)
                try #require(try Theirs(jsonString: other) == expected, "\(context()): \(other)")
                try #require(try Ours(jsonUTF8Bytes: Array(other.utf8)) == read, "\(context()): \(other)")
                self.compared += 1
            }
        }
    }

    @Test func messagesWrittenAndReadByBothAreTheSame() throws {
        var comparison = Comparison(seed: 77_000_000)
        try Samples.visit(&comparison)
        #expect(comparison.compared + comparison.refused == Samples.count * Self.messages)
        #expect(comparison.compared > Samples.count * Self.messages * 3 / 4)
        #expect(comparison.refused > 0)
    }

    /// Texts that both reject, or both decode to equal messages.
    @Test(
        arguments: [
            #"{"aInt32": 1}"#, #"{"a_int32": 1.0}"#, #"{"aInt32": "1e2"}"#, #"{"aInt32": 1.5}"#,
            #"{"aInt32": 2147483648}"#, #"{"aBool": "true"}"#, #"{"aString": null}"#, #"{"aString": 1}"#,
            #"{"aBytes": "-_"}"#, #"{"aBytes": "+/=="}"#, #"{"aBytes": "a"}"#, #"{"aFloat": "NaN"}"#,
            #"{"aFloat": 1e39}"#, #"{"aDouble": "-Infinity"}"#, #"{"aDouble": 1e309}"#, #"{"nothing": 1}"#,
            #"{"aInt32": 1"#, #"[]"#, #"{"aUint64": "18446744073709551615"}"#, #"{"aUint64": -1}"#,
            #"{"aInt64": "-9223372036854775808"}"#, #"{"aInt32": 01}"#, #"{"aInt32": +1}"#, #"{"aInt32": " 1"}"#,
        ]
    )
    func textsAreJudgedAlike(_ text: String) throws {
        let text = Self.names.reduce(text) { $0.replacingOccurrences(of: "\"\($1.key)\"", with: "\"\($1.value)\"") }
        let theirs = Result { try ReferenceMessages.Every_Thing_Scalars(jsonString: text) }
        let ours = Result { try GeneratedSamples.Every_Thing_Scalars(jsonString: text) }
        switch (ours, theirs) {
        case (.failure, .failure): break
        case (.success(let ours), .success(let theirs)):
            let bytes: [UInt8] = try theirs.serializedBytes()
            #expect(try ours.serializedBytes() == bytes)
        default: Issue.record("\(text): \(ours), but swift-protobuf has \(theirs)")
        }
    }

    /// The names of the fields, by their names in the texts.
    private static let names: [String: String] = {
        let fields = GeneratedSamples.Every_Thing_Scalars.messageDescriptor.fields
        var names: [String: String] = [:]
        for (name, kind) in [
            ("aInt32", FieldKind.int32), ("aInt64", .int64), ("aUint64", .uint64), ("aBool", .bool),
            ("aString", .string), ("aBytes", .bytes), ("aFloat", .float), ("aDouble", .double),
        ] {
            names[name] = fields.first { $0.kind == kind }?.jsonName
        }
        names["a_int32"] = fields.first { $0.kind == .int32 }?.name
        return names
    }()

    @Test func unknownMembersAreIgnoredOnRequest() throws {
        var options = MessageJSON.DecodingOptions()
        options.ignoreUnknownFields = true
        let name = try #require(Self.names["aInt32"])
        let text = #"{"\#(name)": 7, "nothing": [{}], "more": null}"#
        #expect(throws: MessageJSONError.self) { try GeneratedSamples.Every_Thing_Scalars(jsonString: text) }
        let message = try GeneratedSamples.Every_Thing_Scalars(jsonString: text, options: options)
        #expect(try message.jsonString() == #"{"\#(name)":7}"#)
    }

    @Test func positionOfAnErrorIsReported() {
        let error = #expect(throws: MessageJSONError.self) {
            try GeneratedSamples.Every_Thing_Scalars(jsonString: "{\n  \"aFlaot\": 1}")
        }
        #expect(error?.description.contains("aFlaot") == true, "\(String(describing: error))")
        let syntax = #expect(throws: MessageJSONError.self) {
            try GeneratedSamples.Every_Thing_Scalars(jsonString: "{\n  1}")
        }
        #expect(syntax?.description.hasPrefix("line 2, column 3 of the JSON: ") == true)
        let bytes = #expect(throws: MessageJSONError.self) {
            try GeneratedSamples.Every_Thing_Scalars(jsonUTF8Bytes: [0x7B, 0xFF, 0x7D])
        }
        #expect(bytes?.description == "the text is not UTF-8")
    }
}
