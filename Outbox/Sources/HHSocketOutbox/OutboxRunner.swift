// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore

/// Performs the decisions of an ``OutboxMachine``.
final class OutboxRunner: Sendable {
    private struct State {
        var machine: OutboxMachine
        var generator = SystemRandomNumberGenerator()
        /// The attempts, by number: a message may have its next attempt before the previous one has ended.
        var attempts: [Int: Task<Void, Never>] = [:]
        /// The removals that are not known to be on disk, by message: where the message has no entry in the machine any
        /// more, its row may still be there.
        var removals: [OutboxEntry.ID: OutboxMachine.Action] = [:]
        var lastAttempt = 0
        var connectivity: Task<Void, Never>?
        /// The time at which ``wake`` ends.
        var wakeTime: NIODeadline?
        var wake: Task<Void, Never>?
        var isStopped = false
    }

    /// The longest sleep: the clock by which messages expire may be set.
    static let longestSleep = Duration.seconds(3_600)

    private let configuration: OutboxConfiguration
    private let transport: any OutboxTransport
    private let writer: OutboxWriter
    private let clock: OutboxClock
    private let state: NIOLockedValueBox<State>
    let observers = OutboxObservers()

    init(
        _ configuration: OutboxConfiguration,
        _ transport: any OutboxTransport,
        _ writer: OutboxWriter,
        _ clock: OutboxClock,
        loaded: OutboxStore.Contents
    ) {
        self.configuration = configuration
        self.transport = transport
        self.writer = writer
        self.clock = clock
        var machine = OutboxMachine(configuration)
        machine.load(
            Self.limitingLives(of: loaded.entries, now: clock.now().date),
            deadLetterCount: loaded.deadLetterCount,
            deadLetterBytes: loaded.deadLetterBytes
        )
        self.state = NIOLockedValueBox(State(machine: machine))
    }

    /// Limits the remaining lifetimes of messages to their original ones, which would be longer if the clock was set
    /// back since.
    private static func limitingLives(of entries: [OutboxEntry], now: Date) -> [OutboxEntry] {
        entries.map { entry in
            guard let expires = entry.expires, entry.enqueued > now else { return entry }
            var entry = entry
            entry.expires = now + max(0, expires.timeIntervalSince(entry.enqueued))
            return entry
        }
    }

    // MARK: Turns

    /// Passes an event to the machine, and performs the resulting actions, never under the lock.
    ///
    /// Only actions for the disk are submitted to the writer under the lock: a caller that sees a state of the machine,
    /// such as in a snapshot, and then uses the writer, finds the causes of that state on disk.
    private func step(
        _ news: (inout OutboxMachine, OutboxMachine.Moment, inout SystemRandomNumberGenerator) -> [OutboxMachine.Action]
    ) {
        let now = self.clock.now()
        let (actions, next) = self.state.withLockedValue { state in
            var actions = news(&state.machine, now, &state.generator)
            actions += state.machine.step(now: now)
            for action in actions { self.save(action, &state) }
            return (actions, state.machine.nextStep(now: now))
        }
        for action in actions { self.perform(action) }
        if let next { self.wake(in: next, now) }
        self.observers.changed()
    }

    private func perform(_ action: OutboxMachine.Action) {
        switch action {
        case .send(let entry): self.send(entry)
        case .report(let event): self.observers.report(event)
        case .remove, .bury, .count: break
        }
    }

    /// Submits an action to the writer, if it is one for the disk. The writer calls nothing before this returns.
    private func save(_ action: OutboxMachine.Action, _ state: inout State) {
        switch action {
        case .remove(let entry, let event):
            state.removals[entry.id] = action
            self.write(action, of: entry.id, thenReports: event)
        case .bury(let letter):
            state.removals[letter.id] = action
            self.write(action, of: letter.id, thenReports: .deadLettered(letter))
        case .count(let id, let attempts):
            self.writer.submit({ try $0.setAttempts(attempts, of: id) }) { result in
                // The count is still in memory, and is on disk after the next failure.
                if case .failure(let error) = result { self.observers.report(.storageFailed(error)) }
            }
        case .send, .report: break
        }
    }

