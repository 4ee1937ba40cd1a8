// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The performer of a ``SharedCallMachine``'s decisions: uses the store, makes the calls, notifies the callers, and
/// keeps the time.
final class SharedCalls: Sendable {
    typealias Machine = SharedCallMachine
    typealias Completion = @Sendable (Result<Machine.Answer, SocketError>) -> Void

    fileprivate enum Operation: Sendable {
        case machine(Machine.StoreOperation)
        case resume(CheckedContinuation<Void, Never>)
    }

    fileprivate struct State {
        var machine: Machine
        var completions: [Machine.Caller: Completion] = [:]
        /// Callers that also receive the fresh answer, after a stale one.
        var refreshCompletions: [Machine.Caller: Completion] = [:]
        var tasks: [UInt64: Task<Void, Never>] = [:]
        /// The operations for the store, in the order of the decisions, and therefore appended under the lock.
        var operations: Deque<Operation> = []
        /// The size of the answers in ``operations``, in bytes.
        var operationBytes = 0
        var isPumping = false
        var droppedStores = 0
        var alarm: (time: NIODeadline, task: Task<Void, Never>)?
    }

    /// The number of bytes of answers that may wait to be written to the store; further ones are not kept.
    private static let maximumOperationBytes = MemoryResponseStore.defaultMaximumCost

    let store: any ResponseStore
    private let clock: APIClock
    private let state: NIOLockedValueBox<State>

    init(store: any ResponseStore, clock: APIClock, maximumCallers: Int) {
        self.store = store
        self.clock = clock
        self.state = NIOLockedValueBox(State(machine: Machine(maximumCallers: maximumCallers)))
    }

    deinit {
        self.state.withLockedValue { $0.alarm?.task.cancel() }
    }

    // MARK: For managers

    /// - Parameters:
    ///   - refreshCompletion: Called at most once, after `completion` was called with a stale answer.
    ///   - completion: Called exactly once, outside every lock, perhaps before this returns.
    func ask(
        _ caller: Machine.Caller,
        _ asking: Machine.Asking,
        refreshCompletion: Completion? = nil,
        completion: @escaping Completion
    ) {
        self.update { state, now, actions in
            state.completions[caller] = completion
            if let refreshCompletion { state.refreshCompletions[caller] = refreshCompletion }
            state.machine.ask(caller, asking, at: now, into: &actions)
        }
    }

    func cancel(_ caller: Machine.Caller) {
        self.update { state, now, actions in state.machine.cancel(caller, at: now, into: &actions) }
    }

    func cancelAll(ofManager number: UInt64) {
        self.update { state, now, actions in state.machine.cancelAll(ofManager: number, at: now, into: &actions) }
    }

    func remove(_ removal: ResponseRemoval) {
        self.update { state, _, actions in state.machine.remove(removal, into: &actions) }
    }

    /// Drops the answer kept for this key, without affecting calls.
    func discard(_ key: ResponseKey) {
        self.update { _, _, actions in actions.store.append(.remove(.forKey(key))) }
    }

    /// Waits until the store has performed all earlier operations.
    func flush() async {
        await withCheckedContinuation { continuation in
            let mustPump = self.state.withLockedValue { state in
                state.operations.append(.resume(continuation))
                return state.beginsPumping()
            }
            if mustPump { self.pump() }
        }
    }

    var statistics: ResponseCache.Statistics {
        var statistics = self.state.withLockedValue { state in
            var statistics = state.machine.statistics
            statistics.droppedStores = state.droppedStores
            return statistics
        }
        statistics.evictions = (self.store as? MemoryResponseStore)?.evictions ?? 0
        return statistics
    }

    // MARK: Performing

    private func update(_ body: (inout State, APIClock.Moment, inout Machine.Actions) -> Void) {
        let now = self.clock.now
        var actions = Machine.Actions()
        // Handlers that will not be called, released outside the lock: a handler may hold the last reference to a
        // manager, whose deinitializer takes the lock.
        var unused: [Completion] = []
        let (mustPump, cancelled, completions, alarm) = self.state.withLockedValue { state in
            body(&state, now, &actions)
            for operation in actions.store { state.append(operation, limit: Self.maximumOperationBytes) }
            return (
                state.beginsPumping(),
                actions.cancels.compactMap { state.tasks.removeValue(forKey: $0) },
                actions.completions.compactMap { state.completion(of: $0.caller, $0.result, &unused) },
                self.armAlarm(&state)
            )
        }
        alarm?.cancel()
        if mustPump { self.pump() }
        // Before calls begin, so that no caller receives a fresh answer before the stale one.
        for (completion, result) in completions { completion(result) }
        for start in actions.starts { self.perform(start) }
        for task in cancelled { task.cancel() }
        withExtendedLifetime((unused, actions.released)) {}
    }

