// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
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

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ParseBenchTests {
    @Test(arguments: [4096, 100_000])
    func jsonLines(body: Int) async throws {
        let outcome = try await Command.run(
            ["bench", "--parse", "--body-length", "\(body)", "--duration", "10ms", "--json"],
            within: .seconds(120)
        )
        #expect(outcome.exitCode == 0)
        #expect(outcome.errors == "")
        let objects = try outcome.objects()
        #expect(objects.map { $0["peer"] as? String } == ["ours-borrowed", "ours-owned"])
        for object in objects {
            #expect(
                Set(object.keys) == ["peer", "workload", "body", "frames_per_s", "gb_per_s", "seconds", "frames"]
            )
            #expect(object["workload"] as? String == "parse")
            #expect(object["body"] as? Int == body)
            let frames = try #require(object["frames"] as? Int)
            #expect(frames.isMultiple(of: (64 << 20) / (16 + body)))
            #expect(frames > 0)
        }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct EchoBenchTests {
    private static let short = ["--warmup", "50ms", "--duration", "300ms"]

    @Test(arguments: [
        [], ["--callbacks", "default"], ["--api", "async"],
        ["--connections", "3", "--in-flight", "5", "--threads", "2"],
        ["--api", "dispatch"], ["--api", "dispatch", "--callbacks", "default", "--rate", "300"],
        ["--connections", "2", "--api", "async"], ["--api", "typed"], ["--api", "typed", "--body-length", "16"],
        ["--api", "typed", "--body-length", "131", "--rate", "300"], ["--rate", "300"],
        ["--rate", "300", "--callbacks", "default"],
        ["--rate", "300", "--api", "async", "--connections", "2"], ["--in-flight", "1", "--body-length", "2"],
        // The former name of the option.
        ["--body", "100000", "--in-flight", "8"], ["--format", "plain"], ["--hello"],
        ["--hello", "--api", "async", "--connections", "2", "--body-length", "1K"],
        ["--api", "async", "--executor", "socket"], ["--api", "typed", "--executor", "socket", "--connections", "2"],
        ["--api", "async", "--executor", "socket", "--rate", "300"],
    ])
    func callsAreMeasured(arguments: [String]) async throws {
        let serve = arguments.contains("plain") ? ["--format", "plain"] : []
        try await withServe(serve) { address, _ in
            // A slow machine may complete no call in a short time.
            let (outcome, report, duration) = try await withGrowingTimeout {
                duration -> (Command.Outcome, [String: any Sendable]?, Double) in
                let times = ["--warmup", "50ms", "--duration", "\(Int(duration / .milliseconds(1)))ms"]
                let outcome = try await Command.run(
                    ["bench", address, "--json", "--peer", "a \"peer\""] + times + arguments
                )
                return (outcome, try outcome.objects().first, duration / .seconds(1))
            } until: {
                $0.0.exitCode != 0 || $0.1?["calls"] as? Int != 0
            }
            #expect(outcome.exitCode == 0)
            #expect(outcome.errors == "")
            #expect(outcome.lines.count == 1)
            let object = try #require(report)
            func option(_ name: String) -> String? {
                arguments.firstIndex(of: name).map { arguments[$0 + 1] }
            }
            #expect(object["peer"] as? String == "a \"peer\"")
            #expect(object["workload"] as? String == "echo")
            let length = try (option("--body-length") ?? option("--body")).map(SizeArgument.parse)
            #expect(object["body"] as? Int == length ?? (option("--api") == "typed" ? 60 : 128))
            #expect(object["inflight"] as? Int == Int(option("--in-flight") ?? "64"))
            #expect(object["connections"] as? Int == Int(option("--connections") ?? "1"))
            #expect(object["rate"] as? Double == option("--rate").flatMap(Double.init))
            #expect(object["api"] as? String == option("--api") ?? "task")
            let hasHandlers = ["task", "dispatch"].contains(option("--api") ?? "task")
            let callbacks = hasHandlers ? option("--callbacks") ?? "inline" : nil
            #expect(object["callbacks"] as? String == callbacks)
            let executor = hasHandlers ? nil : option("--executor") ?? "global"
            #expect(object["executor"] as? String == executor)
            #expect(object["interrupted"] as? Bool == false)
            #expect(object["hello"] as? Bool == arguments.contains("--hello"))
            #expect(abs((object["seconds"] as? Double ?? 0) - duration) < 0.001)
            let calls = try #require(object["calls"] as? Int)
            #expect(calls > 0)
            let rate = try #require(object["calls_per_s"] as? Double)
            #expect(abs(rate - Double(calls) / duration) < 0.1)
            #expect((object["client_cpu_s"] as? Double ?? -1) >= 0)
            #expect(object["server_cpu_s"] is NSNull)
            let latencies = ["p50_us", "p90_us", "p99_us", "p999_us", "max_us"].compactMap { object[$0] as? Double }
            #expect(latencies.count == 5)
            #expect(latencies == latencies.sorted())
            #expect((latencies.first ?? 0) > 0)
        }
    }

    @Test func theTypeIsThatOfTheServersEcho() async throws {
        let server = try await MockServer(.status(.undefinedType))
        server.on(42, .echo)
        let outcome = try await Command.run(
            ["bench", "\(server.endpoint)", "--type", "0x2A", "--warmup", "0", "--duration", "50ms"]
        )
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        #expect(server.received.allSatisfy { $0.type == 42 || FrameType.control.contains($0.type) })
    }

    @Test(arguments: [[], ["--api", "async"], ["--callbacks", "default"]])
    func asManyAreInFlightAsAskedFor(arguments: [String]) async throws {
        let server = try await MockServer(.echo)
        // The first call checks whether the server echoes at all. The next four wait for each other.
        server.once(BuiltIn.echo, .echo)
        let held = MockServer.Reaction.echo.held(until: 4, release: .reversed)
        for _ in 0..<4 { server.once(BuiltIn.echo, held) }
        let outcome = try await Command.run(
            ["bench", "\(server.endpoint)", "--in-flight", "4", "--warmup", "0", "--seconds", "0.05"] + arguments
        )
        #expect(outcome.exitCode == 0)
        let sent = try await server.received(5, ofType: BuiltIn.echo)
        let numbers = sent.map { UInt32($0.body.readableBytesView.first ?? 0xFF) & 0x3F }
        #expect(numbers.first == 0)
        // Swift tasks may overtake each other on the way.
        #expect(numbers.sorted() == [0, 1, 2, 3, 4])
        let body = EchoBody(length: 128)
        #expect(zip(sent, numbers).allSatisfy { body.isEchoed(by: $0.body, number: $1) })
    }

    @Test(arguments: ["task", "async"])
    func aSlowServerIsAskedAtTheSameRate(api: String) async throws {
        // At most five a second are answered, one after the other, although a hundred are requested.
        let server = try await MockServer(.echo.delayed(by: .milliseconds(200)))
        let outcome = try await Command.run(
            ["bench", "\(server.endpoint)", "--rate", "100", "--in-flight", "1", "--api", api, "--json"]
                + ["--warmup", "0", "--seconds", "1"]
        )
        #expect(outcome.exitCode == 0)
        let object = try #require(try outcome.objects().first)
        #expect((object["calls"] as? Int ?? .max) <= 5)
        #expect((object["not_started"] as? Int ?? 0) >= 94)
        // Half of the due calls waited longer than any answer took.
        #expect((object["p50_us"] as? Double ?? 0) > 200_000)
    }

    @Test(arguments: [
        (["--api", "task"], MockServer.Reaction.answer("x"), "wrong answer to call "),
        (["--api", "async"], .answer("x"), "wrong answer to call "),
        (["--rate", "1000"], .answer("x"), "wrong answer to call "),
        (["--api", "task"], .status(.overloaded), "overloaded: "),
        (["--api", "async"], .status(.overloaded), "overloaded: "),
        (["--connections", "3"], .reset, "connectionLost: "),
        (["--connections", "3", "--api", "async"], .reset, "connectionLost: "),
        (["--callbacks", "default"], .echo.corrupted(), "checksumMismatch: "),
    ])
    func aCallThatGoesWrongEndsIt(arguments: [String], reaction: MockServer.Reaction, error: String) async throws {
        let count = NIOLockedValueBox(0)
        let server = try await MockServer(
            .respond { _ in
                let number = count.withLockedValue { count in
                    count += 1
                    return count
                }
                return number < 50 ? .echo : reaction
            }
        )
        let outcome = try await Command.run(
            ["bench", "\(server.endpoint)", "--seconds", "600", "--in-flight", "4"] + arguments
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: \(error)"), "\(outcome.errors)")
    }

    @Test func aServerThatDoesNotEchoIsReportedAtOnce() async throws {
        let server = try await MockServer(.answer(ByteBuffer(repeating: 0, count: 128)))
        let outcome = try await Command.run(["bench", "\(server.endpoint)", "--json", "--seconds", "600"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(
            outcome.errors
                == "error: wrong answer to call 0: it begins with 0 and ends with 0, where 64 and 64 were sent\n"
        )
    }

    @Test func aHelloAgreesOnWhatTheCallsThenGoWithout() async throws {
        // A slow machine may complete fewer calls in a short time.
        let calls = try await withGrowingTimeout { duration -> [MockServer.Received] in
            let server = try await MockServer(.echo)
            server.acceptHello(features: [.metadata, .compression])
            let outcome = try await Command.run(
                ["bench", "\(server.endpoint)", "--hello", "--warmup", "0", "--seconds", "\(duration / .seconds(1))"]
            )
            #expect(outcome.exitCode == 0, "\(outcome.errors)")
            return server.received.filter { $0.type == BuiltIn.echo }
        } until: {
            $0.count >= 3
        }
        #expect(calls.first?.metadata == ["purpose": "bench"])
        #expect(calls.dropFirst().allSatisfy { $0.metadata.isEmpty && !$0.isCompressed })
    }

    @Test(arguments: [Set<ProtocolFeature>([.metadata]), [.compression]])
    func aHelloThatAgreesOnLessIsAnError(features: Set<ProtocolFeature>) async throws {
        let server = try await MockServer(.echo)
        server.acceptHello(features: features)
        let outcome = try await Command.run(["bench", "\(server.endpoint)", "--hello", "--seconds", "600"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: featureNotAgreed: "), "\(outcome.errors)")
    }

    @Test func outputIsClosed() async throws {
        let dead = try await MockServer.closedEndpoint()
        let outcome = try await Command.run(["bench", "\(dead)"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: connectionRefused: "), "\(outcome.errors)")
    }

    @Test(arguments: [
        [], ["--api", "async"], ["--callbacks", "default", "--connections", "2"], ["--rate", "1000"],
        ["--rate", "1000", "--api", "async"],
    ])
    func anInterruptionReportsWhatWasMeasuredByThen(arguments: [String]) async throws {
        let server = try await MockServer(.echo)
        let bench = try Command(
            ["bench", "\(server.endpoint)", "--warmup", "0", "--seconds", "600", "--in-flight", "4", "--json"]
                + arguments
        )
        try await server.received(100, ofType: BuiltIn.echo)
        bench.signal(SIGINT)
        let outcome = try await bench.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors == "error: interrupted; the report is of the calls until then\n")
        #expect(outcome.lines.count == 1)
        let object = try #require(try outcome.objects().first)
        #expect(object["interrupted"] as? Bool == true)
        #expect((object["calls"] as? Int ?? 0) > 0)
        #expect((object["seconds"] as? Double ?? 600) < 600)
    }

    @Test func anInterruptionDoesNotWaitForAnAnswer() async throws {
        let server = try await MockServer(.echo)
        server.once(BuiltIn.echo, .echo)
        server.on(BuiltIn.echo, .drop)
        let bench = try Command(["bench", "\(server.endpoint)", "--warmup", "0", "--seconds", "600", "--json"])
        try await server.received(65, ofType: BuiltIn.echo)
        bench.signal(SIGTERM)
        let outcome = try await bench.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.text.contains(#""calls":0,"#))
        #expect(outcome.text.contains(#""p50_us":null,"#))
    }

    @Test func anInterruptionOfTheWarmUpMeasuresNothing() async throws {
        let server = try await MockServer(.echo)
        let bench = try Command(["bench", "\(server.endpoint)", "--warmup", "600"])
        try await server.received(100, ofType: BuiltIn.echo)
        bench.signal(SIGINT)
        let outcome = try await bench.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors == "error: interrupted before anything was measured\n")
    }

    @Test func aServerOfItsOwnEndsWithIt() async throws {
        let outcome = try await Command.run(["bench", "--self", "--format", "plain"] + Self.short)
        #expect(outcome.exitCode == 0)
        #expect(outcome.errors == "")
        let address = try #require(outcome.text.firstMatch(of: #/^hhsocket at ([0-9.:]+): /#)?.output.1)
        let endpoint = try #require(Endpoint(address))
        await #expect(throws: (any Error).self) { try await HostileClient(to: endpoint) }
    }

    #if os(Linux)
    @Test func theServersCPUTimeIsKnown() async throws {
        let outcome = try await Command.run(["bench", "--self", "--json"] + Self.short)
        #expect(outcome.exitCode == 0)
        let object = try #require(try outcome.objects().first)
        #expect((object["server_cpu_s"] as? Double ?? -1) >= 0)
    }

    /// The fields of a process's status after its name: its state, its parent …
    private static func status(of process: String) -> [Substring] {
        let text = (try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)) ?? ""
        return text.split(separator: ")").last?.split(separator: " ") ?? []
    }

    /// Waits for the server that `bench` starts.
    private func ownServer(of bench: Command) async throws -> String {
        try await eventually("the server of the bench") {
            try FileManager.default.contentsOfDirectory(atPath: "/proc").first { process in
                Int(process) != nil && Self.status(of: process).dropFirst().first == "\(bench.process)"
            }
        }
    }

    @Test(arguments: [SIGINT, SIGTERM, SIGKILL])
    func aServerOfItsOwnEndsHoweverTheBenchDoes(signal: Int32) async throws {
        let bench = try Command(["bench", "--self", "--warmup", "600"])
        let server = try await self.ownServer(of: bench)
        bench.signal(signal)
        let outcome = try await bench.outcome()
        #expect(outcome.exitCode == (signal == SIGKILL ? 128 + SIGKILL : 1))
        #expect(outcome.output.isEmpty)
        // The server has ended, or is a zombie of its new parent.
        try await eventually("the server's end") { ["", "Z"].contains(Self.status(of: server).first ?? "") }
    }
    #endif

    @Test(arguments: [
        ([], "Give HOST:PORT or --self to measure calls, or --parse to measure the frame parser."),
        (
            ["nowhere"],
            "The value 'nowhere' is invalid for '<host:port>': write HOST:PORT, with an IPv6 address in brackets, or"
        ),
        (["h:1", "--self"], "HOST:PORT names a server and --self starts one: leave one of them out."),
        (
            ["h:1", "--parse", "--rate", "5"],
            "HOST:PORT, --rate: only for calls, and --parse makes none; leave one or the other out."
        ),
        (
            ["h:1", "--body-length", "1"],
            "--body-length is a size from 2, which hold the call's number, to 16777216, not 1."
        ),
        (["h:1", "--in-flight", "0"], "--in-flight is a number from 1 to 1000000, not 0."),
        (["h:1", "--connections", "1001"], "--connections is a number from 1 to 1000, not 1001."),
        (
            ["h:1", "--body-length", "1000000", "--in-flight", "100000"],
            "100000 bodies of 1000000 bytes in flight need more than 4 GiB; reduce --body-length, --in-flight or "
                + "--connections."
        ),
        (["h:1", "--rate", "0"], "--rate is a number of calls per second above 0, 1000000000 at most, not 0.0."),
        (
            ["h:1", "--warmup", "nan"],
            "The value 'nan' is invalid for '--warmup <duration>': expected a number with a unit"
        ),
        (["h:1", "--warmup", "11d"], "--warmup is 10d at most."),
        (["h:1", "--duration", "0"], "--duration is 1ms at least."),
        (["--parse", "--duration", "10000000"], "--duration is 10d at most."),
        (
            ["h:1", "--body-length", "5X"],
            "The value '5X' is invalid for '--body-length <size>': expected a number of bytes"
        ),
        (["h:1", "--body", "5", "--body-length", "5"], "--body is the former name of --body-length"),
        (["h:1", "--seconds", "5", "--duration", "5"], "--seconds is the former name of --duration"),
        (
            ["h:1", "--field", "a=1"],
            "The format standard has no custom field \"a\" in its requests; it has none at all."
        ),
        (
            ["h:1", "--api", "async", "--callbacks", "inline"],
            "--callbacks is for completion handlers, and --api async has none; leave it out."
        ),
        (["h:1", "--executor", "socket"], "--executor is for Swift tasks, and --api task has none; leave it out."),
        (["--self", "--type", "42"], "--self echoes type 1000: leave --type out."),
        (["h:1", "--type", "42", "--api", "typed"], "--api typed calls type 1004: leave --type out."),
        (
            ["h:1", "--type", "42", "--api", "stream"],
            "--type is for calls, and --api stream makes none without --calls."
        ),
        (["h:1", "--type", "5"], "5"),
        (["--self", "--server-pid", "1"], "--self knows its server's process; leave --server-pid out."),
        (["h:1", "--server-pid", "0"], "--server-pid is a process number, 1 or more, not 0."),
        (["h:1", "--api", "rpc"], "Please provide one of the following:"),
        (["h:1", "--api", "typed", "--body-length", "15"], "--body-length is a size from 16"),
        (["h:1", "--hello", "--format", "mars"], "The format mars cannot have hello: "),
        (["h:1", "--direction", "up"], "--direction is for --api stream; leave it out."),
        (["h:1", "--window", "1M"], "--window is for --api stream; leave it out."),
        (
            ["h:1", "--api", "stream", "--window", "2000M"],
            "--window is a number from 1024 to 1073741824, not 2097152000."
        ),
        (["h:1", "--api", "stream", "--direction", "left"], "Please provide one of 'down', 'up' or 'both'."),
        (["h:1", "--api", "stream", "--rate", "5"], "--rate is for calls, and the items of --api stream leave"),
        (["h:1", "--api", "stream", "--hello"], "--hello is for calls: with --api stream connections begin with a"),
        (
            ["h:1", "--api", "stream", "--callbacks", "inline"],
            "--callbacks is for completion handlers, and --api stream"
        ),
        (["h:1", "--api", "stream", "--in-flight", "101"], "--in-flight is a number from 1 to 100, not 101."),
        (
            ["h:1", "--api", "stream", "--body-length", "17M"],
            "--body-length is a size from 0 to 16777216, not 17825792."
        ),
        (["h:1", "--api", "stream", "--format", "mars"], "The format mars cannot have streams: "),
        (
            ["--parse", "--direction", "up"],
            "--direction: only for calls, and --parse makes none; leave one or the other"
        ),
        (["--parse", "--hello"], "--hello: only for calls, and --parse makes none; leave one or the other out."),
    ])
    func wrongUsageIsExplained(arguments: [String], message: String) async throws {
        let outcome = try await WrongUsage(parsing: ["bench"] + arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.contains(message), "\(outcome.errors)")
    }
}

@Suite(.timeLimit(.minutes(5))) struct ChildProcessTests {
    private func isThere(_ process: ChildProcess) -> Bool { kill(process.pid, 0) == 0 }

    @Test func itsFirstLineIsReadAndItIsKilled() async throws {
        let process = try ChildProcess(["/bin/sh", "-c", "echo a line; exec cat"])
        #expect(await process.firstLine() == "a line")
        #expect(self.isThere(process))
        process.kill()
        #expect(!self.isThere(process))
        process.kill()
    }

    @Test func aCancelledWaitForALineKillsIt() async throws {
        let process = try ChildProcess(["/bin/cat"])
        let waiting = Task { await process.firstLine() }
        waiting.cancel()
        #expect(await waiting.value == "")
        #expect(!self.isThere(process))
    }

    @Test func missingProgramIsAnError() throws {
        let error = #expect(throws: ChildProcess.CannotStart.self) { try ChildProcess(["/nowhere/program"]) }
        #expect(error?.program == "/nowhere/program")
        #expect(error?.errno == ENOENT)
    }
}
