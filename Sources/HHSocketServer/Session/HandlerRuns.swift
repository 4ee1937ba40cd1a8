// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The handlers that run for the requests of one client, their results, and their deadlines. On the event loop.
///
/// Most connections wait for requests, so the queue of results exists only from the first handler to the next rest.
struct HandlerRuns {
    /// The queue of results, if there is one.
    private(set) var completions: CompletionQueue?
    /// The timers that end requests at their deadlines, by run.
    private var deadlines: [UInt64: SocketLoop.TimerID] = [:]
    /// The number of handlers whose results have not been taken.
    private var running: UInt32 = 0
    /// The number of requests of this batch whose handlers run on this thread and have not begun.
    private var startedHere: UInt32 = 0

    /// Results are taken from this queue from now on.
    mutating func open(_ completions: CompletionQueue) { self.completions = completions }

    @inline(__always)
    mutating func batchBegins() { if self.startedHere > 0 { self.startedHere = 0 } }

    /// Whether requests of this batch have handlers that run here and have not begun. `mutating`, which copies nothing.
    @inline(__always)
    var hasStartedHere: Bool { mutating get { self.startedHere > 0 } }

    // MARK: Runs

    /// Runs a handler in a task of its own, which appends its result to a queue.
    static func task(for work: HandlerRun, _ completions: CompletionQueue, on loop: ServerLoop) -> Task<Void, Never> {
        let operation: @Sendable () async -> Void = {
            let completion = await work.run()
            // The result will not be taken.
            if !completions.append(completion) { work.load.held(-completion.requestCost.bytes - completion.answerCost) }
        }
        if work.executor == .connection, #available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *) {
            return Task(executorPreference: loop.executor, operation: operation)
        }
        return Task(operation: operation)
    }

    /// Records that a handler has been started.
    ///
    /// - Parameter deadline: Fires when the answer is useless; nil: never.
    mutating func started(_ work: HandlerRun, until deadline: SocketLoop.TimerID?) {
        self.running += 1
        if work.executor == .connection { self.startedHere += 1 }
        if let deadline { self.deadlines[work.number] = deadline }
    }

    /// Records that the deadline of a run has fired.
    mutating func deadlineHasPassed(of run: UInt64) { self.deadlines[run] = nil }

    /// Returns the results that have come. Answers are no longer charged here.
    mutating func takeCompletions(of peer: ServerPeer) -> [CompletionQueue.Completion] {
        let completions = self.completions?.takeAll() ?? []
        self.running -= UInt32(completions.count)
        for completion in completions {
            if completion.answerCost > 0 { peer.account.held(-completion.answerCost) }
            self.removeDeadline(of: completion.run, on: peer.loop)
        }
        return completions
    }

    /// A request is over, or was stopped.
    mutating func removeDeadline(of run: UInt64, on loop: ServerLoop) {
        guard !self.deadlines.isEmpty, let timer = self.deadlines.removeValue(forKey: run) else { return }
        loop.socketLoop.removeTimer(timer)
    }

    /// Results that come from now on are dropped.
    ///
    /// - Returns: The results that were not taken.
    mutating func close(of peer: ServerPeer) -> [CompletionQueue.Completion] {
        for timer in self.deadlines.values { peer.loop.socketLoop.removeTimer(timer) }
        self.deadlines = [:]
        let completions = self.completions.take()?.close() ?? []
        for completion in completions { peer.account.held(-completion.answerCost) }
        return completions
    }

    /// Releases memory that is kept for more requests.
    mutating func rest() {
        if self.deadlines.isEmpty { self.deadlines = [:] }
        // The queue and its session retain each other until it is closed.
        if self.running == 0 { _ = self.completions.take()?.close() }
    }
}