    /// Removes a finished message from its table. The event is reported only once the removal is on disk.
    private func write(
        _ action: OutboxMachine.Action,
        of id: OutboxEntry.ID,
        thenReports event: OutboxEvent
    ) {
        self.writer.submit(freesSpace: true, { try $0.remove(by: action) }) { result in
            switch result {
            case .success:
                self.state.withLockedValue { $0.removals[id] = nil }
                self.observers.report(event)
            case .failure(let error): self.step { machine, now, _ in machine.failed(action, error, now: now) }
            }
        }
    }

    /// Schedules a turn after this delay unless one is due earlier.
    private func wake(in delay: Duration, _ now: OutboxMachine.Moment) {
        let delay = min(max(delay, .milliseconds(1)), Self.longestSleep)
        let time = now.uptime + TimeAmount(delay)
        let former: Task<Void, Never>? = self.state.withLockedValue { state in
            if state.isStopped { return nil }
            if let wakeTime = state.wakeTime, wakeTime <= time { return nil }
            state.wakeTime = time
            let former = state.wake
            let sleep = self.clock.sleep
            state.wake = Task { [weak self] in
                do { try await sleep(delay) } catch { return }
                self?.wokeUp(time)
            }
            return former
        }
        former?.cancel()
    }

    private func wokeUp(_ time: NIODeadline) {
        self.state.withLockedValue { state in
            // Otherwise another wake-up has replaced this one.
            guard state.wakeTime == time else { return }
            state.wakeTime = nil
            state.wake = nil
        }
        self.step { _, _, _ in [] }
    }

    // MARK: Sending

    func start() {
        let connectivity = self.transport.connectivity
        let task = Task { [weak self] in
            for await isConnected in connectivity {
                self?.step { machine, _, _ in
                    machine.connectivityChanged(isConnected)
                    return []
                }
            }
            self?.step { machine, _, _ in
                machine.connectivityChanged(false)
                return []
            }
        }
        self.state.withLockedValue { $0.connectivity = task }
        // Messages that have expired need not wait for a connection.
        self.step { _, _, _ in [] }
    }

    private func send(_ entry: OutboxEntry) {
        self.state.withLockedValue { state in
            guard !state.isStopped else { return }
            state.lastAttempt += 1
            let number = state.lastAttempt
            // Created under the lock, so that it is registered before it can end; it does not run under the lock.
            state.attempts[number] = Task {
                let outcome = await self.attempt(entry)
                self.step { $0.finished(entry.id, outcome, now: $1, using: &$2) }
                // Removed last: `close()` waits for attempts, and so until the outcome has been submitted to the
                // writer.
                self.state.withLockedValue { _ = $0.attempts.removeValue(forKey: number) }
            }
        }
    }

    private func attempt(_ entry: OutboxEntry) async -> OutboxMachine.Outcome {
        let content: OutboxStore.Content
        do throws(OutboxError) {
            switch try await self.writer.perform({ try $0.content(entry.id) }) {
            case .found(let found): content = found
            case .damaged(let error): return .damaged(error)
            case .missing: return .missing
            }
        } catch {
            return .unreadable(error)
        }
        var request = SocketRequest(type: entry.type, body: content.body, timeout: self.configuration.attemptTimeout)
        request.metadata = content.metadata
        request.idempotencyKey = entry.key
        request.priority = self.configuration.priority
        // A connection that was just lost may be back before the attempt is over. Only the outbox retries.
        request.waitsForConnectivity = true
        request.retryPolicy = RetryPolicy.none
        do throws(SocketError) {
            return .delivered(try await self.transport.send(request))
        } catch {
            return .failed(error, self.configuration.verdict(entry, error))
        }
    }

    // MARK: Messages

