import Foundation
import NIOConcurrencyHelpers

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

package struct Unexpected: Error, CustomStringConvertible {
    package var description: String

    package init(description: String) {
        self.description = description
    }
}

/// A process, `hhsocket` if nothing else is said.
package final class Command: Sendable {
    package struct Outcome: Sendable {
        package var exitCode: Int32
        package var output: Data
        package var errors: String

        package var text: String { String(decoding: self.output, as: UTF8.self) }
        package var lines: [String] { self.text.split(separator: "\n").map(String.init) }
        package var errorLines: [String] { self.errors.split(separator: "\n").map(String.init) }

        /// Each line of the output as a JSON object.
        package func objects() throws -> [[String: any Sendable]] {
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
    package static var hhsocket: URL {
        let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL ?? Bundle.main.bundleURL
        let candidates = [
            bundle, bundle.deletingLastPathComponent(),
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent(),
        ]
        let executables = candidates.map { $0.appendingPathComponent("hhsocket-cli") }
        return executables.first { FileManager.default.isExecutableFile(atPath: $0.path) } ?? executables[1]
    }

    /// Starts it.
    package init(_ arguments: [String], of executable: URL = Command.hhsocket, input: Data = Data()) throws {
        let process = Process()
        process.executableURL = executable
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
        try Self.withoutBlockedSignals { try process.run() }
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

    /// A process inherits the blocked signals of the thread that starts it, and threads of the concurrency runtime block
    /// all: it would never hear that it is to end.
    private static func withoutBlockedSignals(_ body: () throws -> Void) rethrows {
        var none = sigset_t()
        var blocked = sigset_t()
        sigemptyset(&none)
        pthread_sigmask(SIG_SETMASK, &none, &blocked)
        defer { pthread_sigmask(SIG_SETMASK, &blocked, nil) }
        try body()
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
    package var output: String { self.state.withLockedValue { String(decoding: $0.output, as: UTF8.self) } }
    package var errors: String { self.state.withLockedValue { String(decoding: $0.errors, as: UTF8.self) } }

    package func signal(_ number: CInt) {
        kill(self.process.processIdentifier, number)
    }

    /// Returns when it has ended.
    package func outcome(within time: Duration = patience) async throws -> Outcome {
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
    package static func run(
        _ arguments: [String],
        of executable: URL = Command.hhsocket,
        input: Data = Data(),
        within time: Duration = patience
    ) async throws -> Outcome {
        try await Command(arguments, of: executable, input: input).outcome(within: time)
    }

    /// The first `count` lines of its output, once they are there.
    package func lines(_ count: Int = 1) async throws -> [String] {
        try await value {
            let output = self.output
            let lines = output.split(separator: "\n", omittingEmptySubsequences: false).dropLast()
            return lines.count >= count ? lines.prefix(count).map(String.init) : nil
        }
    }
}

/// Asks until there is a value.
package func value<Value: Sendable>(
    within time: Duration = patience,
    _ body: @Sendable () async throws -> Value?
) async throws -> Value {
    let deadline = ContinuousClock.now + time
    while true {
        if let value = try await body() { return value }
        guard ContinuousClock.now < deadline else { throw TimedOut(description: "nothing within \(time)") }
        try await Task.sleep(for: .milliseconds(2))
    }
}

/// Runs `hhsocket serve` around `body`, which is given its address and the process.
package func withServe<Result: Sendable>(
    _ arguments: [String] = [],
    _ body: (String, Command) async throws -> Result
) async throws -> Result {
    try await withServer(Command(["serve", "--port", "0"] + arguments), body)
}

/// Runs `body` once `server` has told on its first line, and last word, where it listens; then tells it to end, which it
/// must do with exit code 0 and without having printed anything else.
package func withServer<Result: Sendable>(
    _ server: Command,
    _ body: (String, Command) async throws -> Result
) async throws -> Result {
    do {
        guard let line = try await server.lines().first, let address = line.split(separator: " ").last else {
            throw Unexpected(description: "no first line")
        }
        let result = try await body(String(address), server)
        server.signal(SIGTERM)
        let outcome = try await server.outcome()
        guard outcome.exitCode == 0, outcome.lines.count == 1 else {
            throw Unexpected(description: "the server ended with \(outcome)")
        }
        return result
    } catch {
        server.signal(SIGKILL)
        throw error
    }
}
