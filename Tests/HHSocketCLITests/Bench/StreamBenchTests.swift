// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
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

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamBenchTests {
    private static let short = ["--warmup", "50ms", "--duration", "300ms"]

    @Test(arguments: [
        [], ["--direction", "down", "--in-flight", "3"], ["--direction", "up"], ["--direction", "both"],
        ["--direction", "up", "--executor", "socket"],
        ["--direction", "both", "--in-flight", "10"],
        ["--direction", "both", "--connections", "3", "--in-flight", "2", "--threads", "2", "--executor", "socket"],
        ["--window", "1M", "--body-length", "64K"], ["--window", "1K"],
        ["--body-length", "0"], ["--body-length", "0", "--direction", "both"],
        ["--body-length", "300000"],
        ["--body-length", "300000", "--direction", "up"], ["--body", "64K", "--direction", "both"],
    ])
    func streamsAreMeasured(arguments: [String]) async throws {
        try await withServe([]) { address, _ in
            let outcome = try await Command.run(
                ["bench", address, "--api", "stream", "--json", "--peer", "a \"peer\""] + Self.short + arguments
            )
            #expect(outcome.exitCode == 0)
            #expect(outcome.errors == "")
            #expect(outcome.lines.count == 1)
            let object = try #require(try outcome.objects().first)
            func option(_ name: String) -> String? {
                arguments.firstIndex(of: name).map { arguments[$0 + 1] }
            }
            #expect(object["peer"] as? String == "a \"peer\"")
            #expect(object["workload"] as? String == "stream")
            #expect(object["api"] as? String == "stream")
            #expect(object["direction"] as? String == option("--direction") ?? "down")
            #expect(object["executor"] as? String == option("--executor") ?? "global")
            let length = try (option("--body-length") ?? option("--body")).map(SizeArgument.parse) ?? 128
            #expect(object["body"] as? Int == length)
            #expect(object["inflight"] as? Int == Int(option("--in-flight") ?? "1"))
            #expect(object["connections"] as? Int == Int(option("--connections") ?? "1"))
            #expect(object["window"] as? Int == (try option("--window").map(SizeArgument.parse)))
            #expect(object["interrupted"] as? Bool == false)
            let seconds = try #require(object["seconds"] as? Double)
            #expect(seconds > 0)
            let items = try #require(object["items"] as? Int)
            let rate = try #require(object["items_per_s"] as? Double)
            // The seconds have three digits, and the rates one and three. On a busy machine there may be no item in so
            // short a time.
            let (second, item, megabyte) = (0.000_51, 0.051, 0.000_51)
            #expect(abs(rate * seconds - Double(items)) <= rate * second + item * seconds)
            let megabytes = try #require(object["mb_per_s"] as? Double)
            #expect(abs(megabytes - rate * Double(length) / 1e6) <= megabyte + item * Double(length) / 1e6)
            #expect((object["client_cpu_s"] as? Double ?? -1) >= 0)
            #expect(object["server_cpu_s"] is NSNull)
        }
    }

    @Test(arguments: StreamDirection.allCases) func itemsAreCounted(_ direction: StreamDirection) async throws {
        let outcome = try await Command.run(
            ["bench", "--self", "--api", "stream", "--direction", direction.rawValue, "--json", "--duration", "5s"]
        )
        #expect(try #require(try outcome.objects().first?["items"] as? Int) > 0)
    }

    @Test func theReportOfAServerOfItsOwnIsForPeople() async throws {
        let outcome = try await Command.run(
            // Long enough for an item on a busy machine: without one, there is no time per item.
            ["bench", "--self", "--api", "stream", "--direction", "both", "--in-flight", "2", "--duration", "3s"]
        )
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        try #require(outcome.lines.count == 3)
        #expect(
            outcome.lines[0].wholeMatch(
                of: #/hhsocket at [0-9.:]+: 128 B items echoed by the server, 2 streams, global executor/#
            ) != nil
        )
        #expect(outcome.lines[1].wholeMatch(of: #/[0-9,]+ items in .* items/s, .* MB/s each way/#) != nil)
        #expect(outcome.lines[2].hasPrefix("CPU time for each item: client "))
    }

    /// Measures a server with `handler` for its streams.
    private func outcome(
        _ direction: StreamDirection,
        _ arguments: [String] = [],
        _ handler: @escaping @Sendable (ServerStream) async throws -> ByteBuffer
    ) async throws -> Command.Outcome {
        var router = Router()
        router.stream(direction.type, kind: direction.kind) { stream, _ in try await handler(stream) }
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let address = try #require(server.address)
        let result = await Result {
            try await Command.run(
                ["bench", "\(address)", "--api", "stream", "--direction", direction.rawValue, "--seconds", "600"]
                    + arguments
            )
        }
        await server.shutdown(gracePeriod: .zero)
        return try result.get()
    }

    private func expect(_ outcome: Command.Outcome, _ error: String) {
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors == "error: \(error)\n")
    }

    @Test func anItemOfAnotherLengthIsFound() async throws {
        for direction in [StreamDirection.down, .both] {
            let outcome = try await self.outcome(direction) { stream in
                try await stream.send(ByteBuffer(repeating: 0, count: 127))
                return ByteBuffer()
            }
            self.expect(outcome, "item 1 has 127 bytes instead of 128")
        }
    }

    @Test func itemsThatAreMissingOrTooManyAreFound() async throws {
        self.expect(
            try await self.outcome(.down) { _ in ByteBuffer() },
            "wrong number of items on a stream: 0, and not 1"
        )
        let twice = try await self.outcome(.both) { stream in
            for try await item in stream.items {
                try await stream.send(item)
                try await stream.send(item)
            }
            return ByteBuffer()
        }
        self.expect(twice, "wrong number of items on a stream: 2, and not 1")
        self.expect(
            try await self.outcome(.up) { stream in
                for try await _ in stream.items {}
                return ByteBuffer(string: "1 127")
            },
            "wrong number of items and bytes on a stream: 1 127, and not 1 128"
        )
    }

    @Test func aStreamThatEndsTooEarlyIsFound() async throws {
        let outcome = try await self.outcome(.down, ["--body-length", "1K"]) { stream in
            // All requested items at first, and then fewer.
            let count = try #require(BuiltIn.items(in: stream.request.body)).count
            for _ in 0..<min(count, 1_000) { try await stream.send(ByteBuffer(repeating: 0, count: 1_024)) }
            return ByteBuffer()
        }
        self.expect(outcome, "wrong number of items on a stream: 1000, and not 1000000")
    }

    @Test func aStreamThatFailsEndsIt() async throws {
        let outcome = try await self.outcome(.both, ["--in-flight", "3"]) { stream in
            var count = 0
            for try await item in stream.items {
                count += 1
                guard count < 50 else { throw StatusError(.overloaded) }
                try await stream.send(item)
            }
            return ByteBuffer()
        }
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: overloaded: "), "\(outcome.errors)")
    }

    @Test func aServerWithoutStreamsIsAnError() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello(features: [.metadata])
        let outcome = try await Command.run(["bench", "\(server.endpoint)", "--api", "stream", "--seconds", "600"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.output.isEmpty)
        #expect(outcome.errors.hasPrefix("error: featureNotAgreed: "), "\(outcome.errors)")
    }

    @Test(arguments: StreamDirection.allCases)
    func anInterruptionReportsWhatWasMeasuredByThen(direction: StreamDirection) async throws {
        let (hundred, continuation) = AsyncStream.makeStream(of: Void.self)
        var router = Router()
        router.stream(direction.type, kind: direction.kind) { stream, _ in
            var count = 0
            func passed() {
                count += 1
                if count == 100 { continuation.finish() }
            }
            if direction == .down {
                let (items, size) = try #require(BuiltIn.items(in: stream.request.body))
                for _ in 0..<items {
                    passed()
                    try await stream.send(ByteBuffer(repeating: 0, count: size))
                }
                return ByteBuffer()
            }
            var length = 0
            for try await item in stream.items {
                passed()
                length += item.readableBytes
                if direction == .both { try await stream.send(item) }
            }
            return ByteBuffer(string: "\(count) \(length)")
        }
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let address = try #require(server.address)
        let bench = try Command(
            ["bench", "\(address)", "--api", "stream", "--direction", direction.rawValue, "--warmup", "0"]
                + ["--seconds", "600", "--json"]
        )
        for await _ in hundred {}
        bench.signal(SIGINT)
        let outcome = try await bench.outcome()
        await server.shutdown(gracePeriod: .zero)
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors == "error: interrupted; the report is of the items until then\n")
        #expect(outcome.lines.count == 1)
        let object = try #require(try outcome.objects().first)
        #expect(object["interrupted"] as? Bool == true)
        #expect((object["seconds"] as? Double ?? 600) < 600)
    }
}