    func enqueue(_ message: OutboxMessage) async throws(OutboxError) -> OutboxEntry.ID {
        if let refusal = message.refusal { throw refusal }
        let bytes = message.byteCount
        try self.reserve(bytes)
        let now = self.clock.now().date
        let expires = self.expiry(message.timeToLive, now)
        let result = await withCheckedContinuation { continuation in
            self.writer.submit({
                try $0.insert(message, enqueued: now, expires: expires, removal: self.removal)
            }) { result in
                continuation.resume(returning: self.inserted(result, bytes: bytes))
            }
        }
        return try result.get()
    }

    /// The removal of a message that is not known to be on disk; nil if the message waits.
    @Sendable private func removal(of id: OutboxEntry.ID) -> OutboxMachine.Action? {
        self.state.withLockedValue { $0.removals[id] }
    }

    private func expiry(_ timeToLive: Duration?, _ now: Date) -> Date? {
        (timeToLive ?? self.configuration.defaultTimeToLive).flatMap { Self.date(now, $0) }
    }

    private func reserve(_ bytes: Int) throws(OutboxError) {
        let (full, isStopped) = self.state.withLockedValue { state in
            state.isStopped ? (nil, true) : (state.machine.reserve(bytes: bytes), false)
        }
        if isStopped { throw Self.closed }
        if let full { throw self.refusal(full, bytes) }
    }

    private static var closed: OutboxError {
        OutboxError(.closed, message: "the outbox has been closed; open it anew")
    }

    private func refusal(_ full: OutboxMachine.Full, _ bytes: Int) -> OutboxError {
        switch full {
        case .count:
            OutboxError(
                .full,
                message: """
                    \(self.configuration.maximumCount) messages are waiting already; wait until some have left (snapshots), \
                    withdraw some, or raise OutboxConfiguration.maximumCount
                    """
            )
        case .bytes:
            OutboxError(
                .full,
                message: """
                    \(bytes) bytes more than the messages and dead letters have already would be more than \
                    \(self.configuration.maximumBytes); wait until some have left (snapshots), withdraw some, remove dead \
                    letters, or raise OutboxConfiguration.maximumBytes
                    """
            )
        case .deadLetters:
            OutboxError(
                .deadLettersFull,
                message: """
                    there are \(self.configuration.maximumDeadLetters) dead letters or more; resend or remove some \
                    (deadLetters()), or raise OutboxConfiguration.maximumDeadLetters
                    """
            )
        }
    }

    private func inserted(
        _ result: Result<OutboxStore.Insertion, OutboxError>,
        bytes: Int
    ) -> Result<OutboxEntry.ID, OutboxError> {
        switch result {
        case .success(.added(let entry)):
            self.step { machine, _, _ in machine.added(entry) }
            return .success(entry.id)
        case .success(.existing(let id)):
            self.unreserve(bytes)
            return .success(id)
        case .success(.refused(let error)), .failure(let error):
            self.unreserve(bytes)
            return .failure(error)
        }
    }

    private func unreserve(_ bytes: Int) {
        self.state.withLockedValue { $0.machine.unreserve(bytes: bytes) }
    }

    /// - Returns: Nil if it cannot be represented, which means never.
    private static func date(_ now: Date, _ span: Duration) -> Date? {
        let (seconds, attoseconds) = span.components
        // Some thousand years.
        guard seconds < 100_000_000_000 else { return nil }
        return now.addingTimeInterval(Double(seconds) + Double(attoseconds) / 1e18)
    }

    func withdraw(_ id: OutboxEntry.ID) -> Bool {
        let done = NIOLockedValueBox(false)
        self.step { machine, _, _ in
            guard let actions = machine.withdraw(id) else { return [] }
            done.withLockedValue { $0 = true }
            return actions
        }
        return done.withLockedValue { $0 }
    }

    func resume(topic: String) {
        self.step { machine, _, _ in machine.resume(topic: topic) }
    }

