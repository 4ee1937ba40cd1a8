import Foundation
import HHSocket
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
        try #"{"request": ["type", "serial"], "response": ["type", "serial", "length"]}"#
            .write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        let outcome = try await Command.run(["call", "127.0.0.1:1", "--type", "100", "--format", file.path])
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains("lengthMissing"))
    }

    @Test(arguments: ["standard", "tgcd", "plain", "mars"])
    func benchOfAPreset(format: String) async throws {
        let outcome = try await Command.run(
            ["bench", "--parse", "--body", "100000", "--seconds", "0.01", "--json", "--format", format],
            within: .seconds(240)
        )
        #expect(outcome.exitCode == 0)
        #expect(try outcome.objects().count == 2)
    }
}
