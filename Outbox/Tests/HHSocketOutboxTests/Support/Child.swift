import Foundation
import NIOConcurrencyHelpers

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A process that is killed, and what it has written until then.
///
/// Not Foundation's `Process`: its child inherits the signals that the starting thread blocks.
final class Child: Sendable {
    struct CannotStart: Error {
        var program: String
        var number: CInt
    }

    private struct State {
        var output: [UInt8] = []
        var hasEnded = false
    }

    private let process: pid_t
    private let state = NIOLockedValueBox(State())

    /// The executable that this package builds beside its tests.
    static var program: String {
        let bundle = Bundle.allBundles.first { $0.bundlePath.hasSuffix(".xctest") }?.bundleURL ?? Bundle.main.bundleURL
        let folders = [
            bundle, bundle.deletingLastPathComponent(),
            URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent(),
        ]
        let candidates = folders.map { $0.appendingPathComponent("outbox-crash-child").path }
        return candidates.first { FileManager.default.isExecutableFile(atPath: $0) } ?? candidates[1]
    }

    init(_ arguments: [String]) throws {
        let program = Self.program
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw CannotStart(program: program, number: errno) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        var attributes: posix_spawnattr_t?
        #else
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        #endif
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        var process = pid_t()
        var argv = ([program] + arguments).map { strdup($0) } + [nil]
        var environment = ProcessInfo.processInfo.environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for text in argv + environment { free(text) } }
        let result = posix_spawn(&process, program, &actions, &attributes, &argv, &environment)
        close(ends[1])
        guard result == 0 else {
            close(ends[0])
            throw CannotStart(program: program, number: result)
        }
        self.process = process
        let (child, descriptor, state) = (process, ends[0], self.state)
        Thread.detachNewThread {
            var buffer = [UInt8](repeating: 0, count: 1 << 16)
            while true {
                let count = read(descriptor, &buffer, buffer.count)
                if count > 0 {
                    state.withLockedValue { $0.output += buffer[..<count] }
                } else if count == 0 || errno != EINTR {
                    break
                }
            }
            close(descriptor)
            while waitpid(child, nil, 0) == -1, errno == EINTR {}
            state.withLockedValue { $0.hasEnded = true }
        }
    }

    deinit {
        // Else one whose test has failed would go on for ever.
        self.kill()
    }

    /// The lines that have come whole.
    var lines: [Substring] {
        let output = self.state.withLockedValue { $0.output }
        return String(decoding: output, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false)
            .dropLast()
    }

    /// Whether it has ended, and all that it has written is there.
    var hasEnded: Bool { self.state.withLockedValue { $0.hasEnded } }

    func kill() {
        self.state.withLockedValue { state in
            // Not once it has been waited for: the number may be another's by then. Between the two it is a zombie, or here.
            if !state.hasEnded { _ = signalKill(self.process) }
        }
    }
}

private func signalKill(_ process: pid_t) -> CInt { kill(process, SIGKILL) }
