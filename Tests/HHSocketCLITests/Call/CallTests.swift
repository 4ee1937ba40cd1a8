// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallTests {
    @Test func payloadAloneOnStdout() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "hello"])
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == "hello")
            #expect(outcome.errors == "")
        }
    }

    @Test func bodyIsEmptyByDefault() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000"], input: Data("not me".utf8))
            #expect(outcome.exitCode == 0)
            #expect(outcome.output.isEmpty)
        }
    }

    @Test func binaryPayloadsByteForByteFromStdinAndFile() async throws {
        var bytes = Data((0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ $0 >> 8) })
        bytes.append(contentsOf: [0, 10, 13, 0xFF])
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("hhsocket-\(UUID().uuidString)")
        try bytes.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        try await withServe { address, _ in
            let fromStdin = try await Command.run(
                ["call", address, "--type", "1000", "--body-file", "-"],
                input: bytes
            )
            #expect(fromStdin.exitCode == 0)
            #expect(fromStdin.output == bytes)
            let fromFile = try await Command.run(["call", address, "--type", "1000", "--body-file", file.path])
            #expect(fromFile.exitCode == 0)
            #expect(fromFile.output == bytes)
        }
    }

    @Test func repeatedCallsAreConcatenated() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", address, "--type", "1000", "--body", "ab", "--repeat", "1000", "--in-flight", "64"]
            )
            #expect(outcome.exitCode == 0)
            #expect(outcome.text == String(repeating: "ab", count: 1000))
        }
    }

    @Test func retriesSendACallAgain() async throws {
        let server = try await MockServer(.echo)
        server.once(1000, .status(.overloaded))
        server.once(1000, .reset)
        let call = ["call", "\(server.endpoint)", "--type", "1000", "--body", "again", "--timeout", "60"]
        let outcome = try await Command.run(call + ["--retries", "3"])
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "again")
        server.once(1000, .status(.overloaded))
        let once = try await Command.run(call)
        #expect(once.exitCode == 1)
        #expect(once.errors.hasPrefix("error: overloaded: "))
    }

    @Test func metricsReportWhatACallTook() async throws {
        let server = try await MockServer(.echo)
        server.once(1000, .status(.overloaded))
        let call = ["call", "\(server.endpoint)", "--type", "1000", "--body", "hello", "--metrics", "--retries", "1"]
        let outcome = try await Command.run(call)
        #expect(outcome.text == "hello")
        let pattern =
            #/metrics: sent [\d.]+ ms, first byte [\d.]+ ms, completed [\d.]+ ms; 2 attempts; 10 B sent, 5 B received; 127.*/#
        #expect(outcome.errors.trimmingCharacters(in: .newlines).wholeMatch(of: pattern) != nil, "\(outcome.errors)")
        let json = try await Command.run(call + ["--json"])
        #expect(json.errors == "")
        let object = try JSONSerialization.jsonObject(with: json.output) as? [String: Any]
        #expect(object?["attempts"] as? Int == 1)
        #expect(object?["bytesReceived"] as? Int == 5)
        #expect(object?["firstByteMs"] is Double)
    }

    @Test func metricsOfACallThatFailsAreOnStderrAlsoWithJSON() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let outcome = try await Command.run(["call", "\(endpoint)", "--type", "1000", "--metrics", "--json"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.contains("metrics: completed"))
        #expect(outcome.errors.contains("0 attempts"))
    }

    @Test func verboseSaysWhatTheConnectionDidAndWhy() async throws {
        let server = try await MockServer(.echo)
        let dead = try await MockServer.closedEndpoint()
        let outcome = try await Command.run(
            ["call", "\(dead),\(server.endpoint)", "--type", "1000", "--body", "x", "--verbose"]
        )
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "x")
        #expect(outcome.errors.contains("connect failed \(dead): connectionRefused: "), "\(outcome.errors)")
        #expect(outcome.errors.contains("connected \(server.endpoint) at attempt 2"), "\(outcome.errors)")
    }

    @Test func heartbeatIsAsOftenAsAskedFor() async throws {
        let server = try await MockServer(.echo)
        server.on(1001, .drop)
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)", "--type", "1001", "--timeout", "2", "--heartbeat", "0.05"]
        )
        #expect(outcome.exitCode == 1)
        #expect(server.received.filter { $0.type == FrameType.heartbeat }.count >= 2)
    }

    @Test func heartbeatThatIsNotAnsweredEndsTheConnection() async throws {
        let server = try await MockServer(.goSilent)
        let outcome = try await Command.run(
            [
                "call", "\(server.endpoint)", "--type", "1001", "--timeout", "60", "--heartbeat", "0.2",
                "--heartbeat-timeout", "0.1", "--heartbeat-misses", "0",
            ]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("answered no heartbeat"), "\(outcome.errors)")
    }

    @Test func inFlightCallsRunAtOnce() async throws {
        // Answers nothing until all calls have arrived.
        let server = try await MockServer(.echo.held(until: 20))
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)", "--type", "1000", "--body", "x", "--repeat", "20", "--in-flight", "20"]
        )
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == String(repeating: "x", count: 20))
    }

    @Test func jsonObjects() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", address, "--type", "1000", "--body", "\"quoted\"\n\\ü\u{1}", "--repeat", "2", "--json"]
            )
            #expect(outcome.exitCode == 0)
            let objects = try outcome.objects()
            #expect(objects.count == 2)
            for (index, object) in objects.enumerated() {
                #expect(Set(object.keys) == ["serial", "type", "status", "ms", "server", "body"])
                #expect(object["serial"] as? Int == 50 + index)
                #expect(object["type"] as? Int == 1000)
                #expect(object["status"] as? Int == 200)
                #expect(object["server"] as? String == address)
                #expect(object["body"] as? String == "\"quoted\"\n\\ü\u{1}")
                #expect((object["ms"] as? Double ?? -1) > 0)
            }
        }
    }

    @Test func jsonOfBytesThatAreNotText() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", address, "--type", "1000", "--body-file", "-", "--json"],
                input: Data([0xFF, 0x00])
            )
            let object = try #require(try outcome.objects().first)
            #expect(object["body"] == nil)
            #expect(object["bodyBase64"] as? String == "/wA=")
        }
    }

    // MARK: Failures

    @Test(arguments: [("401", "undefinedType"), ("503", "overloaded"), ("777", "777"), ("206", "206"), ("0", "0")])
    func errorStatus(status: String, code: String) async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1002", "--body", status])
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errorLines.count == 1)
            #expect(outcome.errors.hasPrefix("error: \(code): "))
            #expect(outcome.errors.contains(address))
        }
    }

    @Test func payloadOfAnErrorAnswerIsPrinted() async throws {
        let server = try await MockServer(.answer("members only", status: .noPermission))
        let address = "\(server.endpoint)"
        let plain = try await Command.run(["call", address, "--type", "100"])
        #expect(plain.exitCode == 1)
        #expect(plain.text == "members only")
        #expect(plain.errors.hasPrefix("error: noPermission: "))
        let json = try await Command.run(["call", address, "--type", "100", "--json"])
        #expect(json.exitCode == 1)
        let object = try #require(try json.objects().first)
        #expect(object["status"] as? Int == 405)
        #expect(object["type"] as? Int == 100)
        #expect(object["body"] as? String == "members only")
        #expect(object["server"] as? String == address)
    }

    @Test func otherCallsAreMadeAfterAFailure() async throws {
        let server = try await MockServer(
            .respond { .answer($0.body, status: $0.serial == 51 ? .unknown : .ok) }
        )
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)", "--type", "100", "--body", "x", "--repeat", "4"]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.text == "xxxx")
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: unknown: "))
    }

    @Test func refusedPort() async throws {
        let closed = try await MockServer.closedEndpoint()
        let outcome = try await Command.run(["call", "\(closed)", "--type", "100", "--repeat", "3"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 3)
        for line in outcome.errorLines {
            #expect(line.hasPrefix("error: connectionRefused: "))
            #expect(line.contains("\(closed)"))
        }
    }

    @Test func nextServerIsTried() async throws {
        let closed = try await MockServer.closedEndpoint()
        try await withServe { address, _ in
            let outcome = try await Command.run(
                ["call", "\(closed),\(address)", "--type", "1000", "--body", "x", "--json"]
            )
            #expect(outcome.exitCode == 0)
            #expect(try outcome.objects().first?["server"] as? String == address)
        }
    }

    @Test func wrongChecksum() async throws {
        let server = try await MockServer(.answer("x").corrupted())
        let outcome = try await Command.run(["call", "\(server.endpoint)", "--type", "100"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: checksumMismatch: "))
        #expect(outcome.errors.contains("\(server.endpoint)"))
    }

    @Test func timeoutNotifiesTheServerBeforeItEnds() async throws {
        let server = try await MockServer(.drop)
        let outcome = try await Command.run(["call", "\(server.endpoint)", "--type", "100", "--timeout", "0.2"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: timeout: "))
        #expect(outcome.errors.contains("\(server.endpoint)"))
        // The process has ended, so the frame is in transit.
        let frames = try await server.received(2)
        #expect(frames[1].type == FrameType.cancel)
        #expect(frames[1].serial == frames[0].serial)
    }

    @Test(arguments: [SIGTERM, SIGINT])
    func signalCancelsWhatIsInFlight(signal: CInt) async throws {
        let server = try await MockServer(.drop)
        let call = try Command(
            ["call", "\(server.endpoint)", "--type", "100", "--timeout", "60", "--repeat", "10", "--in-flight", "3"]
        )
        try await server.received(3)
        call.signal(signal)
        let outcome = try await call.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 3)
        for line in outcome.errorLines { #expect(line.hasPrefix("error: cancelled: ")) }
        let frames = try await server.received(6)
        #expect(frames[..<3].allSatisfy { $0.type == 100 })
        #expect(frames[3...].allSatisfy { $0.type == FrameType.cancel })
        #expect(Set(frames[3...].map(\.serial)) == Set(frames[..<3].map(\.serial)))
    }

    @Test func callsContinueAfterALostConnection() async throws {
        // Serials continue across connections, so the third call ends the connection.
        let server = try await MockServer(.respond { $0.serial == 52 ? .close : .echo })
        let outcome = try await Command.run(
            ["call", "\(server.endpoint)", "--type", "100", "--body", "x", "--repeat", "5"]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: connectionLost: "))
        #expect(outcome.text == "xxxx")
        #expect(server.acceptedCount == 2)
    }

    @Test func readerThatGoesEndsItQuietly() async throws {
        try await withServe { address, _ in
            let script = """
                "\(Command.hhsocket.path)" call \(address) --type 1000 --body xxxxxxxxxx --repeat 1000000 --in-flight 100 \
                | head -c 5
                """
            let outcome = try await Command.run(["-c", script], of: URL(fileURLWithPath: "/bin/sh"))
            #expect(outcome.text == "xxxxx")
            #expect(outcome.errors == "")
        }
    }

    @Test(arguments: [
        ["call", "127.0.0.1", "--type", "100"], ["call", "127.0.0.1:0", "--type", "100"], ["call", "127.0.0.1:1"],
        ["call", "127.0.0.1:1,", "--type", "100"], ["call", "127.0.0.1:1", "--type", "15"],
        ["call", "127.0.0.1:1", "--type", "536870912"], ["call", "127.0.0.1:1", "--type", "100", "--repeat", "0"],
        ["call", "127.0.0.1:1", "--type", "100", "--heartbeat", "0"],
        ["call", "127.0.0.1:1", "--type", "100", "--heartbeat-misses", "-1"],
        ["call", "127.0.0.1:1", "--type", "100", "--in-flight", "0"],
        ["call", "127.0.0.1:1", "--type", "100", "--timeout", "0"],
        ["call", "127.0.0.1:1", "--type", "100", "--timeout", "nan"],
        ["call", "127.0.0.1:1", "--type", "100", "--body", "a", "--body-file", "b"],
        ["bench"], ["bench", "--parse", "--body", "-1"], ["bench", "--parse", "--body", "67108864"],
        ["bench", "--parse", "--seconds", "x"], ["listen", "127.0.0.1:1", "--count", "0"],
        ["listen", "127.0.0.1:1", "--type", "0"], ["listen", "nowhere"], ["demo", "--fast"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(!outcome.errors.isEmpty)
    }

    @Test(arguments: ["--body-file", "--json-body-file"])
    func aFileThatCannotBeReadIsAFailureThatNamesIt(option: String) async throws {
        let method = ["--proto", TestProtos.descriptorSet, "--method", "test.Echo/Everything"]
        let options = option == "--body-file" ? ["--type", "100"] : method
        let outcome = try await Command.run(["call", "127.0.0.1:1", option, "/no/such/file"] + options)
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: Cannot read /no/such/file: "), "\(outcome.errors)")
        #expect(outcome.errorLines.count == 1)
    }

    @Test func aServerThatIsSilentInAFormatMayHaveAnother() async throws {
        let server = try await MockServer(.drop, format: .plain)
        let call = ["call", "\(server.endpoint)", "--type", "100", "--timeout", "200ms"]
        let outcome = try await Command.run(call + ["--format", "plain", "--repeat", "2"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errorLines.count == 3)
        #expect(outcome.errorLines.last?.hasPrefix("hint: the server accepted the connection, but no answer") == true)
        #expect(outcome.errors.contains("`hhsocket inspect --format`"))
        // A server that has answered uses the format.
        server.once(100, .status(.overloaded))
        let answered = try await Command.run(call + ["--format", "plain", "--repeat", "2"])
        #expect(answered.exitCode == 1)
        #expect(!answered.errors.contains("hint: "), "\(answered.errors)")
        // Without a listener there is no hint.
        let closed = try await MockServer.closedEndpoint()
        let refused = try await Command.run(["call", "\(closed)", "--type", "100", "--format", "plain"])
        #expect(!refused.errors.contains("hint: "), "\(refused.errors)")
        // The standard format needs no hint.
        let standard = try await MockServer(.drop)
        let plain = try await Command.run(["call", "\(standard.endpoint)", "--type", "100", "--timeout", "200ms"])
        #expect(plain.errors.hasPrefix("error: timeout: "))
        #expect(!plain.errors.contains("hint: "))
    }

    @Test func callThatMayWaitFindsAServerThatComesLater() async throws {
        let server = try await MockServer(.echo)
        try await server.refuseConnections()
        let address = "\(server.endpoint)"
        let call = try Command(["call", address, "--type", "1000", "--body", "x", "--wait", "--timeout", "100"])
        // Without the option the first rejection is final.
        let hasty = try await Command.run(["call", address, "--type", "1000"])
        #expect(hasty.exitCode == 1)
        try await server.acceptConnections()
        let outcome = try await call.outcome()
        #expect(outcome.text == "x", "\(outcome.errors)")
    }
}
