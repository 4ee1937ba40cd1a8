// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The handlers that run for the requests of one client, their results, and their deadlines. On the event loop.
final class HandlerRuns {
    private let loop: ServerLoop
    private let account: LedgerAccount
    private let completions: CompletionQueue
    /// The timers that end requests at their deadlines, by run.
    private var deadlines: [UInt64: SocketLoop.TimerID] = [:]
    /// The number of requests of this batch whose handlers run on this thread and have not begun.
    private var started = 0

    init(_ peer: ServerPeer) {
        self.loop = peer.loop
        self.account = peer.account
        self.completions = CompletionQueue(loop: peer.loop.socketLoop)
    }

    /// Results are taken from now on: `wake` is run in a turn whenever there are some.
    func open(wake: @escaping @Sendable (inout Turn) -> Void) { self.completions.open(wake: wake) }

    func batchBegins() { if self.started > 0 { self.started = 0 } }

    /// Whether requests of this batch have handlers that run on this thread and have not begun.
    var hasStartedHere: Bool { self.started > 0 }

    // MARK: Runs

    /// Runs a handler in a task of its own.
    ///
    /// - Parameters:
    ///   - deadline: The time at which its answer is useless; nil: never.
    ///   - expired: Called at that time, unless the handler has returned or was stopped.
    func start(
        _ work: HandlerRun,
        by deadline: NIODeadline?,
        expired: @escaping (inout Turn) -> Void
    ) -> Task<Void, Never> {
        if work.executor == .connection { self.started += 1 }
        let (completions, account) = (self.completions, self.account)
        let task = self.task(on: work.executor) {
            let completion = await work.run()
            // The result will not be taken.
            if !completions.append(completion) { account.held(-completion.requestCost - completion.answerCost) }
        }
        if let deadline {
            let run = work.number
            self.deadlines[run] = self.loop.socketLoop.setTimer(deadline) { turn in
                self.deadlines[run] = nil
                expired(&turn)
            }
        }
        return task
    }

    private func task(
        on executor: HandlerExecutor,
        _ operation: @escaping @Sendable () async -> Void
    ) -> Task<Void, Never> {
        if executor == .connection, #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) {
            return Task(executorPreference: self.loop.executor, operation: operation)
        }
        return Task(operation: operation)
    }

    /// Returns the results that have come. Answers are no longer charged here.
    func takeCompletions() -> [CompletionQueue.Completion] {
        let completions = self.completions.takeAll()
        for completion in completions {
            if completion.answerCost > 0 { self.account.held(-completion.answerCost) }
            self.removeDeadline(of: completion.run)
        }
        return completions
    }

    /// A request is over, or was stopped.
    func removeDeadline(of run: UInt64) {
        guard !self.deadlines.isEmpty, let timer = self.deadlines.removeValue(forKey: run) else { return }
        self.loop.socketLoop.removeTimer(timer)
    }

    /// Results that come from now on are dropped.
    ///
    /// - Returns: The results that were not taken.
    func close() -> [CompletionQueue.Completion] {
        for timer in self.deadlines.values { self.loop.socketLoop.removeTimer(timer) }
        self.deadlines = [:]
        let completions = self.completions.close()
        for completion in completions { self.account.held(-completion.answerCost) }
        return completions
    }

    /// Releases memory that is kept for more requests.
    func rest() { if self.deadlines.isEmpty { self.deadlines = [:] } }
}
