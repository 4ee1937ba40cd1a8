// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import NIOCore
import TestSupport
import Testing

/// `call` with streams, against a server of this process.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallStreamTests {
    /// Streams the requested number of items, `n 0` and so on; then an empty one.
    private static let count: UInt32 = 2000
    /// Answers with the items of the client, with `|` between.
    private static let join: UInt32 = 2001
    /// Echoes item by item.
    private static let echo: UInt32 = 2002
    /// Sends an item and fails.
    private static let fail: UInt32 = 2003
    /// Sends an item immediately, and ends regardless of the client.
    private static let brief: UInt32 = 2004
    /// Never ends by itself; reports its cancellation.
    private static let endless: UInt32 = 2005

    private static func router(_ wasCancelled: Gate = Gate()) -> Router {
        var router = Router()
        router.stream(Self.count, kind: .serverStreaming) { stream, context in
            let count = Int(String(buffer: stream.request.body)) ?? 0
            for number in 0..<count { try await stream.send(ByteBuffer(string: "n \(number)")) }
            try await stream.send(ByteBuffer())
            context.answerMetadata = ["why": "done"]
            return ByteBuffer()
        }
        router.stream(Self.join, kind: .clientStreaming) { stream, _ in
            var items: [String] = []
            for try await item in stream.items { items.append(String(buffer: item)) }
            return ByteBuffer(string: items.joined(separator: "|"))
        }
        for type in [Self.echo, 1006] {
            router.stream(type, kind: type == 1006 ? .serverStreaming : .bidirectional) { stream, _ in
                if type == 1006 { try await stream.send(stream.request.body) }
                for try await item in stream.items { try await stream.send(item) }
                return ByteBuffer()
            }
        }
        router.stream(Self.fail, kind: .bidirectional) { stream, _ in
            try await stream.send(ByteBuffer(string: "half"))
            throw StatusError(.noPermission)
        }
        router.stream(Self.brief, kind: .bidirectional) { stream, _ in
            try await stream.send(ByteBuffer(string: "only"))
            return ByteBuffer()
        }
        router.stream(Self.endless, kind: .bidirectional) { stream, _ in
            try await stream.send(ByteBuffer(string: "begun"))
            do {
                for try await _ in stream.items {}
                try await Task.sleep(for: .seconds(3_600))
            } catch {
                wasCancelled.open()
                throw error
            }
            return ByteBuffer()
        }
        return router
    }

    private func withServer(_ router: Router = Self.router(), _ body: (String) async throws -> Void) async throws {
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let address = try #require(server.address)
        let result = await Result { try await body("\(address)") }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    private func call(_ address: String, _ type: UInt32, _ options: [String], input: String = "") async throws
        -> Command.Outcome
    {
        try await Command.run(["call", address, "--type", "\(type)"] + options, input: Data(input.utf8))
    }

    @Test func eachItemOfTheServerIsALine() async throws {
        try await self.withServer { address in
            let outcome = try await self.call(address, Self.count, ["--stream", "--body", "3", "--verbose"])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == "n 0\nn 1\nn 2\n\n")
            #expect(outcome.errorLines.contains("metadata why: done"), "\(outcome.errors)")
        }
    }

    @Test func eachLineOfStdinIsAnItem() async throws {
        try await self.withServer { address in
            for (input, answer) in [("a\nb\n", "a|b"), ("a\n\nb", "a||b"), ("\n", ""), ("", ""), ("ä \r\n", "ä \r")] {
                let outcome = try await self.call(address, Self.join, ["--items"], input: input)
                #expect(outcome.exitCode == 0, "\(outcome.errors)")
                #expect(outcome.text == answer)
            }
        }
    }

    @Test func bothSidesStream() async throws {
        try await self.withServer { address in
            let lines = (0..<20_000).map { "line \($0)\n" }.joined()
            for options in [["--items"], ["--items", "--stream"]] {
                let outcome = try await self.call(address, Self.echo, options, input: lines)
                #expect(outcome.exitCode == 0, "\(outcome.errors)")
                #expect(outcome.text == lines)
            }
        }
    }

    @Test func itemsAreThereAsSoonAsTheyCome() async throws {
        try await self.withServer { address in
            let call = try Command(["call", address, "--type", "\(Self.echo)", "--items"], keepsInputOpen: true)
            try call.type("one")
            try await call.prints("one\n")
            try call.type("two")
            try await call.prints("two\n")
            call.signal(SIGKILL)
        }
    }

    @Test func theServersEndEndsTheCommandWhileInputIsOpen() async throws {
        try await self.withServer { address in
            let call = try Command(["call", address, "--type", "\(Self.brief)", "--items"], keepsInputOpen: true)
            let outcome = try await call.outcome()
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == "only\n")
        }
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func aSignalCancelsWhileInputIsOpen(signal: CInt) async throws {
        let wasCancelled = Gate()
        try await self.withServer(Self.router(wasCancelled)) { address in
            let call = try Command(["call", address, "--type", "\(Self.endless)", "--items"], keepsInputOpen: true)
            try await call.prints("begun\n")
            call.signal(signal)
            let outcome = try await call.outcome()
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "begun\n")
            #expect(outcome.errors.hasPrefix("error: cancelled: "), "\(outcome.errors)")
            try await wasCancelled.wait("the server's cancellation")
        }
    }

    @Test func aFinalErrorComesAfterItsItems() async throws {
        try await self.withServer { address in
            let outcome = try await self.call(address, Self.fail, ["--items"])
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "half\n")
            #expect(outcome.errors.hasPrefix("error: noPermission: "), "\(outcome.errors)")
        }
    }

    @Test func timeoutCoversTheStream() async throws {
        try await self.withServer { address in
            let outcome = try await self.call(address, Self.endless, ["--items", "--timeout", "1s"], input: "x\n")
            #expect(outcome.exitCode == 1)
            #expect(outcome.text == "begun\n")
            #expect(outcome.errors.hasPrefix("error: timeout: "), "\(outcome.errors)")
        }
    }

    @Test func itemsAndTheEndAreObjects() async throws {
        try await self.withServer { address in
            let outcome = try await Command.run(
                ["call", address, "--type", "\(Self.echo)", "--items", "--json"],
                input: Data([0x68, 0x69, 10, 0xFF, 10])
            )
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            let objects = try outcome.objects()
            try #require(objects.count == 3)
            #expect(objects.map { $0["status"] as? Int } == [206, 206, 200])
            #expect(objects[0]["body"] as? String == "hi")
            #expect(objects[1]["bodyBase64"] as? String == "/w==")
            #expect(objects[2]["body"] as? String == "")
            for object in objects {
                #expect(object["serial"] as? Int == 50)
                #expect(object["type"] as? Int == Int(Self.echo))
                #expect(object["server"] as? String == address)
                #expect(object["ms"] is Double)
            }
            #expect(Set(objects[0].keys) == ["serial", "type", "status", "ms", "server", "body"])
        }
    }

    @Test func aServerWithoutStreamsIsAnError() async throws {
        var configuration = SocketServer.Configuration()
        configuration.streams = nil
        let plain = SocketServer(configuration: configuration, router: Self.router())
        try await plain.start()
        let outcome = try await self.call("\(try #require(plain.address))", Self.echo, ["--items"], input: "x")
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: featureNotAgreed: "), "\(outcome.errors)")
        await plain.shutdown(gracePeriod: .zero)
    }

    @Test(arguments: [
        ["--items", "--body", "x"], ["--items", "--body-file", "-"], ["--items", "--repeat", "1"],
        ["--stream", "--in-flight", "1"], ["--stream", "--retries", "0"], ["--items", "--idempotency-key", "k"],
        ["--items", "--format", "mars"],
    ])
    func exclusionsAreWrongUsage(options: [String]) async throws {
        let outcome = try await self.call("127.0.0.1:1", 2_000, options)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(
            outcome.errors.contains(options[1] == "--format" ? "cannot have hello" : options[1]),
            "\(outcome.errors)"
        )
    }

    // MARK: Methods

    private static let watch = ["--proto", TestProtos.descriptorSet, "--method", "test.Echo/Watch"]

    @Test func theProtoSaysThatTheServerStreams() async throws {
        try await self.withServer { address in
            let call = ["call", address] + Self.watch + ["--json-body", #"{"text":"hi","tags":["a"]}"#]
            let outcome = try await Command.run(call)
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == #"{"text":"hi","tags":["a"]}"# + "\n")
            let objects = try await Command.run(call + ["--json", "--stream"]).objects()
            #expect(objects.map { $0["status"] as? Int } == [206, 200])
            #expect((objects.first?["message"] as? [String: any Sendable])?["text"] as? String == "hi")
        }
    }

    @Test(arguments: [["--items"], ["--repeat", "2"], ["--retries", "1"]])
    func contradictionsToTheProtoAreWrongUsage(options: [String]) async throws {
        let outcome = try await WrongUsage(parsing: ["call", "127.0.0.1:1"] + Self.watch + options)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.contains(options[0]), "\(outcome.errors)")
    }

    private static let hasProtoc = Command.installed("protoc") != nil

    @Test(.enabled(if: Self.hasProtoc))
    func linesAreMessagesWhereTheClientStreams() async throws {
        let folder = try TemporaryFolder()
        let proto = try folder.write(
            """
            syntax = "proto3";
            package talk;
            import "hhsocket/options.proto";
            message Note { string text = 1; }
            service Talk {
              rpc Say(stream Note) returns (stream Note) { option (hhsocket.message_type) = \(Self.echo); }
              rpc Join(stream Note) returns (Note) { option (hhsocket.message_type) = \(Self.join); }
            }
            """,
            to: "talk.proto"
        )
        try await self.withServer { address in
            let call = ["call", address, "--proto", proto, "--method", "talk.Talk/Say"]
            let outcome = try await Command.run(call, input: Data("{\"text\": \"a\"}\n\n{}\n".utf8))
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == "{\"text\":\"a\"}\n{}\n{}\n")
            // An empty answer is no line as text, but is one in JSON.
            let join = ["call", address, "--proto", proto, "--method", "talk.Talk/Join"]
            let empty = try await Command.run(join)
            #expect(empty.exitCode == 0 && empty.output.isEmpty, "\(empty.text) \(empty.errors)")
            let object = try await Command.run(join + ["--json"])
            #expect(object.exitCode == 0 && object.text.contains("\"message\":{}"), "\(object.text)")
            let wrong = try await Command.run(call, input: Data("{}\n{\"txt\": 1}\n".utf8))
            #expect(wrong.exitCode == 64)
            #expect(wrong.errors.hasPrefix("error: Line 2 of stdin is not a valid talk.Note: "), "\(wrong.errors)")
            let body = try await Command.run(call + ["--json-body", "{}"])
            #expect(body.exitCode == 64)
            #expect(body.errors.contains("--json-body"), "\(body.errors)")
        }
    }
}
