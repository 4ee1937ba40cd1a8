// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketMessage
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

private typealias AnyMessage = HHSocketMessage.Google_Protobuf_Any
private typealias Struct = HHSocketMessage.Google_Protobuf_Struct
private typealias Value = HHSocketMessage.Google_Protobuf_Value
private typealias Timestamp = HHSocketMessage.Google_Protobuf_Timestamp
private typealias FieldMask = HHSocketMessage.Google_Protobuf_FieldMask

/// The messages of `google.protobuf` with their own Swift API.
@Suite struct WellKnownTests {
    @Test func anyContainsAMessageOfItsType() throws {
        let time = Timestamp.with { $0.seconds = 7 }
        let any = try AnyMessage(message: time)
        #expect(any.typeURL == "type.googleapis.com/google.protobuf.Timestamp")
        #expect(any.isA(Timestamp.self) && !any.isA(Struct.self))
        #expect(try Timestamp(unpackingAny: any) == time)
        let error = #expect(throws: MessageError.self) { try Struct(unpackingAny: any) }
        #expect(error?.reason == .anotherType(url: any.typeURL))
        #expect(
            try AnyMessage(message: time, typePrefix: "example.com/").typeURL == "example.com/google.protobuf.Timestamp"
        )
        // The bytes are read by swift-protobuf.
        let theirs = try SwiftProtobuf.Google_Protobuf_Any(serializedBytes: any.serializedBytes())
        #expect(try SwiftProtobuf.Google_Protobuf_Timestamp(unpackingAny: theirs).seconds == 7)
    }

    @Test func anyInJSONHasTheMembersOfItsMessage() throws {
        let expression = try AnyMessage(message: Every_Thing_Scalars.with { $0.aString = "hello" })
        var options = MessageJSON.EncodingOptions()
        #expect(throws: MessageJSONError.self) { try expression.jsonString(options: options) }
        options.types = MessageTypes([Every_Thing_Scalars.self])
        let text = try expression.jsonString(options: options)
        #expect(text == #"{"@type":"type.googleapis.com/every.thing.Scalars","aString":"hello"}"#)
        var reading = MessageJSON.DecodingOptions()
        #expect(throws: MessageJSONError.self) { try AnyMessage(jsonString: text, options: reading) }
        reading.types = options.types
        #expect(try AnyMessage(jsonString: text, options: reading) == expression)
        // Well-known types need not be listed.
        let time = try AnyMessage(message: Timestamp.with { $0.seconds = 1 })
        #expect(
            try time.jsonString()
                == #"{"@type":"type.googleapis.com/google.protobuf.Timestamp","value":"1970-01-01T00:00:01Z"}"#
        )
        #expect(try AnyMessage(jsonString: time.jsonString()) == time)
    }

    @Test func structIsADictionaryAndJSON() throws {
        var object: Struct = ["name": "ann", "age": 7, "tags": [1.5, true, nil, ["deep": [:]]]]
        object.fields["more"] = Value.with { $0.numberValue = -1 }
        #expect(object.fields["name"] == "ann" && object.fields["nothing"] == nil)
        #expect(object.fields["tags"]?.listValue.values[0] == 1.5)
        let text = try object.jsonString()
        #expect(text == #"{"age":7,"more":-1,"name":"ann","tags":[1.5,true,null,{"deep":{}}]}"#)
        #expect(try Struct(jsonString: text) == object)
        let theirs = try SwiftProtobuf.Google_Protobuf_Struct(jsonString: text)
        let bytes: [UInt8] = try theirs.serializedBytes()
        #expect(try Struct(serializedBytes: bytes) == object)
    }

    @Test func fieldMaskIsATextInJSON() throws {
        let mask = FieldMask(protoPaths: ["author.display_name", "text"])
        #expect(try mask.jsonString() == #""author.displayName,text""#)
        #expect(try FieldMask(jsonString: mask.jsonString()) == mask)
        #expect(throws: MessageJSONError.self) { try FieldMask(protoPaths: ["authorName"]).jsonString() }
    }

    @Test func descriptionsOfTypesAreMessages() throws {
        var described = GeneratedSamples.Every_Known_Described()
        described.type.name = "chat.Note"
        described.type.fields = [.with { $0.kind = .typeInt64 }]
        described.type.oneofs = ["body"]
        described.enumeration.enumvalue = [.with { $0.number = 1 }]
        described.api.methods = [.with { $0.responseStreaming = true }]
        described.api.sourceContext.fileName = "chat.proto"
        described.syntax = .proto3
        let theirs = try ReferenceMessages.Every_Known_Described(serializedBytes: described.serializedBytes())
        #expect(theirs.type.name == "chat.Note" && theirs.type.fields.map(\.kind) == [.typeInt64])
        #expect(theirs.api.methods.map(\.responseStreaming) == [true] && theirs.syntax == .proto3)
        #expect(theirs.api.sourceContext.fileName == "chat.proto" && theirs.type.oneofs == ["body"])
        let bytes: [UInt8] = try theirs.serializedBytes()
        #expect(try GeneratedSamples.Every_Known_Described(serializedBytes: bytes) == described)
    }

    @Test func dataIsTheBytes() throws {
        let time = Timestamp.with { $0.seconds = 7 }
        #expect(try time.serializedData() == Data([0x08, 0x07]))
        #expect(try Timestamp(serializedBytes: time.serializedData()) == time)
    }
}
