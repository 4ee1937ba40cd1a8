// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary
import Testing

@testable import protoc_gen_hhsocket

/// All rejected inputs, with their messages.
@Suite struct ErrorTests {
    @Test func `Every message of google_protobuf is available except descriptors`() throws {
        #expect(
            try Generating.diagnostics("errors/wellknown.proto") == [
                "errors/wellknown.proto:11:3: the field wellknown.Animal.files has the type "
                    + "google.protobuf.FileDescriptorSet, which is not supported; "
                    + "google.protobuf is supported except for the descriptors of descriptor.proto",
                "errors/wellknown.proto:12:3: the field wellknown.Animal.values has the type "
                    + "google.protobuf.FieldOptions, which is not supported; "
                    + "google.protobuf is supported except for the descriptors of descriptor.proto",
                "errors/wellknown.proto:17:3: the field wellknown.type has the type "
                    + "google.protobuf.FieldDescriptorProto.Type, which is not supported; "
                    + "google.protobuf is supported except for the descriptors of descriptor.proto",
                "errors/wellknown.proto:21:3: the method wellknown.Zoo.Describe has the type "
                    + "google.protobuf.DescriptorProto, which is not supported; "
                    + "google.protobuf is supported except for the descriptors of descriptor.proto",
            ]
        )
    }

    @Test func `The numbers of methods and pushes must exist, be allowed, and be unique`() throws {
        #expect(
            try Generating.diagnostics("errors/numbers.proto") == [
                "errors/numbers.proto:9:3: the push_type 15 of numbers.Pushed is reserved for the protocol "
                    + "itself; valid numbers are 16 to 536870911",
                "errors/numbers.proto:13:3: the push_type 703 of numbers.Again is the push_type of "
                    + "numbers.imported.Thing already (errors/numbers_imported.proto:8:3)",
                "errors/numbers.proto:17:3: the push_type 701 of numbers.Both is the message_type of "
                    + "numbers.imported.Things.Put already (errors/numbers_imported.proto:16:5): calls and pushes "
                    + "share their numbers",
                "errors/numbers.proto:21:3: the method numbers.Zoo.Missing has no number; give it one of its "
                    + "own, such as option (hhsocket.message_type) = 101;",
                "errors/numbers.proto:22:3: the method numbers.Zoo.Stream has no number; give it one of its "
                    + "own, such as option (hhsocket.message_type) = 101;",
                "errors/numbers.proto:24:5: the message_type 0 of numbers.Zoo.Zero is reserved for the "
                    + "protocol itself; valid numbers are 16 to 536870911",
                "errors/numbers.proto:27:5: the message_type 536870912 of numbers.Zoo.Large is too large; "
                    + "valid numbers are 16 to 536870911",
                "errors/numbers.proto:33:5: the message_type 702 of numbers.Zoo.Second is the message_type "
                    + "of numbers.Zoo.First already (errors/numbers.proto:30:5)",
                "errors/numbers.proto:36:5: the message_type 700 of numbers.Zoo.Imported is the message_type "
                    + "of numbers.imported.Things.Get already (errors/numbers_imported.proto:13:5)",
            ]
        )
    }

    @Test func `Numbers are compared across all files of a run`() throws {
        #expect(
            try Generating.diagnostics("errors/numbers_imported.proto") == [
                "errors/numbers_imported.proto:19:3: the method numbers.imported.Things.Unnumbered has no "
                    + "number; give it one of its own, such as option (hhsocket.message_type) = 101;"
            ]
        )
        #expect(
            try Generating.diagnostics("chat.proto", "everything.proto") == [
                "everything.proto:424:3: the push_type 2001 of every.thing.News is the push_type of "
                    + "chat.Note already (chat.proto:16:3)",
                "everything.proto:436:5: the message_type 101 of every.thing.Everything.Ask is the "
                    + "message_type of chat.Chat.Send already (chat.proto:27:5)",
                "everything.proto:439:5: the message_type 102 of every.thing.Everything.Ping is the "
                    + "message_type of chat.Chat.Watch already (chat.proto:31:5)",
            ]
        )
    }

    @Test func `Names that are identical in Swift are rejected`() throws {
        #expect(
            try Generating.diagnostics("errors/names.proto") == [
                "errors/names.proto:7:3: Client.fooBar becomes fooBar in Swift, where something else is "
                    + "called so",
                "errors/names.proto:8:3: Client.HHSocketMessage becomes HHSocketMessage in Swift, where "
                    + "something else is called so",
                "errors/names.proto:13:3: Hidden.outer has the type Client, but there Swift takes Client for "
                    + "what is declared closer by; a package, or option swift_prefix, tells them apart",
                "errors/names.proto:17:1: HHSocketRPC becomes HHSocketRPC in Swift, where something else is "
                    + "called so",
                "errors/names.proto:20:3: Names.Get has the type Client, but there Swift takes Client for "
                    + "what is declared closer by; a package, or option swift_prefix, tells them apart",
                "errors/names.proto:23:3: Names.get becomes get in Swift, where something else is called so",
            ]
        )
    }

    @Test func `Extensions whose members have identical names in Swift are rejected`() throws {
        #expect(
            try Generating.diagnostics("errors/extensions.proto") == [
                "errors/extensions.proto:11:3: extensions.fooBar becomes Extensions_fooBar in Swift, where "
                    + "extensions.Extended has the members of extensions.foo_bar already (errors/extensions.proto:10:3)"
            ]
        )
        // The other diagnostics are of the generated file.
        let both = try Generating.diagnostics("errors/extensions_other.proto")
        #expect(
            both == [
                "errors/extensions_other.proto:8:3: extensions.otherOne becomes Extensions_otherOne in Swift, where "
                    + "extensions.Extended has the members of extensions.other_one already (errors/extensions.proto:12:3)"
            ]
        )
        let modules = "Module=Extensions:errors/extensions.proto"
        #expect(try Generating.respond(["errors/extensions_other.proto"], modules).error == "")
        #expect(
            try Generating.diagnostics("errors/extensions_plain.proto") == [
                "errors/extensions_plain.proto:9:3: name becomes name in Swift, where Plain has the members of "
                    + "Plain.name already (errors/extensions_plain.proto:4:3)"
            ]
        )
    }

    @Test func `Methods without a number are allowed if neither client nor server is generated`() throws {
        #expect(
            try Generating.diagnostics("loose.proto") == [
                "loose.proto:9:3: the method loose.Things.Get has no number; give it one of its own, such as "
                    + "option (hhsocket.message_type) = 101;"
            ]
        )
        #expect(try Generating.text("loose.proto", "Client=false,Server=false").contains("struct Loose_Thing"))
        #expect(try Generating.diagnostics("loose.proto", options: "Client=false").count == 1)
        #expect(try Generating.diagnostics("loose.proto", options: "Server=false").count == 1)
    }

    @Test func `Without source locations an error names only the file`() throws {
        let response = try Generating.respond(["loose.proto"]) { $0.clearSourceCodeInfo() }
        #expect(
            response.error == "loose.proto: the method loose.Things.Get has no number; give it one of its own, such as "
                + "option (hhsocket.message_type) = 101;"
        )
    }

    @Test func `The messages of swift-protobuf are not checked`() throws {
        #expect(try Generating.respond(["errors/wellknown.proto"], "Messages=SwiftProtobuf").error == "")
    }
}