    private func perform(_ start: Machine.Start) {
        let task = Task {
            let result = await Result.of { () async throws(SocketError) in
                try await start.transport.data(for: start.request)
            }
            self.update { state, now, actions in
                state.tasks[start.call] = nil
                state.machine.answered(start.call, with: result, at: now, into: &actions)
            }
        }
        // Meanwhile the call may have ended, or have lost all its callers.
        let isWanted = self.state.withLockedValue { state in
            guard state.machine.isRunning(start.call) else { return false }
            state.tasks[start.call] = task
            return true
        }
        if !isWanted { task.cancel() }
    }

    /// Performs the operations for the store, one at a time.
    private func pump() {
        Task {
            while let operation = self.nextOperation() {
                switch operation {
                case .resume(let continuation):
                    continuation.resume()
                case .machine(.find(let number, let key)):
                    let stored = await self.store.response(for: key)
                    self.update { state, now, actions in
                        state.machine.found(stored, by: number, at: now, into: &actions)
                    }
                case .machine(.store(let key, let response)):
                    await self.store.store(response, for: key)
                case .machine(.remove(let removal)):
                    await self.store.remove(removal)
                }
            }
        }
    }

    private func nextOperation() -> Operation? {
        self.state.withLockedValue { state in
            guard let operation = state.operations.popFirst() else {
                state.isPumping = false
                return nil
            }
            if case .machine(.store(let key, let response)) = operation {
                state.operationBytes -= response.cost(with: key)
            }
            return operation
        }
    }

    /// Schedules a wake-up for the next alarm; returns the one that it replaces.
    private func armAlarm(_ state: inout State) -> Task<Void, Never>? {
        // An alarm that fires too early has no effect, and one that is set already need not be set again.
        guard let next = state.machine.nextAlarm, next < state.alarm?.time ?? .distantFuture else { return nil }
        let previous = state.alarm?.task
        let task = Task { [weak self, clock = self.clock] in
            do {
                try await clock.sleep(until: next)
            } catch {
                return
            }
            self?.update { state, now, actions in
                if state.alarm?.time == next { state.alarm = nil }
                state.machine.timePassed(now, into: &actions)
            }
        }
        state.alarm = (next, task)
        return previous
    }
}

extension SharedCalls.State {
    fileprivate mutating func append(_ operation: SharedCalls.Machine.StoreOperation, limit: Int) {
        if case .store(let key, let response) = operation {
            let cost = response.cost(with: key)
            guard self.operationBytes + cost <= limit || self.operationBytes == 0 else {
                self.droppedStores += 1
                return
            }
            self.operationBytes += cost
        }
        self.operations.append(.machine(operation))
    }

    /// Whether the caller must call ``SharedCalls/pump()``.
    fileprivate mutating func beginsPumping() -> Bool {
        guard !self.isPumping, !self.operations.isEmpty else { return false }
        self.isPumping = true
        return true
    }

    /// Removes and returns the completion to call for a caller, if there is one. Adds those that are never called to
    /// `unused`.
    fileprivate mutating func completion(
        of caller: SharedCalls.Machine.Caller,
        _ result: Result<SharedCalls.Machine.Answer, SocketError>,
        _ unused: inout [SharedCalls.Completion]
    ) -> (SharedCalls.Completion, Result<SharedCalls.Machine.Answer, SocketError>)? {
        guard let completion = self.completions.removeValue(forKey: caller) else { return nil }
        if caller.isRefresh, case .failure = result {
            unused.append(completion)
            return nil
        }
        if let refresh = self.refreshCompletions.removeValue(forKey: caller) {
            if case .success(let answer) = result, case .stale = answer.source {
                self.completions[caller.refresh] = refresh
            } else {
                unused.append(refresh)
            }
        }
        return (completion, result)
    }
}
