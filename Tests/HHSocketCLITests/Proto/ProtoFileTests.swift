// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import HHSocketCLI

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The files of `--proto`: descriptor sets, and what protoc reads.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ProtoFileTests {
    @Test(arguments: ["set.pb", "image.binpb", "set.fds", "set.bin", "set", "set.proto"])
    func aDescriptorSetIsOneUnderAnyName(name: String) async throws {
        let folder = try TemporaryFolder()
        try TestProtos.descriptors().write(to: URL(fileURLWithPath: folder.file(name)))
        let described = try await Command.run(["describe", "--proto", folder.file(name), "test.Leaf"])
        #expect(described.exitCode == 0)
        #expect(described.text.hasPrefix("message test.Leaf {"), "\(described.text)")
        #expect(described.errors == "")
    }

    @Test func aDescriptorSetMayBeAPipe() async throws {
        let described = try await ShellCommand.run(
            "cat \"$1\" | \"$hh\" describe --proto /dev/stdin test.Leaf",
            [TestProtos.descriptorSet]
        )
        #expect(described.exitCode == 0, "\(described.errors)")
        #expect(described.text.hasPrefix("message test.Leaf {"))
    }

    @Test func aFileWithTheNameOfASetIsNotReadByProtoc() async throws {
        let folder = try TemporaryFolder()
        for (name, content) in [("text.pb", "syntax = \"proto3\";\n"), ("empty.binpb", "")] {
            let outcome = try await Command.run(["describe", "--proto", try folder.write(content, to: name)])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: Cannot use \(folder.file(name)): "), "\(outcome.errors)")
        }
    }

    /// Newlines are the bytes with which a descriptor set begins, and also those of lengths.
    @Test(arguments: [
        "", "\n", "\n\n", String(repeating: "\n", count: 12), String(repeating: "\n", count: 1_200),
        "\nsyntax = \"proto3\";\n", "\n\n\n// a comment\nsyntax = \"proto3\";\n", "syntax = \"proto2\";",
        "\n\u{3}abc", "\n\u{2}\n\u{5}", "\n\u{4}\u{B}\u{B}\u{B}\u{B}",
    ])
    func textsAreNoDescriptorSets(text: String) {
        #expect(!DescriptorSet.isContent(Data(text.utf8)))
    }

    /// A part is one only where its last file ends.
    @Test func noPartOfAFileIsADescriptorSet() throws {
        let set = try TestProtos.descriptors()
        #expect(DescriptorSet.isContent(set))
        #expect(DescriptorSet.isContent(set + set))
        for length in 1..<min(set.count, 2_000) where DescriptorSet.isContent(set.prefix(length)) {
            #expect(set[length] == 0x0A)
        }
        #expect(!DescriptorSet.isContent(set + [0]))
    }

    /// protoc, and its folder, end with the command, however that ends.
    @Test(arguments: [SIGKILL, SIGTERM]) func nothingStaysWhenTheCommandIsKilled(number: CInt) async throws {
        let folder = try TemporaryFolder()
        let protoc = try folder.write("#!/bin/sh\necho $$ >'\(folder.file("pid"))'\nexec sleep 1000\n", to: "protoc")
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: protoc)
        try FileManager.default.createDirectory(atPath: folder.file("tmp"), withIntermediateDirectories: false)
        let command = try ShellCommand.start(
            "export PROTOC_PATH=\"$1\" TMPDIR=\"$2\"; exec \"$hh\" describe --proto \"$3\"",
            [protoc, folder.file("tmp"), try folder.write("syntax = \"proto3\";\n", to: "a.proto")]
        )
        let process = try await eventually("protoc runs") { () -> pid_t? in
            let text = try? String(contentsOfFile: folder.file("pid"), encoding: .utf8)
            return text.flatMap { $0.hasSuffix("\n") ? pid_t($0.dropLast()) : nil }
        }
        #expect(kill(process, 0) == 0)
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.file("tmp")).count == 1)
        command.signal(number)
        _ = try await command.outcome()
        try await eventually("protoc has ended") { kill(process, 0) == -1 || Self.isZombie(process) }
        try await eventually("its folder has been removed") {
            try FileManager.default.contentsOfDirectory(atPath: folder.file("tmp")).isEmpty
        }
    }

    /// Whether a process has ended, and only waits for its parent, which in a container may not be there.
    private static func isZombie(_ process: pid_t) -> Bool {
        let status = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
        return status?.contains(") Z ") == true
    }

    @Test func protocReturnsItsOwnErrorAndWritesNothing() async throws {
        let folder = try TemporaryFolder()
        try FileManager.default.createDirectory(atPath: folder.file("tmp"), withIntermediateDirectories: false)
        let file = try folder.write("syntax = \"proto3\";\nmessage M { string a = 1; string b = 1; }\n", to: "a.proto")
        let outcome = try await ShellCommand.run(
            "export TMPDIR=\"$1\"; exec \"$hh\" describe --proto \"$2\"",
            [folder.file("tmp"), file]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("a.proto:2:"), "\(outcome.errors)")
        #expect(outcome.errors.hasSuffix("error: protoc could not read \(file).\n"), "\(outcome.errors)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.file("tmp")).isEmpty)
    }
}
