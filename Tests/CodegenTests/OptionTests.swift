// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary
import Testing

@testable import protoc_gen_hhsocket

@Suite struct OptionTests {
    @Test(arguments: [
        ("Visibility=Public", "public struct Hello_Request"),
        ("Visibility=Package", "package struct Hello_Request"),
        ("Visibility=Internal", "\nstruct Hello_Request"),
        ("", "\nstruct Hello_Request"),
        (" Visibility = Public ,", "public struct Hello_Request"),
    ])
    func `Visibility sets the access level of the generated code`(options: String, expected: String) throws {
        #expect(try Generating.text("hello.proto", options).contains(expected))
    }

    @Test func `Each part of a service can be left out, with its imports`() throws {
        func parts(_ options: String) throws -> [String] {
            let text = try Generating.text("chat.proto", options)
            return [
                "import HHSocketRPC", "import HHSocketServer", "enum Chat_Chat", "enum Methods",
                "protocol ClientProtocol",
                "struct Client:", "struct MockClient", "protocol ServiceProtocol", "mutating func register",
            ].filter { text.contains($0) }
        }
        #expect(try parts("").count == 9)
        #expect(
            try parts("Client=false")
                == [
                    "import HHSocketServer", "enum Chat_Chat", "enum Methods", "protocol ServiceProtocol",
                    "mutating func register",
                ]
        )
        #expect(
            try parts("Server=false,Mocks=false")
                == [
                    "import HHSocketRPC", "enum Chat_Chat", "enum Methods", "protocol ClientProtocol", "struct Client:",
                ]
        )
        #expect(
            try parts("Client=false,Server=false,Mocks=true")
                == [
                    "import HHSocketRPC", "enum Chat_Chat", "enum Methods", "protocol ClientProtocol",
                    "struct MockClient",
                ]
        )
        #expect(try parts("Client=false,Server=false").isEmpty)
    }

    @Test(arguments: [
        ("FullPath", "google/protobuf/empty.hhsocket.swift"),
        ("PathToUnderscores", "google_protobuf_empty.hhsocket.swift"),
        ("DropPath", "empty.hhsocket.swift"),
    ])
    func `FileNaming determines the path of the generated file`(naming: String, name: String) throws {
        let response = try Generating.respond(["google/protobuf/empty.proto"], "FileNaming=\(naming)")
        #expect(response.file.map(\.name) == [name])
    }

    @Test(arguments: [
        (
            "Visible=Public",
            "--hhsocket_opt: there is no option Visible; expected Visibility, Messages, Client, Server, Mocks, "
                + "FileNaming, ProtoPathModuleMappings, Module, UseAccessLevelOnImports or ServiceSuffix"
        ),
        ("Visibility=Open", "--hhsocket_opt: Visibility=Open: expected Public, Package or Internal"),
        ("Messages=JSON", "--hhsocket_opt: Messages=JSON: expected HHSocket or SwiftProtobuf"),
        ("Client=yes", "--hhsocket_opt: Client=yes: expected true or false"),
        ("Server", "--hhsocket_opt: Server=: expected true or false"),
        ("FileNaming=Flat", "--hhsocket_opt: FileNaming=Flat: expected FullPath, PathToUnderscores or DropPath"),
    ])
    func `An unknown option is an error`(options: String, error: String) throws {
        #expect(try Generating.diagnostics("hello.proto", options: options) == [error])
    }

    @Test func `Options may be in any order, and the last one counts`() throws {
        let options = try GeneratorOptions([("Mocks", "true"), ("Client", "true"), ("Client", "false")])
        #expect(!options.client)
        #expect(options.mocks)
    }
}
