// SPDX-License-Identifier: Apache-2.0
#if Outbox
import DequeModule
import Foundation
import HHSocketRPC
import NIOCore

/// The decisions of an outbox: which message is sent when, and its outcome. Holds messages without their bodies; time
/// and randomness are passed in.
struct OutboxMachine: Sendable {
    /// A moment by two clocks: expiry must outlive the process, and back-off must not jump when the clock is set.
    struct Moment: Sendable {
        var date: Date
        var uptime: NIODeadline
    }

    enum Outcome: Sendable {
        case delivered(SocketResponse)
        case failed(SocketError, OutboxVerdict)
        /// The message's row is damaged.
        case damaged(OutboxError)
        /// The file could not be read, or is damaged itself, which says nothing of the message.
        case unreadable(OutboxError)
        /// The message is no longer on disk.
        case missing
    }

    enum Action: Sendable {
        case send(OutboxEntry)
        /// Remove the message from disk, then report the event. If that fails: ``OutboxMachine/failed(_:_:now:)``.
        case remove(OutboxEntry, OutboxEvent)
        /// Move the message to the dead letters on disk, then report that. If that fails:
        /// ``OutboxMachine/failed(_:_:now:)``.
        case bury(OutboxDeadLetter)
        /// Write the number of failed attempts to disk.
        case count(OutboxEntry.ID, attempts: Int)
        case report(OutboxEvent)
    }

    /// The bound that is reached.
    enum Full: Hashable, Sendable {
        case count, bytes, deadLetters
    }

    private struct Topic: Sendable {
        /// The messages in order. Those that are no longer in ``OutboxMachine/entries`` are ignored; they are removed
        /// lazily, when they are first or when there are many of them.
        var ids: Deque<OutboxEntry.ID> = []
        var count = 0
        var bytes = 0
        var inFlight: OutboxEntry.ID?
        /// The number of consecutive failures of its first message.
        var failures = 0
        /// The end of its back-off.
        var wait: NIODeadline?
        /// Whether a new connection ends that wait.
        var waitsForConnection = false
        /// The message by which it is suspended.
        var suspendedBy: OutboxEntry.ID?
        /// Whether it is in ``OutboxMachine/ready``.
        var isQueued = false
    }

    /// The wait before a failed action on the disk is retried. It does not grow: the disk is local.
    static let diskRetry = TimeAmount.seconds(5)

    private let maximumCount: Int
    private let maximumBytes: Int
    private let maximumConcurrency: Int
    private let maximumDeadLetters: Int
    private let maximumAttempts: Int
    private let whenExhausted: OutboxConfiguration.ExhaustionPolicy
    private let backoff: Backoff

    private var entries: [OutboxEntry.ID: OutboxEntry] = [:]
    private var topics: [String: Topic] = [:]
    /// The topics that may send, each once, the one that has waited longest first, so that none starves.
    private var ready: Deque<String> = []
    private var inFlightCount = 0
    private(set) var isConnected = false
    private var isStopped = false
    /// The bytes of messages that wait or are being written.
    private var bytes = 0
    private var reservedCount = 0
    private var deadLetterCount = 0
    private var deadLetterBytes = 0
    /// The topics that wait, and the entries that expire. Stale items, which disagree with their topic or entry, are
    /// ignored.
    private var waits = AlarmHeap<NIODeadline, String>()
    private var expiries = AlarmHeap<Date, OutboxEntry.ID>()
    /// The failed actions on the disk, which are retried at ``undoneDue``. Their messages are still on disk.
    private var undone: [Action] = []
    private var undoneDue: NIODeadline?

    init(_ configuration: OutboxConfiguration) {
        self.maximumCount = configuration.maximumCount
        self.maximumBytes = configuration.maximumBytes
        self.maximumConcurrency = max(1, configuration.maximumConcurrency)
        self.maximumDeadLetters = max(1, configuration.maximumDeadLetters)
        self.maximumAttempts = max(1, configuration.maximumAttempts)
        self.whenExhausted = configuration.whenExhausted
        self.backoff = configuration.backoff
    }

    // MARK: Messages

    /// Reserves room for a message that is about to be written.
    ///
    /// - Returns: Nil, or the bound that is reached.
    mutating func reserve(bytes: Int) -> Full? {
        guard self.deadLetterCount < self.maximumDeadLetters else { return .deadLetters }
        guard self.hasRoomForOne else { return .count }
        guard bytes <= self.maximumBytes, self.bytes + self.deadLetterBytes <= self.maximumBytes - bytes else {
            return .bytes
        }
        self.reservedCount += 1
        self.bytes += bytes
        return nil
    }

