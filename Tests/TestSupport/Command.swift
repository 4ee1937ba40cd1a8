// SPDX-License-Identifier: Apache-2.0
package import Foundation

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

/// A process, of `hhsocket` by default.
package final class Command: Sendable {
    package struct Outcome: Sendable {
        package var exitCode: Int32
        package var output: Data
        package var errors: String

        package var text: String { String(decoding: self.output, as: UTF8.self) }
        package var lines: [String] { self.text.split(separator: "\n").map(String.init) }
        /// The complete lines of the output; a signal may have cut off the last one.
        package var wholeLines: [String] { Command.wholeLines(self.output) }
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

        /// The outcome; nil while the process runs, or while some of its output may be missing.
        var outcome: Outcome? {
            guard self.openPipes == 0, let exitCode = self.exitCode else { return nil }
            return Outcome(
                exitCode: exitCode,
                output: self.output,
                errors: String(decoding: self.errors, as: UTF8.self)
            )
        }
    }

    /// The identifier of the process.
    package let process: pid_t
    /// The standard input, while it is kept open.
    private let stdin: CInt?
    private let state: Watched<State>

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

    /// The first program of this name in PATH, or in folders that may not be in it.
    package static func installed(_ name: String, or folders: [String] = []) -> URL? {
        let path = ProcessInfo.processInfo.environment["PATH"]?.split(separator: ":").map(String.init) ?? []
        return (path + folders).lazy
            .map { URL(fileURLWithPath: $0).appendingPathComponent(name) }
            .first { FileManager.default.isExecutableFile(atPath: $0.path) }
    }

    /// Starts a process.
    ///
    /// - Parameter keepsInputOpen: Whether its standard input ends only with the process, and not after `input`.
    package init(
        _ arguments: [String],
        of executable: URL = Command.hhsocket,
        input: Data = Data(),
        keepsInputOpen: Bool = false
    ) throws {
        let state = Watched(State())
        ignoreBrokenPipes()
        let process = try SpawnedProcess([executable.path] + arguments, errors: .piped)
        let stdin = process.stdin
        self.process = process.pid
        self.state = state
        self.stdin = keepsInputOpen ? stdin : nil
        // Separate threads: the few threads of the tests may all be waiting for this output.
        Self.drain(process.stdout) { data in
            state.withLockedValue { $0.output += data }
        } end: {
            state.withLockedValue { $0.openPipes -= 1 }
        }
        Self.drain(process.stderr) { data in
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
            let exitCode = process.waitForEnd() ?? -1
            if keepsInputOpen { close(stdin) }
            state.withLockedValue { $0.exitCode = exitCode }
        }
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

    /// The output so far.
    package var output: String { self.state.withLockedValue { String(decoding: $0.output, as: UTF8.self) } }
    package var errors: String { self.state.withLockedValue { String(decoding: $0.errors, as: UTF8.self) } }

    /// Writes a line to its standard input, which must have been kept open.
    package func type(_ line: String) throws {
        guard let stdin = self.stdin else { throw Unexpected(description: "its standard input is closed") }
        let bytes = Array("\(line)\n".utf8)
        guard write(stdin, bytes, bytes.count) == bytes.count else {
            throw Unexpected(description: "cannot write to it: errno \(errno)")
        }
    }

    package func signal(_ number: CInt) {
        // Not once the process was waited for: its identifier may belong to another one by then.
        self.state.withLockedValue { if $0.exitCode == nil { kill(self.process, number) } }
    }

    /// Returns when the process has ended; one that does not end in time is killed.
    package func outcome(
        within time: Duration = patience,
        fileID: String = #fileID,
        line: Int = #line
    ) async throws -> Outcome {
        do {
            return try await self.state.value("the end of the process", within: time, fileID: fileID, line: line) {
                $0.outcome
            }
        } catch {
            self.signal(SIGKILL)
            throw Unexpected(description: "\(error); it printed \"\(self.output)\" and \"\(self.errors)\"")
        }
    }

    /// Runs a process to its end.
    package static func run(
        _ arguments: [String],
        of executable: URL = Command.hhsocket,
        input: Data = Data(),
        within time: Duration = patience,
        fileID: String = #fileID,
        line: Int = #line
    ) async throws -> Outcome {
        try await Command(arguments, of: executable, input: input).outcome(within: time, fileID: fileID, line: line)
    }

    /// Waits for the first `count` lines of the output, and returns them.
    ///
    /// - Throws: ``Unexpected`` if it ends before.
    package func lines(
        _ count: Int = 1,
        within time: Duration = patience,
        fileID: String = #fileID,
        line: Int = #line
    ) async throws -> [String] {
        try await self.found("\(count) lines of its output", within: time, fileID, line) { state in
            let lines = Self.wholeLines(state.output)
            return lines.count >= count ? Array(lines.prefix(count)) : nil
        }
    }

    private static func wholeLines(_ output: Data) -> [String] {
        String(decoding: output, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
            .dropLast().map(String.init)
    }

    /// Waits until the output contains `text`.
    ///
    /// - Throws: ``Unexpected`` if it ends before.
    package func prints(_ text: String, fileID: String = #fileID, line: Int = #line) async throws {
        try await self.prints("\"\(text)\"", fileID: fileID, line: line) { $0.contains(text) ? () : nil }
    }

    /// Waits until `find` finds something in the output, and returns it.
    ///
    /// - Throws: ``Unexpected`` if it ends before.
    package func prints<Found: Sendable>(
        _ what: String,
        fileID: String = #fileID,
        line: Int = #line,
        find: @escaping @Sendable (String) -> Found?
    ) async throws -> Found {
        try await self.found("\(what) in its output", fileID, line) { state in
            find(String(decoding: state.output, as: UTF8.self))
        }
    }

    /// Acts as ``prints(_:fileID:line:)``, with the standard error.
    package func complains(_ text: String, fileID: String = #fileID, line: Int = #line) async throws {
        try await self.complains("\"\(text)\"", fileID: fileID, line: line) { $0.contains(text) ? () : nil }
    }

    /// Acts as ``prints(_:fileID:line:find:)``, with the standard error.
    package func complains<Found: Sendable>(
        _ what: String,
        fileID: String = #fileID,
        line: Int = #line,
        find: @escaping @Sendable (String) -> Found?
    ) async throws -> Found {
        try await self.found("\(what) among its errors", fileID, line) { state in
            find(String(decoding: state.errors, as: UTF8.self))
        }
    }

    private func found<Found: Sendable>(
        _ what: String,
        within time: Duration = patience,
        _ fileID: String,
        _ line: Int,
        _ find: @escaping @Sendable (State) -> Found?
    ) async throws -> Found {
        let found: Found? = try await self.state.value(what, within: time, fileID: fileID, line: line) {
            state -> Found?? in
            if let found = find(state) { return .some(found) }
            return state.outcome == nil ? nil : .some(nil)
        }
        guard let found else {
            throw Unexpected(
                description: "it ended without \(what) (\(fileID):\(line)); "
                    + "it printed \"\(self.output)\" and \"\(self.errors)\""
            )
        }
        return found
    }
}

private func ignoreBrokenPipes() {
    signal(SIGPIPE, SIG_IGN)
}

/// Runs `hhsocket serve` while `body` runs, which gets its address and the process.
package func withServe<Result: Sendable>(
    _ arguments: [String] = [],
    _ body: (String, Command) async throws -> Result
) async throws -> Result {
    try await withServer(Command(["serve", "--port", "0"] + arguments), body)
}

/// Runs `body` once `server` has printed its address, as the last word of its first line. Then ends the server, which
/// must exit with code 0 and must not have printed anything else.
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
