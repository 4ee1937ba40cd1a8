// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

/// The metadata, deadlines and keys of `call`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallHelloTests {
    @Test func theServerIsNotifiedWhatTheOptionsSay() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run([
                "call", address, "--type", "1005", "--header", "Tenant: acme", "--header", "lang:de:at", "--header",
                "-x:", "--deadline", "1m", "--idempotency-key", "-key", "--timeout", "50", "--verbose",
            ])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            let lines = outcome.lines
            try #require(lines.count == 6)
            #expect(lines[0].wholeMatch(of: /serial: [0-9]+/) != nil)
            let deadline = try #require(lines[1].wholeMatch(of: /deadline: ([0-9]+) ms/)?.output.1)
            #expect((1...60_000).contains(try #require(Int(deadline))))
            #expect(
                lines[2...]
                    == ["idempotency key: -key", "metadata -x: ", "metadata lang: de:at", "metadata tenant: acme"]
            )
            #expect(outcome.errorLines.contains("metadata server: hhsocket"))
        }
    }

    @Test func theTokenIsTextOrAFile() async throws {
        let folder = try TemporaryFolder()
        let file = try folder.write("secret of ann\n", to: "token")
        var router = Router()
        router.use(AuthenticationMiddleware())
        router.handle(101) { _, context in ByteBuffer(string: context.session.identity ?? "nobody") }
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        configuration.hello.authenticate = { token, _ in
            guard token == Array("secret of ann".utf8) else { throw StatusError(.noPermission) }
            return "ann"
        }
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let call = ["call", "\(try #require(server.address))", "--type", "101", "--token"]
        for token in ["secret of ann", "@\(file)"] {
            #expect(try await Command.run(call + [token]).text == "ann")
        }
        let refused = try await Command.run(call + ["-guessed"])
        #expect(refused.exitCode == 1)
        #expect(refused.errors.contains("405"), "\(refused.errors)")
        for token in ["", "@\(folder.file("nothing"))"] {
            #expect(try await Command.run(call + [token]).exitCode == 64)
        }
        let listening = ["listen", "\(try #require(server.address))", "--token", "secret of ann", "--count", "1"]
        let listener = try Command(listening)
        try await eventually("the listener is known") { server.sessions(of: "ann").count == 1 }
        await server.push(type: 2001, body: ByteBuffer(string: "news"), to: "ann")
        #expect(try await listener.outcome().text == "2001 news\n")
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func withoutTheOptionsNoHelloIsSent() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let outcome = try await Command.run(["call", "\(server.endpoint)", "--type", "1000", "--body", "x"])
        #expect(outcome.text == "x")
        #expect(server.received.map(\.type) == [1000])
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1005", "--json", "--verbose"])
            let object = try #require(try outcome.objects().first)
            #expect((object["body"] as? String)?.wholeMatch(of: /serial: [0-9]+\n/) != nil)
            #expect((object["metadata"] as? [String: String]) == [:])
        }
    }

    @Test func anAnswersMetadataIsInItsObject() async throws {
        try await withServe { address, _ in
            let call = ["call", address, "--type", "1005", "--hello", "--json"]
            let verbose = try #require(try await Command.run(call + ["--verbose"]).objects().first)
            #expect((verbose["metadata"] as? [String: String]) == ["server": "hhsocket"])
            let plain = try #require(try await Command.run(call).objects().first)
            #expect(plain["metadata"] == nil)
        }
    }

    @Test func anErrorsMetadataIsPrintedToo() async throws {
        let server = try await MockServer(.answer("no", status: .noPermission).withMetadata(["why": "two\nlines"]))
        server.acceptHello()
        let outcome = try await Command.run(["call", "\(server.endpoint)", "--type", "100", "--hello", "--verbose"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.text == "no")
        #expect(outcome.errorLines.contains(#"metadata why: two\nlines"#), "\(outcome.errors)")
    }

    @Test func aRepeatWithAKeyIsAnsweredAsTheFirst() async throws {
        try await withServe { address, _ in
            let call = ["call", address, "--type", "1005", "--repeat", "3"]
            let outcome = try await Command.run(call + ["--idempotency-key", "7c9e6679"])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.lines.count == 6)
            #expect(Set(outcome.lines.filter { $0.hasPrefix("serial") }).count == 1)
            let without = try await Command.run(call + ["--hello"])
            #expect(Set(without.lines).count == 3)
        }
    }

    @Test func aPayloadIsCompressedIfAskedFor() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let body = String(repeating: "compress me ", count: 100)
        for (option, isCompressed) in [("--compress", true), ("--hello", false)] {
            let outcome = try await Command.run([
                "call", "\(server.endpoint)", "--type", "1000", "--body", body, option,
            ])
            #expect(outcome.text == body, "\(outcome.errors)")
            #expect(server.received.last { $0.type == 1000 }?.isCompressed == isCompressed)
        }
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", body, "--compress"])
            #expect(outcome.text == body, "\(outcome.errors)")
        }
    }

    @Test func aCallEndsAtItsDeadline() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run([
                "call", address, "--type", "1001", "--body", "60000", "--deadline", "300ms", "--timeout", "100",
            ])
            #expect(outcome.exitCode == 1)
            // Client and server both know the deadline.
            let codes = ["error: timeout: ", "error: deadlineExceeded: "]
            #expect(codes.contains { outcome.errors.hasPrefix($0) }, "\(outcome.errors)")
        }
    }

    @Test func eachCallHasADeadlineOfItsOwn() async throws {
        let server = try await MockServer(.echo.delayed(by: .seconds(1)))
        server.acceptHello()
        // With one deadline for all, the third would have lost two seconds each time. Now only a slow machine may cause
        // that.
        for _ in 0..<5 {
            let before = server.received.count
            let outcome = try await Command.run([
                "call", "\(server.endpoint)", "--type", "1000", "--deadline", "60s", "--timeout", "60", "--repeat",
                "3",
            ])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            let last = server.received.dropFirst(before).last { $0.type == 1000 }
            if try #require(last?.deadline) > .seconds(58.5) { return }
        }
        Issue.record("the deadline does not start over with each call")
    }

    private static let options = [
        ["--hello"], ["--header", "a:b"], ["--deadline", "60"], ["--idempotency-key", "key"], ["--compress"],
    ]

    @Test(arguments: Self.options)
    func aServerThatRefusesHelloIsAnError(options: [String]) async throws {
        let server = try await MockServer(.echo)
        server.on(FrameType.hello, .status(.undefinedType))
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)", "--type", "1000", "--repeat", "2"] + options
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 2)
        for line in outcome.errorLines {
            #expect(line.hasPrefix("error: handshakeRefused: "))
            #expect(line.contains("the server answered hello with status"))
        }
        #expect(!server.received.contains { $0.type == 1000 })
    }

    @Test func aServerThatDoesNotAnswerHelloIsAnErrorThatSaysSo() async throws {
        let server = try await MockServer(.echo)
        let outcome = try await Command.run([
            "call", "\(server.endpoint)", "--type", "1000", "--hello", "--timeout", "4",
        ])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: handshakeTimeout: "), "\(outcome.errors)")
        #expect(outcome.errors.contains("did not answer hello"))
    }

    @Test func missingAgreementIsAnError() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello(features: [.metadata])
        let outcome = try await Command.run([
            "call", "\(server.endpoint)", "--type", "1000", "--body", "x", "--compress",
        ])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: featureNotAgreed: "), "\(outcome.errors)")
    }

    @Test func aNameThatMetadataCannotHaveIsAnError() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        let outcome = try await Command.run([
            "call", "\(server.endpoint)", "--type", "1000", "--header", "two words:x",
        ])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: invalidArgument: "), "\(outcome.errors)")
        #expect(outcome.errors.contains("two words"))
    }

    @Test(arguments: [
        ["--header", "no colon"], ["--header", ":nameless"], ["--header", "a:1", "--header", "A:2"],
        ["--deadline", "0"],
        ["--deadline", "soon"], ["--deadline", "3651d"], ["--idempotency-key", ""],
        ["--idempotency-key", String(repeating: "k", count: 129)], ["--hello", "--format", "mars"],
        ["--compress", "--format", "mars"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: ["call", "127.0.0.1:1", "--type", "100"] + arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.contains(arguments.contains("mars") ? "cannot have hello" : arguments[0]))
    }

    @Test func listeningWithHelloTakesAFormatThatCanHaveIt() async throws {
        // A format with pushes; only its responses have no status.
        let outcome = try await Command.run(["listen", "127.0.0.1:1", "--hello", "--format", "mars"])
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains("cannot have hello"), "\(outcome.errors)")
    }
}