    private var hasRoomForOne: Bool {
        self.entries.count + self.reservedCount + self.undone.count < self.maximumCount
    }

    /// Releases the room of a message that was not written.
    mutating func unreserve(bytes: Int) {
        self.reservedCount -= 1
        self.bytes -= bytes
    }

    /// Adds a message that is now on disk, and for which room was reserved.
    mutating func added(_ entry: OutboxEntry) -> [Action] {
        self.reservedCount -= 1
        self.insert(entry)
        return [.report(.enqueued(entry))]
    }

    /// Adds the messages on disk at the start, in order, even beyond the limits.
    mutating func load(_ entries: [OutboxEntry], deadLetterCount: Int = 0, deadLetterBytes: Int = 0) {
        for entry in entries {
            self.bytes += entry.byteCount
            self.insert(entry)
        }
        self.deadLetterCount = deadLetterCount
        self.deadLetterBytes = deadLetterBytes
    }

    private mutating func insert(_ entry: OutboxEntry) {
        self.entries[entry.id] = entry
        self.topics[entry.topic, default: Topic()].ids.append(entry.id)
        self.topics[entry.topic]?.count += 1
        self.topics[entry.topic]?.bytes += entry.byteCount
        if let expires = entry.expires { self.expiries.insert(expires, entry.id) }
        self.offer(entry.topic)
    }

    /// Forgets a message that is not in flight, or no longer.
    @discardableResult
    private mutating func forget(_ id: OutboxEntry.ID) -> OutboxEntry? {
        guard let entry = self.entries.removeValue(forKey: id) else { return nil }
        self.bytes -= entry.byteCount
        guard var topic = self.topics.removeValue(forKey: entry.topic) else { return entry }
        topic.count -= 1
        topic.bytes -= entry.byteCount
        if topic.suspendedBy == id { topic.suspendedBy = nil }
        if topic.ids.first == id { topic.failures = 0 }
        while let first = topic.ids.first, self.entries[first] == nil { topic.ids.removeFirst() }
        // Removes messages that expired or were withdrawn after a first one that stays.
        if topic.ids.count > 2 * topic.count + 64 { topic.ids.removeAll { self.entries[$0] == nil } }
        // A topic without messages is forgotten, with its wait, which does not apply to a new message.
        guard topic.count > 0 else { return entry }
        self.topics[entry.topic] = topic
        self.offer(entry.topic)
        return entry
    }

    /// Withdraws a message.
    ///
    /// - Returns: Nil if it is not there, or in flight.
    mutating func withdraw(_ id: OutboxEntry.ID) -> [Action]? {
        guard let entry = self.entries[id], self.topics[entry.topic]?.inFlight != id else { return nil }
        self.forget(id)
        return [.remove(entry, .withdrawn(entry))]
    }

    /// Ends the suspension or the back-off of a topic. A message whose attempts were exhausted gets all of them again.
    mutating func resume(topic name: String) -> [Action] {
        let suspendedBy = self.topics[name]?.suspendedBy
        self.topics[name]?.suspendedBy = nil
        self.topics[name]?.wait = nil
        self.offer(name)
        guard let suspendedBy, let attempts = self.entries[suspendedBy]?.attempts, attempts >= self.maximumAttempts
        else { return [] }
        self.entries[suspendedBy]?.attempts = 0
        return [.count(suspendedBy, attempts: 0)]
    }

    // MARK: Dead letters

    private mutating func bury(_ letter: OutboxDeadLetter) -> Action {
        self.forget(letter.id)
        self.deadLetterCount += 1
        self.deadLetterBytes += letter.byteCount
        return .bury(letter)
    }

    /// Reserves room for a dead letter that is about to become a message again. Its bytes already count.
    ///
    /// - Returns: False if as many messages as allowed are waiting.
    mutating func reserveForDeadLetter() -> Bool {
        guard self.hasRoomForOne else { return false }
        self.reservedCount += 1
        return true
    }

    /// Releases the room of a dead letter that did not become a message.
    mutating func unreserveForDeadLetter() {
        self.reservedCount -= 1
    }

    /// Records that a dead letter for which room was reserved has become a message.
    mutating func resent(_ entry: OutboxEntry, deadLetterBytes: Int) -> [Action] {
        self.deadLetterRemoved(bytes: deadLetterBytes)
        self.bytes += entry.byteCount
        return self.added(entry)
    }

