// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketFormats
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketCLI

/// `--field`: custom fields of a format's requests.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FieldOptionTests {
    private let folder: TemporaryFolder
    private let format: WireFormat
    private let file: String

    init() throws {
        self.folder = try TemporaryFolder()
        self.format = try WireFormat(
            WireFormat.Layout(
                name: "little",
                request: [
                    .custom("flags", bytes: 1), .length(.little), .type(.little), .serial(.little),
                    .custom("version", bytes: 2), .custom("token", bytes: 12),
                ],
                response: [.length(.little), .type(.little), .serial(.little)],
                heartbeat: .init(type: 0, pingedBy: .client),
                push: .init(serial: 1)
            )
        )
        self.file = try self.folder.write(self.format.json, to: "little.json")
    }

    /// The fields of the first request of this type.
    private func fields(of server: MockServer, ofType type: UInt32) async throws -> [String: [UInt8]] {
        let request = try #require(try await server.received(1, ofType: type).first)
        return self.format.header(of: request.frame, in: .request)
    }

    private static let zeros = [UInt8](repeating: 0, count: 12)

    @Test func callsCarryTheFields() async throws {
        let server = try await MockServer(.echo, format: self.format)
        let outcome = try await Command.run([
            "call", "\(server.endpoint)", "--type", "100", "--body", "x", "--format", self.file, "--field",
            "version=258",
            "--field", "token=0x0102030405060708090A0b",
        ])
        #expect(outcome.text == "x", "\(outcome.errors)")
        let fields = try await self.fields(of: server, ofType: 100)
        #expect(fields["flags"] == [0])
        #expect(fields["version"] == [2, 1])
        #expect(fields["token"] == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    }

    @Test func numbersHaveTheOrderOfTheFormat() async throws {
        let server = try await MockServer(.echo, format: .mars)
        let outcome = try await Command.run([
            "call", "\(server.endpoint)", "--type", "100", "--format", "mars", "--field", "clientVersion=0x102",
        ])
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        let request = try #require(server.received.first)
        #expect(WireFormat.mars.header(of: request.frame, in: .request) == ["clientVersion": [0, 0, 1, 2]])
    }

    @Test func pingsOfAListenerCarryTheFields() async throws {
        let server = try await MockServer(.echo, format: self.format)
        let listen = try Command([
            "listen", "\(server.endpoint)", "--format", self.file, "--heartbeat", "50ms", "--field", "flags=255",
        ])
        let fields = try await self.fields(of: server, ofType: 0)
        #expect(fields == ["flags": [255], "version": [0, 0], "token": Self.zeros])
        listen.signal(SIGTERM)
        #expect(try await listen.outcome().exitCode == 0)
    }

    @Test func callsOfTheBenchCarryTheFields() async throws {
        let server = try await MockServer(.echo, format: self.format)
        let outcome = try await Command.run([
            "bench", "\(server.endpoint)", "--format", self.file, "--field", "version=0xFFFF", "--warmup", "0",
            "--duration", "50ms",
        ])
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        #expect(try await self.fields(of: server, ofType: BuiltIn.echo)["version"] == [255, 255])
    }

    @Test(arguments: [
        (["a=1"], #"The format little has no custom field "a" in its requests; it has flags, version, token."#),
        (["flags=256"], "--field flags=256 is too large: in the format little the field has 1 byte."),
        (["version=0x10000"], "--field version=0x10000 is too large: in the format little the field has 2 bytes."),
        (["flags=1", "flags=1"], "--field flags is given more than once."),
        (["flags"], "write NAME=VALUE, such as version=7 or token=0x1F2E"), (["=1"], "write NAME=VALUE"),
        (["flags="], "a value is a number"), (["flags=-1"], "a value is a number"),
        (["flags=0x"], "a value is a number"),
        (["flags=0xG"], "a value is a number"), (["token=18446744073709551616"], "a value is a number"),
    ])
    func unfittingFieldIsWrongUsage(fields: [String], reason: String) async throws {
        for command in [
            ["call", "127.0.0.1:1", "--type", "100"], ["listen", "127.0.0.1:1"], ["bench", "127.0.0.1:1"],
        ] {
            let arguments = command + ["--format", self.file] + fields.flatMap { ["--field", $0] }
            let outcome = try await WrongUsage(parsing: arguments)
            #expect(outcome.exitCode == 64)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.contains(reason), "\(outcome.errors)")
        }
    }
}
