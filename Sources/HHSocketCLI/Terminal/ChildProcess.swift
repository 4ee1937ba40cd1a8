import Foundation
import NIOConcurrencyHelpers

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Another process, whose standard input ends when this process does, however that comes about.
final class ChildProcess: Sendable {
    struct CannotStart: Error {
        var program: String
        var errno: CInt
    }

    let pid: pid_t
    private let stdout: CInt
    /// The end of its standard input that nothing is ever written to. Nil once the process was killed or waited for.
    private let stdin: NIOLockedValueBox<CInt?>

    /// Starts a program. Its standard error is ours.
    ///
    /// Not by Foundation's `Process`, whose child inherits the signals that the calling thread blocks. Those of Swift's
    /// tasks may block all, and the child would never hear that it is to end.
    ///
    /// - Parameter command: The program's path, and its arguments.
    init(_ command: [String]) throws(CannotStart) {
        guard let program = command.first else { throw CannotStart(program: "", errno: ENOENT) }
        let input = try Self.makePipe(program)
        let output: (read: CInt, write: CInt)
        do throws(CannotStart) {
            output = try Self.makePipe(program)
        } catch {
            for end in [input.read, input.write] { close(end) }
            throw error
        }
        let (pid, status) = Self.spawn(program, command, stdin: input.read, stdout: output.write)
        for end in [input.read, output.write] { close(end) }
        guard status == 0 else {
            for end in [input.write, output.read] { close(end) }
            throw CannotStart(program: program, errno: status)
        }
        self.pid = pid
        self.stdout = output.read
        self.stdin = NIOLockedValueBox(input.write)
    }

    deinit {
        self.kill()
        close(self.stdout)
    }

    /// Ends it at once, and returns when it has ended.
    func kill() {
        guard self.closeInput() else { return }
        _ = signal(SIGKILL)
        while waitpid(self.pid, nil, 0) == -1, errno == EINTR {}
    }

    /// Waits until it ends by itself, its standard input closed. Blocks.
    ///
    /// - Returns: Its exit code; nil if a signal ended it, or it was waited for before.
    func waitForEnd() -> CInt? {
        guard self.closeInput() else { return nil }
        var status: CInt = 0
        while waitpid(self.pid, &status, 0) == -1 {
            guard errno == EINTR else { return nil }
        }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : nil
    }

    /// Whether it was open: the first who closes it waits for the process, and nobody else. Once it was waited for, the
    /// number may be another's.
    private func closeInput() -> Bool {
        self.stdin.withLockedValue { stdin in
            guard let end = stdin else { return false }
            close(end)
            stdin = nil
            return true
        }
    }

    /// The first line that it writes; shorter if it ends before, or is killed.
    func firstLine() async -> String {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                // A thread, because reading blocks.
                Thread.detachNewThread { continuation.resume(returning: self.readLine()) }
            }
        } onCancel: {
            self.kill()
        }
    }

    private func readLine() -> String {
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while true {
            let count = read(self.stdout, &byte, 1)
            if count == -1, errno == EINTR { continue }
            guard count == 1, byte != UInt8(ascii: "\n") else { break }
            line.append(byte)
        }
        return String(decoding: line, as: UTF8.self)
    }

    private func signal(_ number: CInt) -> CInt {
        #if canImport(Glibc)
        Glibc.kill(self.pid, number)
        #elseif canImport(Musl)
        Musl.kill(self.pid, number)
        #elseif canImport(Darwin)
        Darwin.kill(self.pid, number)
        #endif
    }

    /// A pipe that children do not inherit, but where it is given to them by another number.
    private static func makePipe(_ program: String) throws(CannotStart) -> (read: CInt, write: CInt) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw CannotStart(program: program, errno: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    private static func spawn(
        _ program: String,
        _ command: [String],
        stdin: CInt,
        stdout: CInt
    ) -> (pid: pid_t, status: CInt) {
        #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        var attributes: posix_spawnattr_t?
        #else
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        #endif
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, stdin, STDIN_FILENO)
        posix_spawn_file_actions_adddup2(&actions, stdout, STDOUT_FILENO)
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for number in [SIGPIPE, SIGINT, SIGTERM] { sigaddset(&signals, number) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        // A group of its own, so that Ctrl-C reaches us alone: it must go on while calls in flight are given up.
        posix_spawnattr_setpgroup(&attributes, 0)
        let flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF) | CInt(POSIX_SPAWN_SETPGROUP)
        posix_spawnattr_setflags(&attributes, Int16(flags))

        var pid = pid_t()
        var arguments = command.map { strdup($0) } + [nil]
        var environment = ProcessInfo.processInfo.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in arguments + environment { free(text) } }
        let status = posix_spawn(&pid, program, &actions, &attributes, &arguments, &environment)
        return (pid, status)
    }
}
