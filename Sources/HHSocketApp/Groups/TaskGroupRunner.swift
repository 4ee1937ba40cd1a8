// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOConcurrencyHelpers

/// Performs the decisions of a group's machine. The ``Ending``s of its members retain it, so that a running group
/// completes without a reference to it.
final class TaskGroupRunner: Sendable {
    typealias Outcome = SocketTaskGroup.Outcome
    typealias Handler = @Sendable (Outcome) -> Void

    private struct State {
        var machine = TaskGroupMachine<any SocketTaskGroupMember>()
        /// Called once, in this order; the first is the user's.
        var handlers: [Handler]
        /// Whether all handlers have returned.
        var haveAllReturned = false
        /// The outcome, set once the user's handler has returned.
        var outcome: Outcome?
        var progress: TaskProgress?

        var units: TaskProgress.Units {
            // One unit more than the weights, so that only the completion finishes it.
            let isOver = self.machine.isOver
            return .init(
                completed: self.machine.completedWeight + (isOver ? 1 : 0),
                total: self.machine.totalWeight + 1
            )
        }
    }

    private let callbackQueue: CallbackQueue
    private let state: NIOLockedValueBox<State>
    /// Lets one thread at a time change ``Progress``, since a callback queue need not be serial.
    private let showing = NIOLockedValueBox(Showing.nothing)

    init(_ callbackQueue: CallbackQueue, _ handler: @escaping Handler) {
        self.callbackQueue = callbackQueue
        self.state = NIOLockedValueBox(State(handlers: [handler]))
    }

    // MARK: Members

    /// The reporter of one member's end, which reports it once: at the first call of ``end(_:)``, or when it is
    /// released without one.
    final class Ending: Sendable {
        private let runner: TaskGroupRunner
        private let number: Int
        private let hasEnded = NIOLockedValueBox(false)

        init(_ runner: TaskGroupRunner, _ number: Int) {
            self.runner = runner
            self.number = number
        }

        func end(_ error: (any Error)?) {
            let isFirst = self.hasEnded.withLockedValue { hasEnded in
                defer { hasEnded = true }
                return !hasEnded
            }
            if isFirst { self.runner.left(self.number, error) }
        }

        deinit {
            guard !self.hasEnded.withLockedValue({ $0 }) else { return }
            self.runner.left(
                self.number,
                SocketError(
                    .cancelled,
                    message: "member \(self.number) of a task group was released before it had reported its end"
                )
            )
        }
    }

    func add<Member: SocketTaskGroupMember>(
        weight: Int,
        _ make: (_ end: @escaping @Sendable ((any Error)?) -> Void) -> Member
    ) -> Member {
        let (number, progress) = self.state.withLockedValue { state in
            let number = state.machine.enter(weight: weight)
            return (number, number == nil ? nil : Self.mustShowProgress(&state))
        }
        guard let number else {
            // The group is over, and does not wait for the member.
            let member = make { _ in }
            member.cancel()
            return member
        }
        if progress != nil { self.scheduleProgress() }
        let ending = Ending(self, number)
        let member = make { ending.end($0) }
        switch self.state.withLockedValue({ $0.machine.made(number, member) }) {
        case .nothing: break
        case .resume: member.resume()
        case .cancel: member.cancel()
        }
        return member
    }

    private func left(_ number: Int, _ error: (any Error)?) {
        // The member is released outside the lock, since that may release the user's objects.
        let (member, isComplete, progress) = self.state.withLockedValue { state in
            let (member, isComplete) = state.machine.left(number, error)
            return (member, isComplete, isComplete ? nil : Self.mustShowProgress(&state))
        }
        withExtendedLifetime(member) {}
        if progress != nil { self.scheduleProgress() }
        if isComplete { self.complete() }
    }

    // MARK: Life

    func resume() {
        let (members, isComplete) = self.state.withLockedValue { $0.machine.resume() }
        for member in members { member.resume() }
        if isComplete { self.complete() }
    }

    func cancel() {
        let (members, isComplete) = self.state.withLockedValue { $0.machine.cancel() }
        for member in members { member.cancel() }
        if isComplete { self.complete() }
    }

    /// Keeps the group open until ``letGo()``.
    func hold() {
        self.state.withLockedValue { $0.machine.hold() }
    }

    func letGo() {
        if self.state.withLockedValue({ $0.machine.letGo() }) { self.complete() }
    }

