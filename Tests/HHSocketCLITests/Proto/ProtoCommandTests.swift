// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ProtoCommandTests {
    private static let proto = ["--proto", TestProtos.descriptorSet]
    private static let everything = Self.proto + ["--method", "test.Echo/Everything"]

    @Test func callsAMethodInJSON() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", address] + Self.everything + ["--json-body", #"{"a_int64": 9007199254740993, "aMood": 1}"#]
            )
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == #"{"aInt64":"9007199254740993","aMood":"MOOD_GOOD"}"# + "\n")
            #expect(outcome.errors == "")
        }
    }

    @Test func requestFromStdinAndFileAndNone() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write(#"{"aString": "from a file"}"#, to: "body.json")
        try await withServe { address, _ in
            let call = ["call", address] + Self.everything
            let fromFile = try await Command.run(call + ["--json-body-file", file])
            #expect(fromFile.text == #"{"aString":"from a file"}"# + "\n")
            let fromStdin = try await Command.run(
                call + ["--json-body-file", "-"],
                input: Data(#"{"aString": "from stdin"}"#.utf8)
            )
            #expect(fromStdin.text == #"{"aString":"from stdin"}"# + "\n")
            let empty = try await Command.run(call + ["--repeat", "2"])
            #expect(empty.text == "{}\n{}\n")
            let raw = try await Command.run(call + ["--body-file", "-"], input: Data([8, 5]))
            #expect(raw.text == #"{"aInt32":5}"# + "\n")
        }
    }

    @Test func objectALineHoldsTheMessage() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", address] + Self.everything + ["--json", "--emit-defaults", "--json-body", #"{"aInt32":-1}"#]
            )
            let object = try #require(try outcome.objects().first)
            #expect(object["type"] as? Int == 1000)
            #expect(object["body"] == nil)
            let message = try #require(object["message"] as? [String: any Sendable])
            #expect(message["aInt32"] as? Int == -1)
            #expect(message["aString"] as? String == "")
        }
    }

    @Test func typeComesFromTheMethod() async throws {
        let server = try await MockServer(.echo)
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)"] + Self.proto
                + ["--method", "test.Echo.Time", "--json-body", #""2026-02-03T04:05:06Z""#]
        )
        #expect(outcome.text == #""2026-02-03T04:05:06Z""# + "\n")
        #expect(server.received.contains { $0.type == 1004 })
    }

    @Test func answerThatIsNoSuchMessageIsAnError() async throws {
        let server = try await MockServer(.answer("no protobuf"))
        let call = ["call", "\(server.endpoint)"] + Self.everything
        let plain = try await Command.run(call)
        #expect(plain.exitCode == 1)
        #expect(plain.output.isEmpty)
        #expect(plain.errorLines.count == 1)
        #expect(plain.errors.hasPrefix("error: The answer cannot be read: test.Everything: "), "\(plain.errors)")
        let json = try await Command.run(call + ["--json"])
        #expect(json.exitCode == 1)
        #expect(try json.objects().first?["body"] as? String == "no protobuf")
    }

    @Test func partsWithoutAJSONFormAreReportedAndTheRestIsPrinted() async throws {
        // A Timestamp beyond the year 9999, beside a number.
        let body: [UInt8] = [8, 1, 0xE2, 3, 7, 8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]
        let server = try await MockServer(.answer(ByteBuffer(bytes: body)))
        let outcome = try await Command.run(["call", "\(server.endpoint)"] + Self.everything)
        #expect(outcome.exitCode == 1)
        #expect(outcome.text == #"{"aInt32":1,"at":{"seconds":"4398046511103"}}"# + "\n")
        #expect(outcome.errorLines.count == 1)
        #expect(
            outcome.errors.hasPrefix(
                "error: A part of the answer cannot be represented in JSON: $.at: 4398046511103 s"
            ),
            "\(outcome.errors)"
        )
    }

    @Test func messagesOfAnyTypeAreSentAndPrinted() async throws {
        let json = #"{"any":{"@type":"type.googleapis.com/test.Leaf","text":"x"},"struct":{"a":[null,1]},"mask":"aB"}"#
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address] + Self.everything + ["--json-body", json])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == json + "\n")
        }
    }

    @Test func errorStatusIsReportedAsEver() async throws {
        let server = try await MockServer(.answer("members only", status: .noPermission))
        let outcome = try await Command.run(["call", "\(server.endpoint)"] + Self.everything)
        #expect(outcome.exitCode == 1)
        #expect(outcome.text == "members only")
        #expect(outcome.errors.hasPrefix("error: noPermission: "))
    }

    @Test(arguments: [
        (["--json-body", #"{"aLeaf":{"tags":["",1]}}"#], "$.aLeaf.tags[1]: expected a string, found a number"),
        (["--json-body", "{"], "line 1, column 2 of the JSON"),
    ])
    func wrongRequestIsWrongUsageAndNothingIsCalled(body: [String], reason: String) async throws {
        let outcome = try await WrongUsage(parsing: ["call", "127.0.0.1:1"] + Self.everything + body)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.contains(reason), "\(outcome.errors)")
    }

    @Test(arguments: [
        ("test.Echo/Everythin", "There is no method test.Echo/Everythin (did you mean test.Echo/Everything"),
        ("test.Echo/Unnumbered", "has no number"),
    ])
    func methodThatCannotBeCalledIsWrongUsage(method: String, reason: String) async throws {
        let outcome = try await WrongUsage(
            parsing: ["call", "127.0.0.1:1"] + Self.proto + ["--method", method]
        )
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains(reason), "\(outcome.errors)")
    }

    @Test(arguments: [
        Self.proto + ["--type", "1000"], ["--method", "test.Echo/Everything"], Self.everything + ["--type", "1000"],
        Self.everything + ["--json-body", "{}", "--body", ""], ["--type", "1000", "--json-body", "{}"],
        Self.everything + ["--json-body", "{}", "--json-body-file", "-"], ["--type", "1000", "-I", "."],
        ["--type", "1000", "--emit-defaults"],
    ])
    func contradictionsAreWrongUsage(options: [String]) async throws {
        let outcome = try await WrongUsage(parsing: ["call", "127.0.0.1:1"] + options)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
    }

    @Test func pushesInJSON() async throws {
        let server = try await MockServer()
        server.onOpen(
            .glued(
                .push(2001, ByteBuffer(bytes: [0x0A, 2, 0x68, 0x69])),
                .push(2002, "text"),
                .push(2001, ByteBuffer(bytes: [0xFF]))
            )
        )
        let listen = ["listen", "\(server.endpoint)"] + Self.proto + ["--count", "3"]
        let outcome = try await Command.run(listen)
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "2001 {\"text\":\"hi\"}\n2002 text\n2001 base64:/w==\n")
        #expect(outcome.errors.contains("error: A push of type 2001 cannot be read: test.Leaf: "), "\(outcome.errors)")
        let objects = try await Command.run(listen + ["--json"]).objects()
        #expect((objects.first?["message"] as? [String: any Sendable])?["text"] as? String == "hi")
    }

    // MARK: describe

    @Test func describesEverything() async throws {
        let outcome = try await Command.run(["describe"] + Self.proto)
        #expect(outcome.exitCode == 0)
        for line in [
            "service test.Echo {",
            "  rpc Everything(test.Everything) returns (test.Everything) { option (hhsocket.message_type) = 1000; }",
            "  rpc Watch(test.Leaf) returns (stream test.Leaf) { option (hhsocket.message_type) = 1006; }",
            "  rpc Unnumbered(test.Leaf) returns (test.Leaf);  // has no number", "message test.Leaf {",
            "  option (hhsocket.push_type) = 2001;", "  repeated string tags = 2;",
            "  optional int32 maybe_int32 = 20;",
            "  map<uint64, test.Mood> by_uint64 = 43;", "  oneof choice {", "    test.Leaf one_leaf = 52;",
            "  google.protobuf.Timestamp at = 60;", "  required int32 id = 1;", "enum test.Mood {", "  MOOD_BAD = -1;",
        ] { #expect(outcome.lines.contains(line), "\(line)") }
        // Neither imported nor implicit declarations are printed.
        #expect(!outcome.text.contains("message google.protobuf"))
        #expect(!outcome.text.contains("Entry"))
    }

    @Test func describesOneThing() async throws {
        let describe = ["describe"] + Self.proto
        let message = try await Command.run(describe + ["test.Leaf"])
        #expect(
            message.text == """
                message test.Leaf {
                  option (hhsocket.push_type) = 2001;
                  string text = 1;
                  repeated string tags = 2;
                }

                """
        )
        let method = try await Command.run(describe + ["test.Echo/Watch", "--json"])
        #expect(
            method.text == #"{"services":[{"name":"test.Echo","file":"everything.proto","methods":[{"name":"#
                + #""test.Echo/Watch","type":1006,"kind":"serverStream","request":"test.Leaf","#
                + #""response":"test.Leaf"}]}],"#
                + #""messages":[],"enums":[],"extensions":[]}"# + "\n"
        )
        let unknown = try await Command.run(describe + ["test.Leav"])
        #expect(unknown.exitCode == 64)
        #expect(unknown.errors == "error: There is no test.Leav (did you mean test.Leaf?).\n")
        #expect(try await Command.run(["describe"]).exitCode == 64)
    }

    @Test func describesFieldsInJSON() async throws {
        let outcome = try await Command.run(["describe"] + Self.proto + ["test.Everything", "--json"])
        let messages = try #require(try outcome.objects().first?["messages"] as? [[String: any Sendable]])
        let fields = try #require(messages.first?["fields"] as? [[String: any Sendable]])
        func field(_ name: String) -> [String: any Sendable]? { fields.first { $0["name"] as? String == name } }
        #expect(field("by_bool")?["type"] as? String == "map<bool, test.Leaf>")
        #expect(field("by_bool")?["presence"] as? String == "map")
        #expect(field("one_mood")?["oneof"] as? String == "choice")
        #expect(field("renamed")?["jsonName"] as? String == "called")
        #expect(field("maybe_int32")?["presence"] as? String == "explicit")
    }

    // MARK: protoc

    private static let hasProtoc = (try? Protoc.find(in: ProcessInfo.processInfo.environment)) != nil

    @Test(.enabled(if: Self.hasProtoc)) func readsProtosWithTheirComments() async throws {
        let outcome = try await Command.run(["describe", "--proto", TestProtos.source, "test.Leaf"])
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        #expect(outcome.text.hasPrefix("// A small message.\nmessage test.Leaf {\n"))
        #expect(outcome.lines.contains("  // The text."))
    }

    @Test(.enabled(if: Self.hasProtoc)) func committedDescriptorSetIsThatOfTheProto() async throws {
        let source = try await Command.run(["describe", "--proto", TestProtos.source, "--json"])
        let committed = try await Command.run(["describe"] + Self.proto + ["--json"])
        // The set contains another file too.
        let messages = try source.objects().first?["messages"] as? [[String: any Sendable]] ?? []
        #expect(messages.count == 3)
        for symbol in ["test.Everything", "test.Leaf", "test.Echo", "test.Mood"] {
            let one = try await Command.run(["describe", "--proto", TestProtos.source, "--json", symbol])
            #expect(try await Command.run(["describe"] + Self.proto + ["--json", symbol]).text == one.text)
        }
        #expect(committed.text.contains("test.Old"))
    }

    @Test(.enabled(if: Self.hasProtoc)) func errorsOfProtocArePassedOn() async throws {
        let folder = try TemporaryFolder()
        let broken = try folder.write("syntax = \"proto3\";\nmessage A {\n  string = 1;\n}\n", to: "broken.proto")
        let outcome = try await Command.run(["describe", "--proto", broken])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("broken.proto:3:"), "\(outcome.errors)")
        #expect(outcome.errors.contains("error: protoc could not read \(broken)."), "\(outcome.errors)")
        #expect(outcome.output.isEmpty)
    }

    @Test(.enabled(if: Self.hasProtoc)) func importsAreSearchedForWhereTheOptionSays() async throws {
        let folder = try TemporaryFolder()
        try FileManager.default.createDirectory(atPath: folder.file("common"), withIntermediateDirectories: false)
        _ = try folder.write(
            "syntax = \"proto3\";\npackage common;\nmessage Name { string text = 1; }\n",
            to: "common/name.proto"
        )
        let text = "syntax = \"proto3\";\nimport \"name.proto\";\nmessage A { common.Name name = 1; }\n"
        let file = try folder.write(text, to: "a.proto")
        let lost = try await Command.run(["describe", "--proto", file])
        #expect(lost.exitCode == 1)
        #expect(lost.errors.contains("name.proto"))
        let found = try await Command.run(
            ["describe", "--proto", file, "-I", folder.path, "--proto-path", folder.file("common")]
        )
        #expect(found.text == "message A {\n  common.Name name = 1;\n}\n", "\(found.errors)")
    }

    @Test func optionsThatTheCommandKnowsAreThoseOfTheProto() throws {
        let file = packageFolder.appendingPathComponent("Protos/hhsocket/options.proto")
        #expect(try OptionsProto.text == String(contentsOf: file, encoding: .utf8))
    }

    @Test func environmentNamesProtoc() async throws {
        let folder = try TemporaryFolder()
        let proto = try folder.write("", to: "any.proto")
        // The script writes the committed descriptor set for any request.
        let text = """
            #!/bin/sh
            for argument; do
                case $argument in --descriptor_set_out=*) exec cp "\(TestProtos.descriptorSet)" "${argument#*=}" ;; esac
            done
            """
        let protoc = try folder.write(text, to: "another")
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: protoc)
        func describe(with protoc: String) async throws -> Command.Outcome {
            let script = "PROTOC_PATH=\(protoc) exec \"\(Command.hhsocket.path)\" describe --proto \(proto)"
            return try await Command.run(["-c", script], of: URL(fileURLWithPath: "/bin/sh"))
        }
        let found = try await describe(with: protoc)
        #expect(found.exitCode == 0, "\(found.errors)")
        #expect(found.text.contains("message test."), "\(found.text)")
        let missing = folder.file("missing")
        let lost = try await describe(with: missing)
        #expect(lost.exitCode == 1)
        #expect(lost.errors.contains("PROTOC_PATH names \(missing), where there is no protoc"), "\(lost.errors)")
    }

    @Test func lackOfProtocSaysWhatToInstall() async throws {
        let line = "exec \"\(Command.hhsocket.path)\" describe --proto \"\(TestProtos.source)\""
        let script = "PROTOC_PATH= PATH=/nowhere \(line)"
        let outcome = try await Command.run(["-c", script], of: URL(fileURLWithPath: "/bin/sh"))
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("apt install protobuf-compiler"))
        #expect(outcome.errors.contains("brew install protobuf"))
    }

    @Test func invalidDescriptorSet() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write("syntax = \"proto3\";", to: "a.pb")
        for file in [file, folder.file("missing.pb")] {
            let outcome = try await Command.run(["describe", "--proto", file])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: Cannot "), "\(outcome.errors)")
        }
    }
}
