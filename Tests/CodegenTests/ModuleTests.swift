// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import protoc_gen_hhsocket

/// Code for several modules.
@Suite struct ModuleTests {
    private static let assignments = "Module=Money:modules/money.proto,Module=Common:modules/common.proto"

    private func imports(_ file: String, _ options: String) throws -> [String] {
        try Generating.text(file, options).split(separator: "\n").map(String.init).filter {
            $0.hasPrefix("#") || $0.contains("import ") && !$0.hasPrefix("//")
        }
    }

    @Test func `The modules of used types are imported and qualify the types`() throws {
        let text = try Generating.text("modules/shop.proto", Self.assignments)
        #expect(
            text.contains(
                "\nimport HHSocketMessage\nimport HHSocketRPC\nimport HHSocketServer\nimport Common\nimport Money\n\n"
            )
        )
        for part in [
            "var item: Common.Common_Item {", "var currencies: [String: Money.Money_Currency] = [:]",
            "var at: HHSocketMessage.Google_Protobuf_Timestamp {", "struct Shop_Order:",
            "static let buy = HHSocketMessage.MethodDescriptor<Common.Common_Item, Shop_Order>(",
            "HHSocketRPC.MessageStream<Common.Common_Item, Money.Money_Price>",
            "_ requests: HHSocketServer.RequestMessages<Common.Common_Item>",
        ] {
            #expect(text.contains(part), "there is no \(part)")
        }
    }

    @Test func `Types of the file's own module and of unmapped files are not qualified`() throws {
        let text = try Generating.text("modules/common.proto", Self.assignments)
        #expect(text.contains("struct Common_Item:"))
        #expect(text.contains("var price: Money.Money_Price {"))
        #expect(try self.imports("modules/common.proto", "") == ["import HHSocketMessage"])
        let one = "Module=Common:modules/money.proto,Module=Common:modules/common.proto"
        #expect(try self.imports("modules/common.proto", one) == ["import HHSocketMessage"])
    }

    @Test func `Unused imports are left out`() throws {
        let options = Self.assignments + ",Client=false,Server=false,Module=Options:hhsocket/options.proto"
        #expect(
            try self.imports("modules/shop.proto", options)
                == ["import HHSocketMessage", "import Common", "import Money"]
        )
        // The messages are protoc-gen-swift's; only the methods name types.
        #expect(
            try self.imports("modules/shop.proto", Self.assignments + ",Messages=SwiftProtobuf,Server=false") == [
                "import HHSocketMessage", "import HHSocketRPC", "import Common", "import Money",
                "import HHSocketSwiftProtobuf", "import SwiftProtobuf",
            ]
        )
    }

    @Test func `Extensions name the modules of the extended message and of their types`() throws {
        let options = "Module=Tagged:modules/tagged.proto,Module=Money:modules/money.proto"
        let text = try Generating.text("modules/tags.proto", options)
        #expect(
            try self.imports("modules/tags.proto", options)
                == ["import HHSocketMessage", "import Money", "import Tagged"]
        )
        for part in [
            "\nextension Tagged.Tagged_Thing {\n", "var Tags_price: Money.Money_Price {",
            "var Tags_currencies: [Money.Money_Currency] {", "var Tags_Tag_tag: Tags_Tag {",
            "let Tags_Extensions_price = HHSocketMessage.MessageExtension(of: Tagged.Tagged_Thing.self, "
                + "\"101 tags.price message optional json=[tags.price]\", types: [Money.Money_Price.self])",
            "static let tag = HHSocketMessage.MessageExtension(of: Tagged.Tagged_Thing.self, "
                + "\"100 tags.Tag.tag message optional json=[tags.Tag.tag]\", types: [Tags_Tag.self])",
        ] {
            #expect(text.contains(part), "there is no \(part)")
        }
        // Only the extended message.
        #expect(
            try self.imports("modules/notes.proto", "Visibility=Public,\(options)")
                == ["public import HHSocketMessage", "public import Tagged"]
        )
        #expect(try self.imports("modules/notes.proto", "") == ["import HHSocketMessage"])
    }

    @Test func `The types of public imports are re-exported`() throws {
        let lines = [
            "@_exported public import enum Money.Money_Currency", "@_exported public import struct Money.Money_Price",
        ]
        #expect(
            try self.imports("modules/common.proto", "Visibility=Public,\(Self.assignments)")
                == ["public import HHSocketMessage", "public import Money"] + lines
        )
        #expect(
            try self.imports("modules/forward.proto", "Visibility=Public,\(Self.assignments)")
                == [lines[0], "@_exported public import struct Common.Common_Item", lines[1]]
        )
        let plain = try self.imports(
            "modules/forward.proto",
            "Visibility=Public,UseAccessLevelOnImports=false,\(Self.assignments)"
        )
        #expect(plain.count == 3)
        #expect(plain.allSatisfy { $0.hasPrefix("@_exported import ") })
        // Internal types cannot be exported.
        #expect(try self.imports("modules/forward.proto", Self.assignments).isEmpty)
    }

    @Test func `Imports have the requested access level`() throws {
        func imports(_ options: String) throws -> [String] {
            try self.imports("modules/common.proto", "\(Self.assignments),\(options)")
                .filter { !$0.contains("_exported") }
        }
        #expect(
            try imports("UseAccessLevelOnImports=true") == ["internal import HHSocketMessage", "internal import Money"]
        )
        #expect(
            try imports("UseAccessLevelOnImports=true,Visibility=Package")
                == ["package import HHSocketMessage", "package import Money"]
        )
        #expect(
            try imports("UseAccessLevelOnImports=false,Visibility=Public") == [
                "import HHSocketMessage", "import Money",
            ]
        )
        #expect(
            try imports("Visibility=Package") == [
                "#if hasFeature(InternalImportsByDefault)", "package import HHSocketMessage", "package import Money",
                "#else", "import HHSocketMessage", "import Money", "#endif",
            ]
        )
    }

    @Test func `A file of mappings has the format of swift-protobuf`() throws {
        let folder = try TemporaryFolder()
        let path = try folder.write(
            """
            mapping { module_name: "Common" proto_file_path: "modules/common.proto" }
            mapping { module_name: "Money" proto_file_path: ["modules/money.proto", "modules/other.proto"] }
            """,
            to: "mappings.txtpb"
        )
        #expect(
            try Generating.text("modules/shop.proto", "ProtoPathModuleMappings=\(path)")
                == Generating.text("modules/shop.proto", Self.assignments)
        )
        let wrong = try folder.write("mapping { module: 1 }", to: "wrong.txtpb")
        let diagnostics = try Generating.diagnostics(
            "modules/shop.proto",
            options: "ProtoPathModuleMappings=\(wrong)"
        )
        let beginning = "--hhsocket_opt: ProtoPathModuleMappings=\(wrong): not a list of mappings: "
        #expect(diagnostics.first?.hasPrefix(beginning) == true, "\(diagnostics)")
        let empty = try folder.write(
            """
            mapping { module_name: "Common" proto_file_path: "modules/common.proto" }
            mapping { module_name: "Money" }
            """,
            to: "empty.txtpb"
        )
        #expect(
            try Generating.diagnostics("modules/shop.proto", options: "ProtoPathModuleMappings=\(empty)") == [
                "--hhsocket_opt: ProtoPathModuleMappings=\(empty): the mapping of \"Money\" has no proto_file_path"
            ]
        )
        let missing = try Generating.diagnostics("modules/shop.proto", options: "ProtoPathModuleMappings=/none")
        #expect(missing.first?.hasPrefix("--hhsocket_opt: ProtoPathModuleMappings=/none: ") == true, "\(missing)")
    }

    @Test(arguments: [
        ("Module=Common", "Module=Common: expected a module and a file, such as Common:common.proto"),
        ("Module=1st:a.proto", "Module=1st:a.proto: \"1st\" is not the name of a module"),
        ("Module=A:a.proto,Module=B:a.proto", "Module=B:a.proto: a.proto is in the module A already"),
        ("ServiceSuffix=R.P", "ServiceSuffix=R.P: expected letters and digits, such as RPC"),
        ("UseAccessLevelOnImports=public", "UseAccessLevelOnImports=public: expected true or false"),
    ])
    func `An invalid option is an error`(options: String, error: String) throws {
        #expect(try Generating.diagnostics("hello.proto", options: options) == ["--hhsocket_opt: \(error)"])
    }

    @Test func `A file names the version of generated code that it was made for`() throws {
        let line = "private typealias _GeneratedCode = HHSocketMessage.GeneratedCode.Version1\n"
        for options in ["", "Messages=SwiftProtobuf", "Client=false,Server=false"] {
            #expect(try Generating.text("chat.proto", options).contains(line))
        }
        #expect(try !Generating.text("modules/forward.proto").contains("_GeneratedCode"))
    }

    @Test func `A method declares whether it may be repeated`() throws {
        let methods = try Generating.declaration("enum Methods", in: Generating.text("modules/shop.proto"))
        #expect(methods.contains(#""shop.Shop/Buy", type: 901, kind: .unary, idempotency: .idempotent"#))
        #expect(methods.contains(#""shop.Shop/Prices", type: 902, kind: .bidirectionalStream"# + "\n"))
        #expect(methods.contains(#""shop.Shop/Look", type: 903, kind: .unary, idempotency: .noSideEffects"#))
    }
}
