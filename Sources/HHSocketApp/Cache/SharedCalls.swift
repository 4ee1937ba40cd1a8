import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Performs what a ``SharedCallMachine`` decides: asks the store, makes the calls, tells the callers, keeps the time.
final class SharedCalls: Sendable {
    typealias Machine = SharedCallMachine
    typealias Completion = @Sendable (Result<Machine.Answer, SocketError>) -> Void

    fileprivate enum Operation: Sendable {
        case machine(Machine.StoreOperation)
        case tell(CheckedContinuation<Void, Never>)
    }

    fileprivate struct State {
        var machine: Machine
        var completions: [Machine.Caller: Completion] = [:]
        /// Callers that also receive the fresh answer, after a stale one.
        var refreshCompletions: [Machine.Caller: Completion] = [:]
        var tasks: [UInt64: Task<Void, Never>] = [:]
        /// For the store, in the order of what was decided. So it has to be filled under the lock.
        var operations: Deque<Operation> = []
        /// The size of the answers in it, in bytes.
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
            state.machine.ask(caller, asking, at: now, &actions)
        }
    }

    func cancel(_ caller: Machine.Caller) {
        self.update { state, now, actions in state.machine.cancel(caller, at: now, &actions) }
    }

    func cancelAll(ofManager number: UInt64) {
        self.update { state, now, actions in state.machine.cancelAll(ofManager: number, at: now, &actions) }
    }

    func remove(_ removal: ResponseRemoval) {
        self.update { state, _, actions in state.machine.remove(removal, &actions) }
    }

    /// Drops what is kept for this key, and leaves calls alone.
    func discard(_ key: ResponseKey) {
        self.update { _, _, actions in actions.store.append(.remove(.forKey(key))) }
    }

    /// Returns when the store has done all that it was asked for before.
    func flush() async {
        await withCheckedContinuation { continuation in
            let mustPump = self.state.withLockedValue { state in
                state.operations.append(.tell(continuation))
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
        // Handlers that are not called any more, released outside the lock: a handler may be the last to hold a
        // manager, whose end asks for the lock.
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
        // Before calls begin, so that nobody hears of a fresh answer before the stale one.
        for (completion, result) in completions { completion(result) }
        for start in actions.starts { self.perform(start) }
        for task in cancelled { task.cancel() }
        withExtendedLifetime((unused, actions.released)) {}
    }

    private func perform(_ start: Machine.Start) {
        let task = Task {
            let result: Result<SocketResponse, SocketError>
            do throws(SocketError) {
                result = .success(try await start.transport.data(for: start.request))
            } catch {
                result = .failure(error)
            }
            self.update { state, now, actions in
                state.tasks[start.call] = nil
                state.machine.answered(start.call, result, at: now, &actions)
            }
        }
        // Meanwhile it may have ended, or nobody may want it any more.
        let isWanted = self.state.withLockedValue { state in
            guard state.machine.isRunning(start.call) else { return false }
            state.tasks[start.call] = task
            return true
        }
        if !isWanted { task.cancel() }
    }

    /// Has the store do what it is to do, one after the other.
    private func pump() {
        Task {
            while let operation = self.nextOperation() {
                switch operation {
                case .tell(let continuation):
                    continuation.resume()
                case .machine(.lookUp(let number, let key)):
                    let stored = await self.store.response(for: key)
                    self.update { state, now, actions in
                        state.machine.found(stored, by: number, at: now, &actions)
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
        // One that comes too early finds nothing to do, and one that is there need not be made.
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
                state.machine.timePassed(now, &actions)
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

    /// Whether somebody must begin to work on the operations.
    fileprivate mutating func beginsPumping() -> Bool {
        guard !self.isPumping, !self.operations.isEmpty else { return false }
        self.isPumping = true
        return true
    }

    /// The callers to notify.
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
