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

    /// Its number.
    package let process: pid_t
    /// Its standard input, while it is kept open.
    private let stdin: CInt?
    private let state: NIOLockedValueBox<State>

    /// The command line tool.
    package static var hhsocket: URL { self.executable("hhsocket-cli") }

    /// An executable of the package, which SwiftPM puts beside the tests.
    package static func executable(_ name: String) -> URL {
        let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL ?? Bundle.main.bundleURL
        let candidates = [
            bundle, bundle.deletingLastPathComponent(),
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent(),
        ]
        let executables = candidates.map { $0.appendingPathComponent(name) }
        return executables.first { FileManager.default.isExecutableFile(atPath: $0.path) } ?? executables[1]
    }

    /// Starts it.
    ///
    /// - Parameter keepsInputOpen: Whether its standard input ends with the process alone, and not after `input`.
    package init(
        _ arguments: [String],
        of executable: URL = Command.hhsocket,
        input: Data = Data(),
        keepsInputOpen: Bool = false
    ) throws {
        let state = NIOLockedValueBox(State())
        let (process, stdin, stdout, stderr) = try Self.spawn([executable.path] + arguments)
        self.process = process
        self.state = state
        self.stdin = keepsInputOpen ? stdin : nil
        // Threads of their own: the tests' few may all be waiting for what is read here.
        Self.drain(stdout) { data in
            state.withLockedValue { $0.output += data }
        } end: {
            state.withLockedValue { $0.openPipes -= 1 }
        }
        Self.drain(stderr) { data in
            state.withLockedValue { $0.errors += data }
        } end: {
            state.withLockedValue { $0.openPipes -= 1 }
        }
        Thread.detachNewThread {
            input.withUnsafeBytes { bytes in
                var rest = bytes
                while let start = rest.baseAddress, !rest.isEmpty {
                    let count = write(stdin, start, rest.count)
                    guard count > 0 || errno == EINTR else { break }
                    rest = UnsafeRawBufferPointer(rebasing: rest[max(0, count)...])
                }
            }
            if !keepsInputOpen { close(stdin) }
        }
        Thread.detachNewThread {
            var status: CInt = 0
            while waitpid(process, &status, 0) == -1, errno == EINTR {}
            // As a shell has it: of a signal it is the number and 128.
            let exitCode = status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
            if keepsInputOpen { close(stdin) }
            state.withLockedValue { $0.exitCode = exitCode }
        }
    }

    /// Not Foundation's `Process`: its child inherits the blocked signals of the thread that starts it, which may be all of
    /// them, so that it would never hear that it is to end; and with more than a thousand descriptors open, as tests may
    /// have, it reads beyond a buffer.
    private static func spawn(
        _ arguments: [String]
    ) throws -> (process: pid_t, stdin: CInt, stdout: CInt, stderr: CInt) {
        ignoreBrokenPipes()
        var pipes: [[CInt]] = []
        for _ in 0..<3 {
            var ends: [CInt] = [-1, -1]
            guard pipe(&ends) == 0 else { throw Unexpected(description: "no pipe: \(errno)") }
            pipes.append(ends)
        }
        #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        var attributes: posix_spawnattr_t?
        #else
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        #endif
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipes[0][0], STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, pipes[1][1], STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, pipes[2][1], STDERR_FILENO)
        // The sockets of other tests are not for it: a port that is closed here would still be open there.
        #if !canImport(Darwin)
        let descriptors = STDERR_FILENO + 1..<min(getdtablesize(), 1 << 16)
        let highest = descriptors.last { fcntl($0, F_GETFD) != -1 } ?? STDERR_FILENO
        // Some more, for those that are opened in this moment.
        for descriptor in descriptors.prefix(while: { $0 < highest + 64 }) {
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }
        #endif
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for number in [SIGPIPE, SIGINT, SIGTERM] { sigaddset(&signals, number) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        #if canImport(Darwin)
        let flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF) | CInt(POSIX_SPAWN_CLOEXEC_DEFAULT)
        #else
        let flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF)
        #endif
        posix_spawnattr_setflags(&attributes, Int16(flags))

        var process = pid_t()
        var argv = arguments.map { strdup($0) } + [nil]
        var environment = ProcessInfo.processInfo.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + environment { free(text) } }
        let result = posix_spawn(&process, arguments[0], &actions, &attributes, &argv, &environment)
        for end in [pipes[0][0], pipes[1][1], pipes[2][1]] { close(end) }
        guard result == 0 else {
            for end in [pipes[0][1], pipes[1][0], pipes[2][0]] { close(end) }
            throw Unexpected(description: "\(arguments[0]) cannot be run: error \(result)")
        }
        return (process, pipes[0][1], pipes[1][0], pipes[2][0])
    }

    private static func drain(
        _ descriptor: CInt,
        _ take: @escaping @Sendable (Data) -> Void,
        end: @escaping @Sendable () -> Void
    ) {
        Thread.detachNewThread {
            var buffer = [UInt8](repeating: 0, count: 1 << 16)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count > 0 { take(Data(buffer[..<count])) } else if count == 0 || errno != EINTR { break }
            }
            close(descriptor)
            end()
        }
    }

    deinit {
        self.signal(SIGKILL)
    }

    /// What it has printed so far.
    package var output: String { self.state.withLockedValue { String(decoding: $0.output, as: UTF8.self) } }
    package var errors: String { self.state.withLockedValue { String(decoding: $0.errors, as: UTF8.self) } }

    /// Writes a line to its standard input, which was to be kept open.
    package func type(_ line: String) throws {
        guard let stdin = self.stdin else { throw Unexpected(description: "its standard input is closed") }
        let bytes = Array("\(line)\n".utf8)
        guard write(stdin, bytes, bytes.count) == bytes.count else {
            throw Unexpected(description: "cannot write to it: errno \(errno)")
        }
    }

    package func signal(_ number: CInt) {
        // Not once it has been waited for: the number may be another's by then.
        self.state.withLockedValue { if $0.exitCode == nil { kill(self.process, number) } }
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

private func ignoreBrokenPipes() {
    signal(SIGPIPE, SIG_IGN)
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
