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

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MessageBenchTests {
    @Test(arguments: [
        ["--api", "message"], ["--api", "line"], ["--api", "message", "--in-flight", "1", "--body-length", "2"],
        ["--api", "message", "--connections", "3", "--in-flight", "5", "--threads", "2"],
        ["--api", "line", "--connections", "2", "--body-length", "1000"],
        ["--api", "message", "--body-length", "100K", "--in-flight", "2"],
    ])
    func messagesAreMeasured(arguments: [String]) async throws {
        // A slow machine may complete none in a short time.
        let (outcome, report) = try await withGrowingTimeout { duration -> (Command.Outcome, [String: any Sendable]?) in
            let times = ["--warmup", "50ms", "--duration", "\(Int(duration / .milliseconds(1)))ms"]
            let outcome = try await Command.run(["bench", "--self", "--json"] + times + arguments)
            return (outcome, try outcome.objects().first)
        } until: {
            $0.0.exitCode != 0 || $0.1?["calls"] as? Int != 0
        }
        #expect(outcome.exitCode == 0)
        #expect(outcome.errors == "")
        let object = try #require(report)
        func option(_ name: String) -> String? { arguments.firstIndex(of: name).map { arguments[$0 + 1] } }
        #expect(object["api"] as? String == option("--api"))
        #expect(object["body"] as? Int == (try SizeArgument.parse(option("--body-length") ?? "128")))
        #expect(object["inflight"] as? Int == Int(option("--in-flight") ?? "64"))
        #expect(object["connections"] as? Int == Int(option("--connections") ?? "1"))
        #expect(object["callbacks"] is NSNull)
        #expect(object["executor"] is NSNull)
        #expect((object["calls"] as? Int ?? 0) > 0)
        #expect((object["p50_us"] as? Double ?? 0) > 0)
    }

    @Test(arguments: [
        (MockWebSocketServer.Reaction.text("x"), "wrong answer to call "), (.reset, "connectionLost: "),
        (.close(code: 1_011), "the server closed the connection: "),
    ])
    func oneThatGoesWrongEndsIt(reaction: MockWebSocketServer.Reaction, error: String) async throws {
        let count = NIOLockedValueBox(0)
        let server = try await MockWebSocketServer(
            .respond { _ in
                let number = count.withLockedValue { count in
                    count += 1
                    return count
                }
                return number < 50 ? .echo : reaction
            }
        )
        let outcome = try await Command.run(
            ["bench", server.url, "--api", "message", "--seconds", "600", "--in-flight", "4"]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errorLines.count == 1)
        #expect(outcome.errors.hasPrefix("error: \(error)"), "\(outcome.errors)")
    }

    /// The first one is closed while the next ones are made.
    @Test func aConnectionThatEndsBeforeTheMeasurementEndsIt() async throws {
        let server = try await MockWebSocketServer(.echo)
        server.once(.echo.then(.close(code: 1_011)))
        let outcome = try await Command.run(
            ["bench", server.url, "--api", "message", "--connections", "5", "--seconds", "600"]
        )
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: the server closed the connection: "), "\(outcome.errors)")
    }

    @Test(arguments: ["message", "line"])
    func aServerThatIsNotThereIsReportedAtOnce(api: String) async throws {
        let dead = try await MockServer.closedEndpoint()
        let address = api == "message" ? "ws://\(dead)/" : "\(dead)"
        let outcome = try await Command.run(["bench", address, "--api", api, "--seconds", "600"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.hasPrefix("error: connectionRefused: "), "\(outcome.errors)")
    }

    @Test func anInterruptionDoesNotWaitForEchoes() async throws {
        let server = try await MockWebSocketServer(.drop)
        server.once(.echo)
        let bench = try Command(
            ["bench", server.url, "--api", "message", "--warmup", "0", "--seconds", "600", "--json"]
        )
        try await server.received(65)
        bench.signal(SIGTERM)
        let outcome = try await bench.outcome()
        #expect(outcome.exitCode == 1)
        #expect(outcome.text.contains(#""calls":0,"#))
        #expect(outcome.text.contains(#""interrupted":true"#))
    }

    @Test(arguments: [
        (["h:1", "--api", "message"], "--api message needs a server written as ws://HOST:PORT/PATH, not h:1."),
        (["ws://h:1/", "--api", "line"], "--api line needs a server written as HOST:PORT, not ws://h:1/."),
        (["h:1", "--api", "line", "--type", "7"], "--type is for frames, and --api line sends none; leave it out."),
        (["h:1", "--api", "line", "--hello"], "--hello is for frames, and --api line sends none; leave it out."),
        (["h:1", "--api", "line", "--format", "plain"], "--format is for frames, and --api line sends none;"),
        (["h:1", "--api", "line", "--rate", "5"], "--rate is for calls; leave it out."),
        (["h:1", "--api", "line", "--window", "1M"], "--window is for --api stream; leave it out."),
        (["h:1", "--api", "line", "--executor", "socket"], "--executor is for Swift tasks, and --api line has none;"),
        (["h:1", "--api", "line", "--callbacks", "inline"], "--callbacks is for completion handlers, and --api line"),
        (["h:1", "--api", "line", "--body-length", "1"], "--body-length is a size from 2, which hold the call's"),
    ])
    func whatDoesNotFitIsRefused(arguments: [String], error: String) async throws {
        let outcome = try await Command.run(["bench"] + arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains(error), "\(outcome.errors)")
    }
}
