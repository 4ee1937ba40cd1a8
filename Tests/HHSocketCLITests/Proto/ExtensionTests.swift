// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import NIOCore
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketCLI

/// Extensions in JSON, and in descriptions.
@Suite(.timeLimit(.minutes(5))) struct ExtensionTests {
    /// The file of extensions with which generated code is tested.
    private static func file() throws -> Google_Protobuf_FileDescriptorProto {
        let path = packageFolder.appendingPathComponent("Tests/CodegenTests/DescriptorSets/protos.pb")
        let set = try Google_Protobuf_FileDescriptorSet(serializedBytes: try Data(contentsOf: path))
        return try #require(set.file.first { $0.name == "extended.proto" })
    }

    private static func schema(
        _ change: (inout Google_Protobuf_FileDescriptorProto) throws -> Void = { _ in }
    ) throws -> ProtoSchema {
        var file = try Self.file()
        try change(&file)
        var set = Google_Protobuf_FileDescriptorSet()
        set.file = [file]
        return try SchemaBuilder.schema(of: set.serializedData(), onlyLast: true)
    }

    @Test(arguments: [
        (#"{"heart":{},"[extended.age]":7}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.sound]":"moo"}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.bites]":[-1,2,-300]}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.marks]":[1,2,3]}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.size]":"SMALL"}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.sizes]":["SMALL","LARGE"]}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.packed_sizes]":["LARGE"]}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.print]":"AQI="}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.nest]":{"height":1.5}}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.egg]":[{"weight":0.5},{}]}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.mother]":{"heart":{},"[extended.age]":9}}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.Collar.worn]":{"text":"x","[extended.price]":"5"}}"#, "extended.Animal"),
        (#"{"heart":{},"[extended.Collar.lost]":[{"text":"x"},{"[extended.price]":"5"}]}"#, "extended.Animal"),
        (#"{"basket":{"[extended.Apple.apple]":{"seeds":3}}}"#, "extended.Picnic"),
    ])
    func extensionsHaveTheirFullNamesInBrackets(json: String, message: String) throws {
        let codec = PayloadJSON(try Self.schema())
        let payload = try codec.payload(json, message: message)
        let printed = try codec.json(payload, message: message)
        #expect(printed.json.text() == json)
        #expect(printed.faults == [])
    }

    @Test func goldenBytes() throws {
        let codec = PayloadJSON(try Self.schema())
        // heart, a group: 33, 34. age: 800 as a varint, then 7.
        let json = #"{"heart":{},"[extended.age]":7}"#
        #expect(try codec.payload(json, message: "extended.Animal") == ByteBuffer(bytes: [0x33, 0x34, 0xA0, 0x06, 7]))
        // A message set: a group with the number and the message.
        let item: [UInt8] = [0x0B, 0x10, 0xF9, 0xBB, 0x5E, 0x1A, 2, 8, 3, 0x0C]
        let basket = try codec.payload(#"{"[extended.Apple.apple]":{"seeds":3}}"#, message: "extended.Basket")
        #expect(basket == ByteBuffer(bytes: item))
    }

    @Test func unknownExtensionsAreAnError() throws {
        let codec = PayloadJSON(try Self.schema())
        for name in ["[extended.agee]", "[extended.price]", "[age]", "extended.age"] {
            #expect(throws: PayloadJSON.Unsuitable.self, "\(name)") {
                try codec.payload(#"{"heart":{},"\#(name)":7}"#, message: "extended.Animal")
            }
        }
    }

    @Test func extensionsThatCannotBeDecodedAreReported() throws {
        let codec = PayloadJSON(try Self.schema())
        // sound, with bytes that are not UTF-8.
        let printed = try codec.json(
            ByteBuffer(bytes: [0x33, 0x34, 0xAA, 0x06, 1, 0xFF]),
            message: "extended.Animal"
        )
        #expect(printed.faults.count == 1)
        #expect(printed.faults.first?.contains("extended.sound") == true)
    }

    @Test func describesExtensions() throws {
        let schema = try Self.schema()
        let all = SchemaText(schema).text(try SchemaSelection(schema, symbol: nil))
        #expect(
            all.hasSuffix(
                """
                extend extended.Basket {
                  extended.Apple extended.Apple.apple = 1547769;
                }

                extend extended.Collar {
                  optional uint64 extended.price = 10;
                }

                """
            )
        )
        let one = try SchemaSelection(schema, symbol: "extended.age")
        #expect(
            SchemaText(schema).text(one) == """
                extend extended.Animal {
                  // In years.
                  optional int32 extended.age = 100;
                }

                """
        )
        #expect(
            SchemaJSON(schema).json(one).text()
                == #"{"services":[],"messages":[],"enums":[],"extensions":[{"name":"extended.age","#
                + #""extends":"extended.Animal","file":"extended.proto","number":100,"type":"int32","#
                + #""presence":"explicit"}]}"#
        )
        #expect(throws: ProtoError.self) { try SchemaSelection(schema, symbol: "extended.agee") }
    }

    @Test func extensionsThatContradictEachOtherAreRefused() throws {
        func reason(_ change: (inout Google_Protobuf_FileDescriptorProto) throws -> Void) throws -> String? {
            do {
                _ = try Self.schema(change)
                return nil
            } catch let error as ProtoError {
                return error.description
            }
        }
        #expect(try reason { _ in } == nil)
        #expect(
            try reason { $0.extension[1].number = 100 }
                == "extended.proto: extended.sound: extended.Animal has another field with the number 100"
        )
        #expect(
            try reason { $0.extension[0].number = 1 }
                == "extended.proto: extended.age: extended.Animal has another field with the number 1"
        )
        #expect(try reason { $0.extension[1].name = "age" } == "extended.proto: extended.age is declared twice")
        #expect(try reason { $0.extension[0].number = 0 }?.contains("cannot have the number 0") == true)
        #expect(try reason { $0.extension[0].number = 536_870_912 }?.contains("cannot have the number") == true)
        #expect(
            try reason { file in
                let mother = try #require(file.extension.firstIndex { $0.name == "mother" })
                file.extension[mother].typeName = ".extended.Plant"
            } == "extended.mother is of extended.Plant, which is not in it; write it with --include_imports"
        )
    }

    @Test func extensionsOfMessagesThatAreNotInTheSetAreLeftOut() throws {
        let schema = try Self.schema { $0.extension[0].extendee = ".google.protobuf.FieldOptions" }
        #expect(!schema.extensions.contains { $0.field.name == "extended.age" })
        #expect(schema.extensions.contains { $0.field.name == "extended.sound" })
    }
}
