// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketFormats
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FormatTests {
    private func check(format: String) async throws {
        let server = try Command(
            ["serve", "--port", "0", "--format", format, "--push", "2001:news", "--push-every", "0.05"]
        )
        let address = try #require(try await server.lines().first?.split(separator: " ").last.map(String.init))
        let call = try await Command.run(
            ["call", address, "--type", "1000", "--body", "hello", "--format", format, "--repeat", "3"]
        )
        #expect(call.exitCode == 0)
        #expect(call.text == "hellohellohello")
        let listen = try await Command.run(["listen", address, "--format", format, "--count", "2", "--json"])
        #expect(listen.exitCode == 0)
        for object in try listen.objects() {
            #expect(object["type"] as? Int == 2001)
            #expect(object["body"] as? String == "news")
        }
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test(arguments: ["standard", "tgcd", "plain", "mars"])
    func everyPresetCallsAndListens(format: String) async throws {
        try await self.check(format: format)
    }

    @Test func layoutInAFile() async throws {
        let layout = WireFormat.Layout(
            name: "stranger",
            request: [.constant([0xCA, 0xFE]), .custom("token", bytes: 2), .length(.little), .serial(), .type()],
            response: [.constant([0xCA, 0xFE]), .status(), .length(.little), .serial(), .type()],
            lengthCounts: .frame,
            checksum: .init(.crc32c),
            push: .init(serial: 1)
        )
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID()).json")
        try WireFormat(layout).json.write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        try await self.check(format: file.path)
    }

    @Test func layoutThatCannotWorkIsWrongUsageAndNamesTheRule() async throws {
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("\(UUID()).json")
        defer { try? FileManager.default.removeItem(at: file) }
        for (json, reason) in [
            (#"{"request": ["type", "serial"], "response": ["type", "serial", "length"]}"#, "lengthMissing"),
            (
                #"{"request": [{"field": "type", "bytes": 5}, "serial", "length"], "response": []}"#,
                "the type in the request's header is an integer of 5 bytes; 1, 2, 3, 4 and 8 are possible (numberWidth)"
            ),
            (
                #"{"request": ["type"], "response": [], "lengthCounts": "all"}"#,
                #"at lengthCounts: "all" is unknown; the values are "payload", "frame", "rest""#
            ),
        ] {
            try json.write(to: file, atomically: true, encoding: .utf8)
            let call = ["call", "127.0.0.1:1", "--type", "100", "--format", file.path]
            let outcome = try await WrongUsage(parsing: call)
            #expect(outcome.exitCode == 64)
            #expect(outcome.errors.contains(reason), "\(outcome.errors)")
        }
    }

    /// A format with these types for applications, in a file that is deleted with the folder.
    private func file(in folder: TemporaryFolder, applicationTypes: ClosedRange<UInt32>) throws -> String {
        let layout = WireFormat.Layout(
            name: "narrow",
            request: [.length(), .type(), .serial()],
            response: [.length(), .type(), .serial(), .status()],
            applicationTypes: applicationTypes
        )
        return try folder.write(WireFormat(layout).json, to: "\(applicationTypes.lowerBound).json")
    }

    @Test func aServerOmitsTypesThatTheFormatKeepsForItself() async throws {
        let folder = try TemporaryFolder()
        let some = try self.file(in: folder, applicationTypes: 1001...1003)
        try await withServe(["--format", some]) { address, server in
            try await server.complains(
                """
                note: types not served: 1000, 1004, 1005, 1010, 1011, 1012, 1013; the format narrow leaves types from \
                1001 to 1003 to applications
                """
            )
            let outcome = try await Command.run([
                "call", address, "--type", "1001", "--body", "1", "--format", some,
            ])
            #expect(outcome.text == "1", "\(outcome.errors)")
        }
        let none = try self.file(in: folder, applicationTypes: 1...99)
        try await withServe(["--format", none]) { address, server in
            try await server.complains("note: types not served: 1000, 1001, 1002, 1003, 1004, 1005, 1010, ")
            let outcome = try await Command.run(["call", address, "--type", "5", "--format", none])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: undefinedType: "), "\(outcome.errors)")
        }
    }

    @Test(arguments: ["standard", "tgcd", "plain", "mars"])
    func benchOfAPreset(format: String) async throws {
        let outcome = try await Command.run(
            ["bench", "--parse", "--body", "100000", "--seconds", "10ms", "--json", "--format", format],
            within: .seconds(240)
        )
        #expect(outcome.exitCode == 0)
        #expect(try outcome.objects().count == 2)
    }
}
