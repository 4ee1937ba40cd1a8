import Foundation
import NIOConcurrencyHelpers

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

struct TimedOut: Error {}
struct Unexpected: Error, CustomStringConvertible {
    var description: String
}

/// `hhsocket` as a process.
final class Command: Sendable {
    struct Outcome: Sendable {
        var exitCode: Int32
        var output: Data
        var errors: String

        var text: String { String(decoding: self.output, as: UTF8.self) }
        var lines: [String] { self.text.split(separator: "\n").map(String.init) }
        var errorLines: [String] { self.errors.split(separator: "\n").map(String.init) }

        /// Each line of the output as a JSON object.
        func objects() throws -> [[String: any Sendable]] {
            try self.lines.map { line in
                guard let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: any Sendable]
                else { throw Unexpected(description: "not an object: \(line)") }
                return object
            }
        }
    }

    private struct State {
        var output = Data()
        var errors = Data()
        var openPipes = 2
        var exitCode: Int32?
    }

    private let process: Process
    private let state: NIOLockedValueBox<State>

    /// The executable, which SwiftPM puts beside the tests.
    static var executable: URL {
        let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL ?? Bundle.main.bundleURL
        let candidates = [
            bundle, bundle.deletingLastPathComponent(),
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent(),
        ]
        let executables = candidates.map { $0.appendingPathComponent("hhsocket-cli") }
        return executables.first { FileManager.default.isExecutableFile(atPath: $0.path) } ?? executables[1]
    }

    /// Starts it.
    init(_ arguments: [String], input: Data = Data()) throws {
        let process = Process()
        process.executableURL = Self.executable
        process.arguments = arguments
        let state = NIOLockedValueBox(State())
        let stdin = Pipe()
        let stdout = Pipe()
        let stderr = Pipe()
        process.standardInput = stdin
        process.standardOutput = stdout
        process.standardError = stderr
        process.terminationHandler = { process in
            state.withLockedValue { $0.exitCode = process.terminationStatus }
        }
        try process.run()
        self.process = process
        self.state = state
        // Threads of their own: the tests' few may all be waiting for what is read here.
        Self.drain(stdout.fileHandleForReading) { data in
            state.withLockedValue { $0.output += data }
        } end: {
            state.withLockedValue { $0.openPipes -= 1 }
        }
        Self.drain(stderr.fileHandleForReading) { data in
            state.withLockedValue { $0.errors += data }
        } end: {
            state.withLockedValue { $0.openPipes -= 1 }
        }
        let writing = stdin.fileHandleForWriting
        Thread.detachNewThread {
            try? writing.write(contentsOf: input)
            try? writing.close()
        }
    }

    private static func drain(
        _ handle: FileHandle,
        _ take: @escaping @Sendable (Data) -> Void,
        end: @escaping @Sendable () -> Void
    ) {
        Thread.detachNewThread {
            while case let data = handle.availableData, !data.isEmpty { take(data) }
            end()
        }
    }

    deinit {
        if self.process.isRunning { kill(self.process.processIdentifier, SIGKILL) }
    }

    /// What it has printed so far.
    var output: String { self.state.withLockedValue { String(decoding: $0.output, as: UTF8.self) } }
    var errors: String { self.state.withLockedValue { String(decoding: $0.errors, as: UTF8.self) } }

    func signal(_ number: CInt) {
        kill(self.process.processIdentifier, number)
    }

    /// Returns when it has ended.
    func outcome(within time: Duration = .seconds(120)) async throws -> Outcome {
        do {
            return try await value(within: time) {
                self.state.withLockedValue { state in
                    guard state.openPipes == 0, let exitCode = state.exitCode else { return nil }
                    return Outcome(
                        exitCode: exitCode,
                        output: state.output,
                        errors: String(decoding: state.errors, as: UTF8.self)
                    )
                }
            }
        } catch {
            self.signal(SIGKILL)
            throw Unexpected(description: "still running; it printed \"\(self.output)\" and \"\(self.errors)\"")
        }
    }

    /// Runs it to its end.
    static func run(
        _ arguments: [String],
        input: Data = Data(),
        within time: Duration = .seconds(120)
    ) async throws -> Outcome {
        try await Command(arguments, input: input).outcome(within: time)
    }

    /// The first `count` lines of its output, once they are there.
    func lines(_ count: Int = 1) async throws -> [String] {
        try await value {
            let output = self.output
            let lines = output.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
            return lines.count >= count ? lines.prefix(count).map(String.init) : nil
        }
    }
}

/// Asks until there is a value.
func value<Value: Sendable>(
    within time: Duration = .seconds(120),
    _ body: @Sendable () async throws -> Value?
) async throws -> Value {
    let deadline = ContinuousClock.now + time
    while true {
        if let value = try await body() { return value }
        guard ContinuousClock.now < deadline else { throw TimedOut() }
        try await Task.sleep(for: .milliseconds(2))
    }
}

/// Runs `hhsocket serve` around `body`, which is given its address and the process.
func withServe<Result: Sendable>(
    _ arguments: [String] = [],
    _ body: (String, Command) async throws -> Result
) async throws -> Result {
    let server = try Command(["serve", "--port", "0"] + arguments)
    guard let line = try await server.lines().first, let address = line.split(separator: " ").last else {
        throw Unexpected(description: "no first line")
    }
    do {
        let result = try await body(String(address), server)
        server.signal(SIGTERM)
        let outcome = try await server.outcome()
        guard outcome.exitCode == 0, outcome.lines.count == 1 else {
            throw Unexpected(description: "serve ended with \(outcome)")
        }
        return result
    } catch {
        server.signal(SIGKILL)
        throw error
    }
}
