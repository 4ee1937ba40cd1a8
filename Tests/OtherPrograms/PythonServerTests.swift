// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import TestSupport
import Testing

/// `hhsocket call` and `listen` with the server in Python.
@Suite(.tags(.io), .enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)), .timeLimit(.minutes(5)))
struct PythonServerTests {
    /// Runs `body` with a server, which must end cleanly on a signal.
    private func withPythonServer(
        _ arguments: [String] = [],
        _ body: (String) async throws -> Void
    ) async throws {
        try await withServer(Python.server(arguments)) { address, server in
            try await body(address)
            #expect(server.errors == "")
        }
    }

    @Test(arguments: [("1000", "hello"), ("1000", ""), ("1000", "ä\n\0"), ("1001", "5")])
    func callIsAnswered(type: String, body: String) async throws {
        try await self.withPythonServer { address in
            let file = FileManager.default.temporaryDirectory.appendingPathComponent("interop-\(UUID())")
            try Data(body.utf8).write(to: file)
            defer { try? FileManager.default.removeItem(at: file) }
            let outcome = try await Command.run(["call", address, "--type", type, "--body-file", file.path])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == body)
        }
    }

    @Test(arguments: [
        ("999", "x", "undefinedType"), ("1001", "no number", "illegalFormat"), ("1001", "-1", "illegalFormat"),
    ])
    func statusIsTheErrorThatCallReports(type: String, body: String, code: String) async throws {
        try await self.withPythonServer { address in
            let outcome = try await Command.run(["call", address, "--type", type, "--body", body])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: \(code): "), "\(outcome.errors)")
        }
    }

    @Test func manyCallsInFlight() async throws {
        try await self.withPythonServer { address in
            let outcome = try await Command.run([
                "call", address, "--type", "1000", "--body", "0123456789", "--repeat", "2000", "--in-flight", "1000",
            ])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.output.count == 20_000)
        }
    }

    @Test func bodyOfThreeMebibytesComesBack() async throws {
        try await self.withPythonServer { address in
            var random = SeededGenerator(seed: 1)
            let body = Data(random.bytes(3 << 20))
            let outcome = try await Command.run(
                ["call", address, "--type", "1000", "--body-file", "-", "--timeout", "100"],
                input: body
            )
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.output == body)
        }
    }

    @Test func callThatTimesOutIsCancelledAndHarmsNoOther() async throws {
        try await self.withPythonServer { address in
            let outcome = try await Command.run([
                "call", address, "--type", "1001", "--body", "3600000", "--timeout", "0.1", "--repeat", "2",
            ])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errorLines.filter { $0.hasPrefix("error: timeout: ") }.count == 2)
            let next = try await Command.run(["call", address, "--type", "1000", "--body", "next"])
            #expect(next.text == "next")
        }
    }

    @Test func pushesAreListenedTo() async throws {
        try await self.withPythonServer(["--push", "2001:hi there", "--push-every", "0.01"]) { address in
            let outcome = try await Command.run(["listen", address, "--type", "2001", "--count", "3"])
            #expect(outcome.exitCode == 0)
            #expect(outcome.lines == ["2001 hi there", "2001 hi there", "2001 hi there"])
            // Sessions that have ended do not stop the pushes to others.
            #expect(try await Command.run(["listen", address, "--count", "1"]).lines == ["2001 hi there"])
        }
    }

    /// The frames of Docs/Protocol.md.
    @Test(
        arguments: [
            "a heartbeat is answered, whatever its serial": [
                "send:00000000 00000000 00000000 00000001", "expect:00000000 00000000 000000C8 00000000 00000001",
                "send:00000000 00000005 00000000 00000001", "expect:00000000 00000005 000000C8 00000000 00000001",
            ],
            "a request with a wrong checksum costs that request alone": [
                "send:000003E8 00000035 00000005 68656C6C6F 062C0216",
                "expect:000003E8 00000035 0000012E 00000000 00000001",
                "send:000003E8 00000032 00000005 68656C6C6F 062C0215",
                "expect:000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215",
            ],
            "three wrong checksums running are told, and close": [
                "send:000003E8 00000032 00000000 00000000", "expect:000003E8 00000032 0000012E 00000000 00000001",
                // A cancel counts, but is not answered.
                "send:00000002 00000032 00000000 00000000",
                "send:000003E8 00000033 00000005 68656C6C6F 062C0216",
                "expect:000003E8 00000033 0000012E 00000000 00000001", "end",
            ],
            "a right checksum ends a run of wrong ones": [
                "send:000003E8 00000032 00000000 00000000", "expect:000003E8 00000032 0000012E 00000000 00000001",
                "send:000003E8 00000033 00000000 00000000", "expect:000003E8 00000033 0000012E 00000000 00000001",
                "send:00000000 00000000 00000000 00000001", "expect:00000000 00000000 000000C8 00000000 00000001",
                "send:000003E8 00000034 00000000 00000000", "expect:000003E8 00000034 0000012E 00000000 00000001",
                "send:000003E8 00000032 00000005 68656C6C6F 062C0215",
                "expect:000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215",
            ],
            "a flag after a wrong checksum closes": [
                "send:000003E8 00000035 00000000 00000000", "expect:000003E8 00000035 0000012E 00000000 00000001",
                "send:20000000 00000032 00000000 00000001", "end",
            ],
            "a length over the limit is told, and closes": [
                "send:000003E8 00000032 01000001", "expect:000003E8 00000032 0000012D 00000000 00000001", "end",
            ],
            "a cancelled request is not answered, and its serial is free": [
                // Sleep for 3600000 ms, cancel, and the same serial again.
                "send:000003E9 00000032 00000007 33363030303030 0580015A", "send:00000002 00000032 00000000 00000001",
                "send:000003E8 00000032 00000005 68656C6C6F 062C0215",
                "expect:000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215",
            ],
            "a client that has said its last still gets its answers": [
                // Sleep for 100 ms.
                "send:000003E9 00000032 00000003 313030 01260092", "shut",
                "expect:000003E9 00000032 000000C8 00000003 313030 01260092", "end",
            ],
            "a serial in flight, and a reserved one, are illegal": [
                "send:000003E9 00000032 00000007 33363030303030 0580015A",
                "send:000003E8 00000032 00000000 00000001", "expect:000003E8 00000032 0000012F 00000000 00000001",
                "send:000003E8 00000031 00000000 00000001", "expect:000003E8 00000031 0000012F 00000000 00000001",
                "send:00000002 00000032 00000000 00000001",
            ],
            "control types that are not known, and cancels of nothing, are ignored": [
                "send:00000003 00000003 00000000 00000001 0000000F 00000032 00000000 00000001",
                "send:00000002 00000032 00000000 00000001", "send:00000002 00000032 00000000 00000000",
                "send:00000000 00000000 00000000 00000001", "expect:00000000 00000000 000000C8 00000000 00000001",
            ],
        ]
    )
    func frameByFrame(name: String, steps: [String]) async throws {
        try await self.withPythonServer { address in
            let outcome = try await Python.scriptedClient(address, steps)
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
        }
    }

    @Test func framesInPiecesOfOneByteAreAnswered() async throws {
        try await self.withPythonServer { address in
            let request = "000003E8000000320000000568656C6C6F062C0215"
            let bytes = stride(from: 0, to: request.count, by: 2).map { offset in
                "send:" + request.dropFirst(offset).prefix(2)
            }
            let outcome = try await Python.scriptedClient(
                address,
                bytes + ["expect:000003E800000032000000C80000000568656C6C6F062C0215"]
            )
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
        }
    }
}