    /// Records that a dead letter is no longer on disk.
    mutating func deadLetterRemoved(bytes: Int) {
        self.deadLetterCount -= 1
        self.deadLetterBytes -= bytes
    }

    // MARK: Sending

    /// Enqueues a topic in ``ready``, if it may send.
    private mutating func offer(_ name: String) {
        guard let topic = self.topics[name], !topic.isQueued, topic.count > 0, topic.inFlight == nil,
            topic.wait == nil, topic.suspendedBy == nil
        else { return }
        self.topics[name]?.isQueued = true
        self.ready.append(name)
    }

    /// Records that a connection, perhaps a new one, is ready, or that there is none.
    mutating func connectivityChanged(_ isConnected: Bool) {
        self.isConnected = isConnected
        guard isConnected else { return }
        for (name, topic) in self.topics where topic.wait != nil && topic.waitsForConnection {
            self.topics[name]?.wait = nil
            self.offer(name)
        }
    }

    /// Records that an attempt has ended.
    mutating func finished(
        _ id: OutboxEntry.ID,
        _ outcome: Outcome,
        now: Moment,
        using generator: inout some RandomNumberGenerator
    ) -> [Action] {
        guard var entry = self.entries[id], self.topics[entry.topic]?.inFlight == id else { return [] }
        self.inFlightCount -= 1
        self.topics[entry.topic]?.inFlight = nil
        switch outcome {
        case .delivered(let response):
            self.forget(id)
            return [.remove(entry, .delivered(entry, response))]
        case .missing:
            self.forget(id)
            return []
        case .damaged(let error):
            return [self.bury(OutboxDeadLetter(entry, .unreadable, explanation: error.message, date: now.date))]
        case .unreadable(let error):
            // Another read may succeed, such as when the device is unlocked.
            _ = self.wait(entry.topic, now, false, &generator)
            return [.report(.storageFailed(error))]
        case .failed(let error, let verdict):
            if error.delivery != .notSent { entry.mayHaveBeenSent = true }
            self.entries[id] = entry
            // An attempt that ends because of our own stop has not failed.
            guard !self.isStopped else { return [] }
            guard error.delivery != .notSent else { return self.apply(verdict, to: entry, error, now, &generator) }
            entry.attempts += 1
            self.entries[id] = entry
            return [.count(id, attempts: entry.attempts)] + self.apply(verdict, to: entry, error, now, &generator)
        }
    }

    private mutating func apply(
        _ verdict: OutboxVerdict,
        to entry: OutboxEntry,
        _ error: SocketError,
        _ now: Moment,
        _ generator: inout some RandomNumberGenerator
    ) -> [Action] {
        func letter(_ reason: OutboxDeadLetter.Reason) -> OutboxDeadLetter {
            let status = error.delivery == .answered ? error.code.status : nil
            return OutboxDeadLetter(entry, reason, status: status, explanation: "\(error)", date: now.date)
        }
        switch verdict {
        case .deadLetter:
            return [self.bury(letter(.refused))]
        case .discard:
            self.forget(entry.id)
            return [.remove(entry, .failed(entry, error))]
        case .suspendTopic:
            return [self.suspend(entry, error)]
        default:
            guard error.delivery == .notSent || entry.attempts < self.maximumAttempts else {
                switch self.whenExhausted {
                case .deadLetter: return [self.bury(letter(.exhausted))]
                case .suspendTopic: return [self.suspend(entry, error)]
                }
            }
            let delay = self.wait(entry.topic, now, error.delivery == .notSent, &generator)
            return [.report(.retrying(entry, error, after: delay))]
        }
    }

    private mutating func suspend(_ entry: OutboxEntry, _ error: SocketError) -> Action {
        self.topics[entry.topic]?.suspendedBy = entry.id
        return .report(.suspended(entry, error))
    }

    private mutating func wait(
        _ name: String,
        _ now: Moment,
        _ waitsForConnection: Bool,
        _ generator: inout some RandomNumberGenerator
    ) -> Duration {
        guard var topic = self.topics[name] else { return .zero }
        let delay = self.backoff.wait(afterFailures: topic.failures, using: &generator)
        topic.failures += 1
        topic.waitsForConnection = waitsForConnection
        let until = now.uptime + TimeAmount(delay)
        topic.wait = until
        self.topics[name] = topic
        let topics = self.topics
        if self.waits.isCrowded(owners: topics.count) { self.waits.sweep { topics[$0.key]?.wait == $0.time } }
        self.waits.insert(until, name)
        return delay
    }

