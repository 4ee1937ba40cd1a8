// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The client in Python with `hhsocket serve`, and with a server that a test scripts.
@Suite(.tags(.io), .enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)), .timeLimit(.minutes(5)))
struct PythonClientTests {
    @Test(arguments: [
        ("1000", "hello", "hello"), ("1000", "", ""), ("1001", "5", "5"), ("1002", "200", ""),
        ("1003", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    ])
    func callIsAnswered(type: String, body: String, answer: String) async throws {
        try await withServe { address, _ in
            let outcome = try await Python.runClient([address, "--type", type, "--body", body])
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            #expect(outcome.text == answer)
        }
    }

    @Test(arguments: [("999", "x", "401"), ("1002", "405", "405"), ("1001", "no number", "303")])
    func statusIsReported(type: String, body: String, status: String) async throws {
        try await withServe { address, _ in
            let outcome = try await Python.runClient([address, "--type", type, "--body", body])
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: \(status): "), "\(outcome.errors)")
        }
    }

    @Test func pushesAreListenedTo() async throws {
        try await withServe(["--push", "2001:hi there", "--push-every", "0.01"]) { address, _ in
            let client = try Python.client([address, "--listen"])
            #expect(try await client.lines(2).prefix(2) == ["2001 hi there", "2001 hi there"])
            client.signal(SIGINT)
            #expect(try await client.outcome().errors == "")
        }
    }

    @Test func callThatTimesOutFails() async throws {
        try await withServe { address, _ in
            let arguments = [address, "--type", "1001", "--body", "3600000", "--timeout", "0.1"]
            let outcome = try await Python.runClient(arguments)
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.hasPrefix("error: timeout: "), "\(outcome.errors)")
        }
    }

    @Test func nothingListensThere() async throws {
        let outcome = try await Python.runClient(["127.0.0.1:1", "--type", "1000"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: "), "\(outcome.errors)")
    }

    @Test func wrongUsage() async throws {
        #expect(try await Python.runClient(["127.0.0.1:1"]).exitCode == 2)
        #expect(try await Python.runClient(["127.0.0.1", "--type", "1000"]).exitCode == 2)
        #expect(try await Python.runClient(["127.0.0.1:1", "--type", "1000", "--listen"]).exitCode == 2)
    }

    static let request = "expect:000003E8 00000032 00000005 68656C6C6F 062C0215"
    static let response = "send:000003E8 00000032 000000C8 00000005 68656C6C6F 062C0215"

    struct Case: CustomTestStringConvertible {
        var testDescription: String
        var steps: [String]
        var arguments: [String] = []
        var output = "hello"
        var error: String?
    }

    static let cases = [
        Case(
            testDescription: "a ping is answered with its serial",
            steps: [
                request, "send:00000000 00000005 00000000 00000000 00000001",
                "expect:00000000 00000005 00000000 00000001",
                response, "end",
            ]
        ),
        Case(
            testDescription: "an answer to a ping is not answered",
            steps: [request, "send:00000000 00000000 000000C8 00000000 00000001", response, "end"]
        ),
        Case(
            testDescription: "pushes and answers that nobody waits for are no answer",
            steps: [
                request, "send:000007D1 00000001 000000C8 00000002 6869 013B00D2",
                "send:000003E8 00000036 80000001 00000001 61 00620062", response, "end",
            ]
        ),
        Case(
            testDescription: "pieces of frames, and frames that stick together",
            steps: [
                request, "send:000007D1 00000001 000000C8 00000002 6869 013B00D2 000003E8 000000",
                "send:32 000000C8 00000005 6865", "send:6C6C6F 062C0215", "end",
            ]
        ),
        Case(
            testDescription: "a timeout sends a cancel",
            steps: [request, "expect:00000002 00000032 00000000 00000001", "end"],
            arguments: ["--timeout", "0.2"],
            output: "",
            error: "error: timeout: "
        ),
        Case(
            testDescription: "an answer with a wrong checksum is an error",
            steps: [request, "send:000003E8 00000032 000000C8 00000005 68656C6C6F 062C0216"],
            output: "",
            error: "error: checksumMismatch: "
        ),
        Case(
            testDescription: "three wrong checksums running end the connection",
            steps: [
                request, "send:000007D1 00000001 000000C8 00000000 00000000",
                "send:000007D1 00000001 000000C8 00000000 00000000 00000000 00000005 00000000 00000000 00000000", "end",
            ],
            output: "",
            error: "error: 3 wrong checksums running"
        ),
        Case(
            testDescription: "a right checksum ends a run of wrong ones",
            steps: [
                request, "send:000007D1 00000001 000000C8 00000000 00000000",
                "send:000007D1 00000001 000000C8 00000000 00000000",
                "send:000007D1 00000001 000000C8 00000002 6869 013B00D2",
                "send:000007D1 00000001 000000C8 00000000 00000000", response, "end",
            ]
        ),
        Case(
            testDescription: "a flag after a wrong checksum ends the connection",
            steps: [
                request, "send:000007D1 00000001 000000C8 00000000 00000000 20000000 00000032 000000C8 00000000", "end",
            ],
            output: "",
            error: "error: the server sent an invalid frame header"
        ),
        Case(
            testDescription: "a partial answer is an error, and is cancelled",
            steps: [
                request, "send:000003E8 00000032 000000CE 00000005 68656C6C6F 062C0215",
                "expect:00000002 00000032 00000000 00000001", "end",
            ],
            error: "error: 206: "
        ),
        Case(
            testDescription: "a length over the limit ends the connection",
            steps: [request, "send:000003E8 00000032 000000C8 01000001", "end"],
            output: "",
            error: "error: the server sent an invalid frame header"
        ),
        Case(
            testDescription: "a status that nobody listed is an error, and its payload is printed",
            steps: [request, "send:000003E8 00000032 80000001 00000005 68656C6C6F 062C0215"],
            error: "error: 2147483649: "
        ),
        Case(
            testDescription: "a server that closes in the middle of a frame",
            steps: [request, "send:000003E8 00000032 000000C8 00000005 6865"],
            output: "",
            error: "error: the server closed the connection"
        ),
    ]

    @Test(arguments: Self.cases)
    func frameByFrame(_ example: Case) async throws {
        try await withServerOfOneConnection(Python.scriptedServer(example.steps)) { address in
            let outcome = try await Python.runClient(
                [address, "--type", "1000", "--body", "hello"] + example.arguments
            )
            #expect(outcome.text == example.output)
            #expect(outcome.exitCode == (example.error == nil ? 0 : 1))
            #expect(outcome.errors.hasPrefix(example.error ?? ""), "\(outcome.errors)")
        }
    }

    /// Runs `body` with a server that ends by itself, satisfied or not.
    private func withServerOfOneConnection(_ server: Command, _ body: (String) async throws -> Void) async throws {
        guard let address = try await server.lines().first?.split(separator: " ").last else {
            throw Unexpected(description: "no first line: \(server.errors)")
        }
        try await body(String(address))
        let outcome = try await server.outcome()
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
    }
}
