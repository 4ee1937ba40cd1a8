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
    typealias CannotStart = SpawnedProcess.CannotStart

    private let process: SpawnedProcess
    /// Whether the end of its standard input that nothing is ever written to is open: until it was killed or waited
    /// for.
    private let isInputOpen = NIOLockedValueBox(true)

    var pid: pid_t { self.process.pid }

    /// Starts a program. Its standard error is ours. Ctrl-C reaches us alone: it must go on while calls in flight are
    /// given up.
    ///
    /// - Parameter command: The program's path, and its arguments.
    init(_ command: [String]) throws(CannotStart) {
        self.process = try SpawnedProcess(command, errors: .inherited, leadsGroup: true)
    }

    deinit {
        self.kill()
        close(self.process.stdout)
    }

    /// Ends it at once, and returns when it has ended.
    func kill() {
        guard self.closeInput() else { return }
        _ = signal(SIGKILL)
        _ = self.process.waitForEnd()
    }

    /// Waits until it ends by itself, its standard input closed. Blocks.
    ///
    /// - Returns: Its exit code; if a signal ended it, the signal's number and 128. Nil if it was waited for before.
    func waitForEnd() -> CInt? {
        guard self.closeInput() else { return nil }
        return self.process.waitForEnd()
    }

    /// Whether it was open: the first who closes it waits for the process, and nobody else. Once it was waited for, the
    /// number may be another's.
    private func closeInput() -> Bool {
        self.isInputOpen.withLockedValue { isOpen in
            guard isOpen else { return false }
            close(self.process.stdin)
            isOpen = false
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
            let count = read(self.process.stdout, &byte, 1)
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
}