    /// Returns the actions that are due now. Call it after all other events.
    mutating func step(now: Moment) -> [Action] {
        guard !self.isStopped else { return [] }
        var actions: [Action] = []
        self.expire(now.date, &actions)
        while let due = self.waits.popDue(now: now.uptime) {
            guard self.topics[due.key]?.wait == due.time else { continue }
            self.topics[due.key]?.wait = nil
            self.offer(due.key)
        }
        while self.isConnected, self.inFlightCount < self.maximumConcurrency, let name = self.ready.popFirst() {
            self.topics[name]?.isQueued = false
            guard let topic = self.topics[name], topic.inFlight == nil, topic.wait == nil, topic.suspendedBy == nil,
                let id = topic.ids.first, let entry = self.entries[id]
            else { continue }
            self.topics[name]?.inFlight = id
            self.inFlightCount += 1
            actions.append(.send(entry))
        }
        if let due = self.undoneDue, due <= now.uptime {
            self.undoneDue = nil
            actions += self.undone
            self.undone = []
        }
        return actions
    }

    private mutating func expire(_ now: Date, _ actions: inout [Action]) {
        var inFlight: [AlarmHeap<Date, OutboxEntry.ID>.Alarm] = []
        while let due = self.expiries.popDue(now: now) {
            guard let entry = self.entries[due.key], entry.expires == due.time else { continue }
            guard self.topics[entry.topic]?.inFlight != entry.id else {
                // The answer decides; without one the message expires when the attempt ends.
                inFlight.append(due)
                continue
            }
            self.forget(entry.id)
            actions.append(.remove(entry, .expired(entry)))
        }
        for due in inFlight { self.expiries.insert(due.time, due.key) }
        // Entries of messages delivered long before their expiry must not pile up.
        let entries = self.entries
        if self.expiries.isCrowded(owners: entries.count) { self.expiries.sweep { entries[$0.key] != nil } }
    }

    /// Returns the time until something is due; nil if nothing is due before the next event.
    func nextStep(now: Moment) -> Duration? {
        guard !self.isStopped else { return nil }
        var next: Duration?
        func consider(_ wait: Duration) {
            let wait = max(.zero, wait)
            next = next.map { min($0, wait) } ?? wait
        }
        // Without a connection the end of a wait changes nothing.
        if self.isConnected, let due = self.waits.first { consider(Duration(due.time - now.uptime)) }
        if let due = self.expiries.first {
            let isInFlight = self.entries[due.key].map { self.topics[$0.topic]?.inFlight == $0.id } ?? false
            // The end of its attempt is an event; others that expire meanwhile are found then, or after the longest
            // sleep.
            if !isInFlight || due.time > now.date { consider(.seconds(due.time.timeIntervalSince(now.date))) }
        }
        if let due = self.undoneDue { consider(Duration(due - now.uptime)) }
        return next
    }

    // MARK: The disk

    /// Records that a finished message could not be removed or moved. This process does not send it again.
    mutating func failed(_ action: Action, _ error: OutboxError, now: Moment) -> [Action] {
        self.undone.append(action)
        // The first of several failures reports the error.
        guard self.undoneDue == nil else { return [] }
        self.undoneDue = now.uptime + Self.diskRetry
        return [.report(.storageFailed(error))]
    }

    // MARK: Looking at it

    /// Stops sending.
    mutating func stop() {
        self.isStopped = true
    }

    /// For tests: the number of expiries that are held.
    var expiryCount: Int { self.expiries.count }

    /// For tests: the number of identifiers that a topic holds, including ignored ones.
    func queueLength(ofTopic name: String) -> Int { self.topics[name]?.ids.count ?? 0 }

    var snapshot: OutboxSnapshot {
        OutboxSnapshot(
            isConnected: self.isConnected,
            topics: self.topics.mapValues { topic in
                OutboxSnapshot.Topic(
                    count: topic.count,
                    bytes: topic.bytes,
                    isInFlight: topic.inFlight != nil,
                    isSuspended: topic.suspendedBy != nil
                )
            },
            count: self.entries.count,
            bytes: self.topics.values.reduce(0) { $0 + $1.bytes },
            deadLetterCount: self.deadLetterCount,
            deadLetterBytes: self.deadLetterBytes
        )
    }

    /// The messages that wait, in the order in which they were enqueued.
    var pending: [OutboxEntry] { self.entries.values.sorted { $0.id < $1.id } }
}
#endif
