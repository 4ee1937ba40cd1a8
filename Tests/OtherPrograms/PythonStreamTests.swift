// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import NIOCore
import TestSupport
import Testing

/// The streams of `Examples/python` with those of this package, in both directions.
@Suite(.tags(.io), .enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)), .timeLimit(.minutes(5)))
struct PythonStreamTests {
    /// The windows that Python announces: the defaults, and ones so small that each item is divided.
    private static let windows = [[], ["--stream-window", "1000", "--connection-window", "3000"]]
    private static let lines = (0..<2_000).map { "line \($0)\n" }.joined()

    private func withPythonServer(_ windows: [String], _ body: (String) async throws -> Void) async throws {
        try await withServer(Python.streams(windows + ["serve", "--port", "0"])) { address, server in
            try await body(address)
            #expect(server.errors == "")
        }
    }

    @Test(arguments: Self.windows)
    func pythonsServerAnswersTheCommand(windows: [String]) async throws {
        try await self.withPythonServer(windows) { address in
            let call = ["call", address, "--timeout", "120", "--type"]
            let counted = try await Command.run(call + ["1010", "--stream", "--body", "3 200000"])
            #expect(counted.exitCode == 0, "\(counted.errors)")
            #expect(counted.text == String(repeating: String(repeating: "x", count: 200_000) + "\n", count: 3))

            let echoed = try await Command.run(call + ["1012", "--items"], input: Data(Self.lines.utf8))
            #expect(echoed.exitCode == 0, "\(echoed.errors)")
            #expect(echoed.text == Self.lines)

            let long = String(repeating: "y", count: 100_000)
            let digest = try await Command.run(call + ["1011", "--items"], input: Data("\(long)\n\nabc".utf8))
            #expect(digest.exitCode == 0, "\(digest.errors)")
            #expect(digest.text.hasPrefix("3 100003 "), "\(digest.text)")

            let refused = try await Command.run(call + ["1010", "--stream", "--body", "many"])
            #expect(refused.exitCode == 1)
            #expect(refused.errors.hasPrefix("error: illegalFormat: "), "\(refused.errors)")
        }
    }

    private func withSwiftServer(_ body: (String) async throws -> Void) async throws {
        var router = Router()
        router.stream(1010, kind: .serverStreaming) { stream, _ in
            let words = String(buffer: stream.request.body).split(separator: " ").compactMap { Int($0) }
            guard words.count == 2 else { throw StatusError(.illegalFormat) }
            for _ in 0..<words[0] { try await stream.send(ByteBuffer(repeating: UInt8(ascii: "x"), count: words[1])) }
            return ByteBuffer()
        }
        router.stream(1011, kind: .clientStreaming) { stream, _ in
            var (count, length) = (0, 0)
            for try await item in stream.items { (count, length) = (count + 1, length + item.readableBytes) }
            return ByteBuffer(string: "\(count) \(length)")
        }
        router.stream(1012, kind: .bidirectional) { stream, _ in
            for try await item in stream.items { try await stream.send(item) }
            return ByteBuffer()
        }
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let address = try #require(server.address)
        let result = await Result { try await body("\(address)") }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
    }

    @Test(arguments: Self.windows)
    func pythonsClientIsAnswered(windows: [String]) async throws {
        try await self.withSwiftServer { address in
            func call(_ arguments: [String], input: String = "") async throws -> Command.Outcome {
                try await Python.streams(windows + ["call", address] + arguments, input: Data(input.utf8)).outcome()
            }
            let counted = try await call(["--type", "1010", "--body", "3 200000"])
            #expect(counted.exitCode == 0, "\(counted.errors)")
            #expect(counted.text == String(repeating: String(repeating: "x", count: 200_000) + "\n", count: 3))

            let echoed = try await call(["--type", "1012", "--items"], input: Self.lines)
            #expect(echoed.exitCode == 0, "\(echoed.errors)")
            #expect(echoed.text == Self.lines)

            let long = String(repeating: "y", count: 1_000_000)
            let digest = try await call(["--type", "1011", "--items"], input: "\(long)\n\nabc")
            #expect(digest.exitCode == 0, "\(digest.errors)")
            #expect(digest.text == "3 1000003")

            let refused = try await call(["--type", "1010", "--body", "many"])
            #expect(refused.exitCode == 1)
            #expect(refused.errors.hasPrefix("error: 303: "), "\(refused.errors)")
        }
    }
}
