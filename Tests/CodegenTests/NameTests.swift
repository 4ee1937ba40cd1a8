// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import Testing

@testable import protoc_gen_hhsocket

/// Names that mean something else in Swift. HorrorSamples compiles the code generated for `horrors.proto`.
@Suite struct NameTests {
    @Test func `A property is renamed if a nested type has its name`() throws {
        let text = try Generating.text("horrors.proto")
        let nested = try Generating.declaration("struct Nested:", in: text)
        for part in [
            "struct note:", "var note_p: Nested.note {", "var hasNote_p: Bool", "mutating func clearNote_p()",
            "struct hasDraft:", "var draft_p: String {", "var hasDraft_p: Bool", "private var _draft_p: String?",
            "case chosen_p(Nested.chosen)", "var kind_p: Nested.hasKind {",
        ] {
            #expect(nested.contains(part), "there is no \(part)")
        }
    }

    @Test func `Files of one module may not share a name`() throws {
        let thing =
            "errors/same_names.proto:8:1: same_names.Thing becomes SameNames_Thing in Swift, as sameNames.Thing does "
            + "(errors/same_names_other.proto:9:1); another package, or option swift_prefix, tells them apart"
        let things =
            "errors/same_names.proto:12:1: same_names.Things becomes SameNames_Things in Swift, as sameNames.Things "
            + "does (errors/same_names_other.proto:5:1); another package, or option swift_prefix, tells them apart"
        #expect(try Generating.diagnostics("errors/same_names.proto") == [thing, things])
        #expect(
            try Generating.diagnostics("errors/same_names.proto", "errors/same_names_other.proto") == [thing, things]
        )
        // Another name, no service, or another module.
        #expect(try Generating.diagnostics("errors/same_names.proto", options: "ServiceSuffix=RPC") == [thing])
        #expect(try Generating.diagnostics("errors/same_names.proto", options: "Client=false,Server=false") == [thing])
        let elsewhere = "Module=Other:errors/same_names_other.proto"
        #expect(try Generating.respond(["errors/same_names.proto"], elsewhere).error.isEmpty)
    }

    @Test func `A file is valid without the file that clashes with it`() throws {
        let other = try Generating.respond(["errors/same_names_other.proto"])
        #expect(other.error.isEmpty)
    }

    @Test func `A service's name may have a suffix`() throws {
        let text = try Generating.text("chat.proto", "ServiceSuffix=RPC")
        #expect(text.contains("\nenum Chat_ChatRPC {"))
        #expect(text.contains("\nextension Chat_ChatRPC {"))
        #expect(!text.contains("Chat_Chat."))
    }

    @Test func `A prefix that cannot begin a name is rejected`() throws {
        #expect(
            try Generating.diagnostics("errors/prefix.proto")
                == ["errors/prefix.proto:5:1: swift_prefix \"2nd\" does not begin a name in Swift"]
        )
    }

    @Test func `A type or a property may not hide a module that its file uses`() throws {
        let response = try Generating.respond(["modules/shop.proto"], "Module=item:modules/common.proto")
        #expect(
            response.error
                == "modules/shop.proto:10:3: shop.Order.item becomes item in Swift, where something else is called so"
        )
        let type = try Generating.respond(["modules/shop.proto"], "Module=Shop_Order:modules/common.proto")
        #expect(type.error.hasPrefix("modules/shop.proto:9:1: shop.Order becomes Shop_Order in Swift, where something"))
    }
}
