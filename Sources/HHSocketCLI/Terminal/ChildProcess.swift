// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSystem
import NIOConcurrencyHelpers

/// A child process, whose standard input ends with this object, or when this process does, for whatever reason. Nothing
/// is written there.
final class ChildProcess: Sendable {
    typealias CannotStart = SpawnedProcess.CannotStart

    private let process: SpawnedProcess
    /// Whether it was killed or waited for.
    private let isClaimed = NIOLockedValueBox(false)

    var pid: pid_t { self.process.pid }

    /// Starts a program. Its standard error is ours. Ctrl-C reaches only us: the child must continue while calls in
    /// flight are cancelled.
    ///
    /// - Parameter command: The program's path, and its arguments.
    init(_ command: [String]) throws(CannotStart) {
        self.process = try SpawnedProcess(command, errors: .inherited, leadsGroup: true)
    }

    deinit {
        self.kill()
        close(self.process.stdin)
        close(self.process.stdout)
    }

    /// Kills the process, and returns when it has ended.
    func kill() {
        guard self.claim() else { return }
        _ = HHSocketSystem.kill(self.pid, SIGKILL)
        _ = self.process.waitForEnd()
    }

    /// Waits until it exits. Blocks.
    ///
    /// - Returns: Its exit code; 128 and the signal's number if a signal ended it. Nil if it was waited for before.
    func waitForEnd() -> CInt? {
        guard self.claim() else { return nil }
        return self.process.waitForEnd()
    }

    /// Returns true for the first caller, which alone waits for the process: its number may afterwards belong to
    /// another.
    private func claim() -> Bool {
        self.isClaimed.withLockedValue { isClaimed in
            defer { isClaimed = true }
            return !isClaimed
        }
    }

    /// Returns the first line that it writes, which is incomplete if it ends before, or is killed.
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
}