    /// Releases the members and handlers, if the group is released before it began.
    func release() {
        let released = self.state.withLockedValue { state -> ([any SocketTaskGroupMember], [Handler])? in
            guard let members = state.machine.release() else { return nil }
            defer { state.handlers = [] }
            return (members, state.handlers)
        }
        // Released outside the lock.
        withExtendedLifetime(released) {}
    }

    private func complete() {
        self.callbackQueue.run {
            if self.state.withLockedValue({ $0.progress?.begin() }) != nil { self.showProgress() }
            let outcome = self.state.withLockedValue { state in
                Outcome(
                    isCancelled: state.machine.wasCancelled,
                    memberCount: state.machine.memberCount,
                    failures: state.machine.failures
                        .sorted { $0.number < $1.number }
                        .map { SocketTaskGroup.Failure(index: $0.number, error: $0.error) }
                )
            }
            // Until none is left, since handlers may be added while others run.
            while true {
                let handlers: [Handler] = self.state.withLockedValue { state in
                    defer { state.handlers = [] }
                    if state.handlers.isEmpty { state.haveAllReturned = true }
                    return state.handlers
                }
                guard !handlers.isEmpty else { break }
                for handler in handlers {
                    handler(outcome)
                    // The first is the group's own. Handlers after it may read the outcome.
                    self.state.withLockedValue { $0.outcome = outcome }
                }
            }
        }
    }

    /// Runs `handler` at the end, after those added before it; at once if these have run.
    func whenComplete(_ handler: @escaping Handler) {
        let outcome = self.state.withLockedValue { state in
            if !state.haveAllReturned { state.handlers.append(handler) }
            return state.haveAllReturned ? state.outcome : nil
        }
        if let outcome { handler(outcome) }
    }

    var outcome: Outcome? { self.state.withLockedValue { $0.outcome } }
    var phase: TaskGroupMachine<any SocketTaskGroupMember>.Phase { self.state.withLockedValue { $0.machine.phase } }
    var memberCount: Int { self.state.withLockedValue { $0.machine.memberCount } }
    var completedCount: Int { self.state.withLockedValue { $0.machine.completedCount } }

    // MARK: Progress

    var fractionCompleted: Double {
        let (remaining, completed, total, isOver) = self.state.withLockedValue { state in
            (state.machine.remaining, state.machine.completedWeight, state.machine.totalWeight, state.machine.isOver)
        }
        guard !isOver, total > 0 else { return isOver ? 1 : 0 }
        // Members have their own locks, so they are asked outside ours.
        let running = remaining.reduce(0.0) { sum, entry in
            let fraction = entry.member.fractionCompleted
            return sum + Double(entry.weight) * (fraction.isFinite ? min(max(fraction, 0), 1) : 0)
        }
        return min(1, (Double(completed) + running) / Double(total))
    }

    func progress(cancel: @escaping @Sendable () -> Void) -> Progress {
        self.state.withLockedValue { state in
            if let existing = state.progress { return existing.progress }
            let made = TaskProgress(cancel: cancel)
            made.update(to: state.units)
            state.progress = made
            return made.progress
        }
    }

    private static func mustShowProgress(_ state: inout State) -> TaskProgress? {
        guard let progress = state.progress, progress.mustSchedule() else { return nil }
        return progress
    }

    private func scheduleProgress() {
        self.callbackQueue.run {
            _ = self.state.withLockedValue { $0.progress?.begin() }
            self.showProgress()
        }
    }

    /// Updates ``Progress`` to the current state. The update runs the user's observers, which may change the group in
    /// turn, so no lock is held meanwhile: a thread that calls this while it runs leaves the next update to the thread
    /// that is updating.
    private func showProgress() {
        let isFirst = self.showing.withLockedValue { showing in
            defer { showing = showing == .nothing ? .progress : .progressThatIsOld }
            return showing == .nothing
        }
        guard isFirst else { return }
        var mustContinue = true
        while mustContinue {
            let (progress, units) = self.state.withLockedValue { ($0.progress, $0.units) }
            progress?.update(to: units)
            mustContinue = self.showing.withLockedValue { showing in
                defer { showing = showing == .progressThatIsOld ? .progress : .nothing }
                return showing == .progressThatIsOld
            }
        }
    }

    /// Whether a thread is updating ``Progress``, and must do so again.
    private enum Showing { case nothing, progress, progressThatIsOld }
}
