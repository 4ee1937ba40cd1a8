// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers

/// The calls of one connection, awaited by as many Swift tasks as calls may be in flight.
final class AsyncLoop<Caller: EchoCaller>: EchoLoop {
    private let client: SocketClient
    private let caller: Caller
    private let inFlightLimit: Int
    private let executor: EchoParameters.Executor
    /// Whether calls start at scheduled times, instead of when another has ended.
    private let hasSchedule: Bool
    private let calls: AwaitedCalls

    init(
        client: SocketClient,
        caller: Caller,
        inFlight: Int,
        executor: EchoParameters.Executor,
        tally: EchoTally,
        schedule: StartSchedule?
    ) {
        self.client = client
        self.caller = caller
        self.inFlightLimit = inFlight
        self.executor = executor
        self.hasSchedule = schedule != nil
        self.calls = AwaitedCalls(tally, schedule)
    }

    var callsSoFar: Int { self.calls.count }

    func run() async throws -> EchoTally {
        try await withTaskCancellationHandler {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<self.inFlightLimit { self.addWork(to: &group) }
                // The first failure cancels the others.
                for try await _ in group {}
            }
        } onCancel: {
            self.calls.stop()
        }
        return self.calls.result()
    }

    private func addWork(to group: inout ThrowingTaskGroup<Void, any Error>) {
        if self.executor == .socket, #available(macOS 15, *) {
            group.addTask(executorPreference: self.client.executor) { try await self.work() }
        } else {
            group.addTask { try await self.work() }
        }
    }

    /// Makes one call after the other.
    private func work() async throws {
        var caller = self.caller
        var call = self.calls.next(Uptime.now)
        while let (number, start) = call {
            do {
                if self.hasSchedule { try await Uptime.sleep(until: start) }
                try await caller.call(number, on: self.client)
            } catch {
                // Cancelled by the awaiting task, or because another call has failed.
                guard !Task.isCancelled else { return }
                throw (error as? SocketError).map { EchoFailure($0) } ?? error
            }
            call = self.calls.next(Uptime.now, after: start)
        }
    }
}

/// The starts and latencies of calls that several tasks make.
// Not nested in the loop, where it would be generic and each call would look up its type.
private final class AwaitedCalls: Sendable {
    private struct State {
        var tally: EchoTally
        /// Nil for a closed loop.
        var schedule: StartSchedule?
        var number: UInt32 = 0
        var isStopped = false
    }

    private let state: NIOLockedValueBox<State>

    init(_ tally: EchoTally, _ schedule: StartSchedule?) {
        self.state = NIOLockedValueBox(State(tally: tally, schedule: schedule))
    }

    var count: Int { self.state.withLockedValue { $0.tally.calls } }

    func result() -> EchoTally {
        self.state.withLockedValue { state in
            if let schedule = state.schedule { state.tally.countNotStarted(schedule) }
            return state.tally
        }
    }

    /// Records the call that started at `start`, and returns the number and start of the next; nil if no call remains.
    func next(_ now: UInt64, after start: UInt64? = nil) -> (number: UInt32, start: UInt64)? {
        self.state.withLockedValue { state in
            if let start { state.tally.completed(start: start, now: now) }
            guard !state.isStopped, now < state.tally.window.end else { return nil }
            var next = now
            if let schedule = state.schedule {
                guard schedule.next < state.tally.window.end else { return nil }
                next = state.schedule?.take() ?? now
            }
            state.number &+= 1
            return (state.number, next)
        }
    }

    func stop() {
        self.state.withLockedValue { state in
            guard !state.isStopped else { return }
            state.isStopped = true
            state.tally.cut(at: Uptime.now)
        }
    }
}