    var snapshot: OutboxSnapshot { self.state.withLockedValue { $0.machine.snapshot } }
    var pending: [OutboxEntry] { self.state.withLockedValue { $0.machine.pending } }

    // MARK: Dead letters

    func deadLetters() async throws(OutboxError) -> [OutboxDeadLetter] {
        try await self.writer.perform { try $0.deadLetters() }
    }

    func message(ofDeadLetter id: OutboxEntry.ID) async throws(OutboxError) -> OutboxMessage? {
        try await self.writer.perform { try $0.message(ofDeadLetter: id)?.message }
    }

    func resend(
        deadLetter id: OutboxEntry.ID,
        key: String?,
        timeToLive: Duration?
    ) async throws(OutboxError) -> OutboxEntry.ID? {
        if let timeToLive, timeToLive <= .zero { throw OutboxMessage.tooShort(timeToLive) }
        let (hasRoom, isStopped) = self.state.withLockedValue { state in
            state.isStopped ? (false, true) : (state.machine.reserveForDeadLetter(), false)
        }
        if isStopped { throw Self.closed }
        guard hasRoom else { throw self.refusal(.count, 0) }
        let now = self.clock.now().date
        let expires = self.expiry(timeToLive, now)
        let result: Result<OutboxEntry.ID?, OutboxError> = await withCheckedContinuation { continuation in
            self.writer.submit(
                freesSpace: true,
                { try $0.resend(deadLetter: id, key: key, enqueued: now, expires: expires, removal: self.removal) },
                { continuation.resume(returning: self.resent($0)) }
            )
        }
        return try result.get()
    }

    private func resent(_ result: Result<OutboxStore.Resending?, OutboxError>) -> Result<OutboxEntry.ID?, OutboxError> {
        let resending: OutboxStore.Resending?
        switch result {
        case .success(let found): resending = found
        case .failure(let error):
            self.state.withLockedValue { $0.machine.unreserveForDeadLetter() }
            return .failure(error)
        }
        if let resending, case .added(let entry) = resending.insertion {
            self.step { machine, _, _ in machine.resent(entry, deadLetterBytes: resending.deadLetterBytes) }
            return .success(entry.id)
        }
        self.state.withLockedValue { $0.machine.unreserveForDeadLetter() }
        switch resending?.insertion {
        case .existing(let id):
            self.deadLetterRemoved(bytes: resending?.deadLetterBytes ?? 0)
            return .success(id)
        case .refused(let error):
            return .failure(error)
        case .added, nil:
            return .success(nil)
        }
    }

    func remove(deadLetter id: OutboxEntry.ID) async throws(OutboxError) -> Bool {
        guard let bytes = try await self.writer.perform(freesSpace: true, { try $0.remove(deadLetter: id) }) else {
            return false
        }
        self.deadLetterRemoved(bytes: bytes)
        return true
    }

    private func deadLetterRemoved(bytes: Int) {
        self.step { machine, _, _ in
            machine.deadLetterRemoved(bytes: bytes)
            return []
        }
    }

    func removeOtherAccounts() async throws(OutboxError) -> Int {
        try await self.writer.perform(freesSpace: true) { try $0.removeOtherAccounts() }
    }

    // MARK: The end

    /// Stops sending, and cancels the attempts in flight.
    ///
    /// - Returns: The attempts that have not ended yet.
    @discardableResult
    func stop() -> [Task<Void, Never>] {
        let (attempts, others) = self.state.withLockedValue { state in
            guard !state.isStopped else { return (Array(state.attempts.values), [Task<Void, Never>?]()) }
            state.isStopped = true
            state.machine.stop()
            defer { (state.wake, state.connectivity) = (nil, nil) }
            return (Array(state.attempts.values), [state.wake, state.connectivity])
        }
        for task in attempts { task.cancel() }
        for task in others { task?.cancel() }
        return attempts
    }

    func close() async {
        for attempt in self.stop() { await attempt.value }
        await self.writer.close()
        self.observers.finish()
    }
}
#endif
