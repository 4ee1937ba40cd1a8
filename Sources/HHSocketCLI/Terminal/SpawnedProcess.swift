// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSystem

// The tests start programs too: their support target has a symbolic link to this file.

/// A process started by `posix_spawn`, and our ends of its standard streams, which the caller closes. It inherits no
/// other descriptor, which would keep a socket open that is closed here.
///
/// Foundation's `Process` does not fit: its child inherits the signal mask of the starting thread, which may block all
/// signals in Swift tasks, so that the child could not be terminated; and with more than a thousand open descriptors it
/// reads beyond a buffer.
struct SpawnedProcess: Sendable {
    struct CannotStart: Error, CustomStringConvertible {
        var program: String
        var errno: CInt

        var description: String { "\(self.program) cannot be run: \(String(cString: strerror(self.errno)))" }
    }

    enum Errors {
        /// The child's standard error is ours.
        case inherited
        case piped
    }

    let pid: pid_t
    let stdin: CInt
    let stdout: CInt
    /// Our end of standard error; -1 if it is inherited.
    let stderr: CInt

    /// Starts a program.
    ///
    /// - Parameters:
    ///   - command: The program's path, and its arguments.
    ///   - leadsGroup: Whether it has its own process group, which Ctrl-C in the terminal does not reach.
    init(_ command: [String], errors: Errors, leadsGroup: Bool = false) throws(CannotStart) {
        let program = command.first ?? ""
        // For each stream: our end, and the child's.
        var pipes: [(ours: CInt, theirs: CInt)] = []
        func failure(_ number: CInt) -> CannotStart {
            for pipe in pipes { close(pipe.ours) }
            return CannotStart(program: program, errno: number)
        }
        defer { for pipe in pipes { close(pipe.theirs) } }
        for stream in 0..<(errors == .piped ? 3 : 2) {
            var ends: [CInt] = [-1, -1]
            guard pipe(&ends) == 0 else { throw failure(errno) }
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            pipes.append(stream == 0 ? (ends[1], ends[0]) : (ends[0], ends[1]))
        }
        let (pid, status) = Self.spawn(program, command, streams: pipes.map(\.theirs), leadsGroup: leadsGroup)
        guard status == 0 else { throw failure(status) }
        self.pid = pid
        self.stdin = pipes[0].ours
        self.stdout = pipes[1].ours
        self.stderr = errors == .piped ? pipes[2].ours : -1
    }

    /// Waits until the process has ended. Blocks. Call it once: afterwards the number may belong to another process.
    ///
    /// - Returns: Its exit code; 128 and the signal's number if a signal ended it, as in shells. Nil if there is no
    ///   such child.
    func waitForEnd() -> CInt? {
        var status: CInt = 0
        while waitpid(self.pid, &status, 0) == -1 {
            guard errno == EINTR else { return nil }
        }
        return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
    }

    private static func spawn(
        _ program: String,
        _ command: [String],
        streams: [CInt],
        leadsGroup: Bool
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
        for (stream, end) in streams.enumerated() { posix_spawn_file_actions_adddup2(&actions, end, CInt(stream)) }
        #if canImport(Darwin)
        // CLOEXEC_DEFAULT closes all descriptors that are not listed, standard error included.
        if streams.count <= STDERR_FILENO { posix_spawn_file_actions_addinherit_np(&actions, STDERR_FILENO) }
        var flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF) | CInt(POSIX_SPAWN_CLOEXEC_DEFAULT)
        #else
        let descriptors = STDERR_FILENO + 1..<min(getdtablesize(), 1 << 16)
        let highest = descriptors.last { fcntl($0, F_GETFD) != -1 } ?? STDERR_FILENO
        // Some more, for descriptors that are being opened concurrently.
        for descriptor in descriptors.prefix(while: { $0 < highest + 64 }) {
            posix_spawn_file_actions_addclose(&actions, descriptor)
        }
        var flags = CInt(POSIX_SPAWN_SETSIGMASK) | CInt(POSIX_SPAWN_SETSIGDEF)
        #endif
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for number in [SIGPIPE, SIGINT, SIGTERM] { sigaddset(&signals, number) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        if leadsGroup {
            posix_spawnattr_setpgroup(&attributes, 0)
            flags |= CInt(POSIX_SPAWN_SETPGROUP)
        }
        posix_spawnattr_setflags(&attributes, Int16(flags))

        var pid = pid_t()
        var arguments = command.map { strdup($0) } + [nil]
        var environment = ProcessInfo.processInfo.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in arguments + environment { free(text) } }
        let status = posix_spawn(&pid, program, &actions, &attributes, &arguments, &environment)
        return (pid, status)
    }
}
