// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.timeLimit(.minutes(5))) struct SchemaTests {
    private func reason(
        syntax: String = "proto3",
        _ change: (inout Google_Protobuf_DescriptorProto) -> Void
    ) throws -> String? {
        var message = Google_Protobuf_DescriptorProto()
        message.name = "A"
        change(&message)
        var file = Google_Protobuf_FileDescriptorProto()
        file.name = "a.proto"
        file.syntax = syntax
        file.messageType = [message]
        var set = Google_Protobuf_FileDescriptorSet()
        set.file = [file]
        let bytes: Data = try set.serializedData()
        do throws(ProtoError) {
            _ = try SchemaBuilder.schema(of: bytes, onlyLast: true)
            return nil
        } catch {
            return error.description
        }
    }

    private func field(
        _ name: String,
        _ number: Int32,
        _ type: Google_Protobuf_FieldDescriptorProto.TypeEnum,
        typeName: String = ""
    ) -> Google_Protobuf_FieldDescriptorProto {
        var field = Google_Protobuf_FieldDescriptorProto()
        field.name = name
        field.number = number
        field.type = type
        field.label = .optional
        if !typeName.isEmpty { field.typeName = typeName }
        return field
    }

    @Test func misleadingSchemasAreRejected() throws {
        #expect(try self.reason { $0.field = [self.field("a", 1, .int32)] } == nil)
        #expect(try self.reason { $0.field = [self.field("a", 0, .int32)] }?.contains("number 0") == true)
        #expect(try self.reason { $0.field = [self.field("a", 536_870_912, .int32)] }?.contains("number") == true)
        #expect(
            try self.reason { $0.field = [self.field("a", 1, .int32), self.field("b", 1, .int32)] }
                == "a.proto: A has two fields with the number 1"
        )
        #expect(
            try self.reason { $0.field = [self.field("a", 1, .message, typeName: ".B")] }
                == "A.a is of B, which is not in it; write it with --include_imports"
        )
        #expect(
            try self.reason { $0.field = [self.field("a", 1, .enum, typeName: ".A")] }?.contains("is of A") == true
        )
        #expect(try self.reason(syntax: "proto2") { $0.field = [self.field("a", 1, .group, typeName: ".A")] } == nil)
        // Without the number of the edition.
        #expect(try self.reason(syntax: "editions") { _ in }?.contains("not editions") == true)
        #expect(
            try self.reason {
                $0.field = [self.field("a", 1, .int32)]
                $0.field[0].oneofIndex = 3
            } == "a.proto: A.a cannot be in a oneof"
        )
        #expect(
            try self.reason {
                // A map whose entry is not a map entry.
                var entry = Google_Protobuf_DescriptorProto()
                entry.name = "E"
                entry.options.mapEntry = true
                $0.nestedType = [entry]
                $0.field = [self.field("a", 1, .message, typeName: ".A.E")]
                $0.field[0].label = .repeated
            } == "A.a is not a valid protobuf map"
        )
    }

    /// Descriptor sets that are truncated, or have changed bytes: an error, or a usable schema.
    @Test func noDescriptorSetTraps() throws {
        var random = SeededGenerator(seed: 88)
        let bytes = try TestProtos.descriptors()
        for length in stride(from: 0, to: bytes.count, by: 97) {
            _ = try? SchemaBuilder.schema(of: bytes.prefix(length), onlyLast: false)
        }
        var schemas = 0
        for _ in 0..<400 {
            var changed = bytes
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let position = Int.random(in: 0..<changed.count, using: &random)
                changed[changed.startIndex + position] = UInt8.random(in: .min ... .max, using: &random)
            }
            guard let schema = try? SchemaBuilder.schema(of: changed, onlyLast: false) else { continue }
            schemas += 1
            let codec = PayloadJSON(schema, emitsDefaults: true)
            for name in ["test.Everything", "test.Old", "google.protobuf.Timestamp"] {
                let json = #"{"aInt32":1,"byString":{"a":1},"at":"2026-02-03T04:05:06Z","oneLeaf":{},"wrappedInt64":1}"#
                guard let payload = try? codec.payload(json, message: name) else { continue }
                _ = try? codec.json(payload, message: name)
            }
            _ = SchemaText(schema).text(try SchemaSelection(schema, symbol: nil))
            _ = SchemaJSON(schema).json(try SchemaSelection(schema, symbol: nil)).text()
        }
        #expect(schemas > 10)
    }
}
