// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Dispatch
import Foundation
public import HHSocketRPC

/// A queue of messages that must be delivered, even if the app dies: they are on disk before ``enqueue(_:)`` returns,
/// and stay there until the server has answered 200.
///
/// ```swift configuration.hello = HelloPolicy() let client = SocketClient(configuration: configuration)
/// client.connect() let outbox = try await Outbox(at: folder + "/outbox.sqlite", client: client) try await
/// outbox.enqueue(OutboxMessage(type: 130, body: "hello", topic: "conversation 7")) ``` Whenever a connection is ready,
/// after hello and the gate, messages are sent: within a topic in the order in which they were enqueued, each after the
/// one before it was answered, and several topics at once. A message without an answer is sent again after a back-off,
/// by the next process too, always with the same idempotency key, so that the server runs it once. That requires a
/// client with ``/HHSocketRPC/SocketClient/Configuration/hello``, and a server that agrees on idempotency keys and
/// keeps its answers at least as long as messages live (`ServerHello.idempotency`). A message is never sent without its
/// key.
///
/// A message that the server refuses for good, or of which too many attempts fail, is moved to the dead letters
/// (``deadLetters()``), where it stays until the app resends or removes it. So a message is deleted only once it was
/// delivered, once it has expired, or at the app's request. ``OutboxConfiguration/verdict`` can decide otherwise.
/// Everything is bounded.
///
/// Delivery is at least once: if the process ends after the answer, but before the message is removed from disk, the
/// next process sends it again, with the same key.
///
/// Only one outbox at a time can open a file. It holds a strong reference to its client. Without ``close()`` it ends
/// after its last reference is released, but not immediately.
public final class Outbox: Sendable {
    private let runner: OutboxRunner
    /// The path to which a damaged file was renamed, by ``OutboxConfiguration/CorruptionPolicy/setAside``; nil if there
    /// was none.
    public let setAside: String?

    /// Opens or creates the file, and starts to send.
    ///
    /// - Parameters:
    ///   - path: The file, in a folder that exists. Other files whose names begin with its name are created beside it.
    ///     On Apple platforms it must not be in a container that several processes share: the system ends a process
    ///     that is suspended while it has a file there locked.
    ///   - client: The client that sends messages. Connecting it is up to the app.
    ///   - configuration: The configuration; `OutboxConfiguration()` by default.
    /// - Throws: ``OutboxError``: `inUse`, `readOnly`, `diskFull`, `corrupted`, `notAnOutbox`, `newerVersion`,
    ///   `storageFailed`.
    public convenience init(
        at path: String,
        client: SocketClient,
        configuration: OutboxConfiguration = OutboxConfiguration()
    ) async throws(OutboxError) {
        try await self.init(at: path, transport: ClientTransport(client: client), configuration: configuration)
    }

    /// Creates an outbox with another transport.
    public convenience init(
        at path: String,
        transport: some OutboxTransport,
        configuration: OutboxConfiguration = OutboxConfiguration()
    ) async throws(OutboxError) {
        try await self.init(at: path, transport: transport, configuration: configuration, clock: .system)
    }

    init(
        at path: String,
        transport: some OutboxTransport,
        configuration: OutboxConfiguration,
        clock: OutboxClock
    ) async throws(OutboxError) {
        let queue = DispatchQueue(label: "HHSocketOutbox")
        let now = clock.now().date
        let opened = await withCheckedContinuation { continuation in
            queue.async {
                continuation.resume(
                    returning: Result { () throws(OutboxError) in
                        try OutboxStore.open(path, configuration, now: now)
                    }
                )
            }
        }
        let (store, contents) = try opened.get()
        self.setAside = store.setAside
        self.runner = OutboxRunner(
            configuration,
            transport,
            OutboxWriter(store, on: queue),
            clock,
            loaded: contents
        )
        self.runner.start()
    }

    deinit {
        self.runner.stop()
        self.runner.observers.finish()
    }

    // MARK: Messages

    /// Stores a message, to be sent in its turn. Returns when it is on disk, and would survive a loss of power;
    /// delivery is not guaranteed before. Messages that one task enqueues one after the other are sent in that order.
    ///
    /// If an equal message, with the same key, topic, type, body and metadata, is already waiting, nothing is added: an
    /// app that does not know whether it enqueued a message before it died may do so again.
    ///
    /// - Returns: The message's identifier in this outbox.
    /// - Throws: ``OutboxError``: `full` if as many messages or bytes as allowed are waiting, `deadLettersFull` if
    ///   there are as many dead letters as allowed, `keyInUse` if another message with its key is waiting,
    ///   `invalidMessage`, `diskFull`, `storageFailed`, `closed`. The message was not stored.
    @discardableResult
    public func enqueue(_ message: OutboxMessage) async throws(OutboxError) -> OutboxEntry.ID {
        try await self.runner.enqueue(message)
    }

    /// Withdraws a message.
    ///
    /// - Returns: False if it is in flight, or no longer waiting. If true, this process does not send it; it has been
    ///   removed from disk when ``OutboxEvent/withdrawn(_:)`` is reported. ``OutboxEntry/mayHaveBeenSent`` in the event
    ///   tells whether the server may have received it all the same.
    @discardableResult
    public func withdraw(_ id: OutboxEntry.ID) -> Bool { self.runner.withdraw(id) }

    /// Ends the suspension of a topic, or its back-off. A message whose attempts were exhausted gets all of them again.
    public func resume(topic: String) { self.runner.resume(topic: topic) }

    // MARK: What waits

    /// The current state of the outbox.
    public var snapshot: OutboxSnapshot { self.runner.snapshot }

    /// The messages that wait, including those in flight, in the order in which they were enqueued.
    public var pending: [OutboxEntry] { self.runner.pending }

    // MARK: Dead letters

    /// Returns the messages of this account that were given up, in the order in which they were enqueued.
    ///
    /// - Returns: At most ``OutboxConfiguration/maximumCount`` and ``OutboxConfiguration/maximumDeadLetters`` together,
    ///   without their bodies.
    /// - Throws: ``OutboxError``: `storageFailed`, `corrupted`, `closed`.
    public func deadLetters() async throws(OutboxError) -> [OutboxDeadLetter] { try await self.runner.deadLetters() }

    /// Returns a dead letter with its body, metadata and key.
    ///
    /// - Returns: Nil if there is no such dead letter.
    /// - Throws: ``OutboxError``: `corrupted` if it is damaged on disk, `storageFailed`, `closed`.
    public func message(ofDeadLetter id: OutboxEntry.ID) async throws(OutboxError) -> OutboxMessage? {
        try await self.runner.message(ofDeadLetter: id)
    }

    /// Turns a dead letter into a message again, the last of its topic, with all its attempts.
    ///
    /// With its old key the server runs it at most once; but if its answer was final, the server keeps that for the
    /// key, and repeats it until it expires. With a new key the server runs the message, perhaps for the second time.
    ///
    /// - Parameters:
    ///   - id: The dead letter's ``OutboxDeadLetter/id``.
    ///   - withNewKey: Whether it gets a new UUID as key; false by default.
    ///   - timeToLive: The time from now for which it is worth sending; nil, the default, for
    ///     ``OutboxConfiguration/defaultTimeToLive``.
    /// - Returns: The new identifier of the message, or that of an equal message with the same key that is already
    ///   waiting. Nil if there is no such dead letter.
    /// - Throws: ``OutboxError``: `full` if as many messages as allowed are waiting, `keyInUse` if another message with
    ///   its key is waiting, `corrupted` if it is damaged on disk, `invalidMessage`, `diskFull`, `storageFailed`,
    ///   `closed`. The dead letter then stays.
    @discardableResult
    public func resend(
        deadLetter id: OutboxEntry.ID,
        withNewKey: Bool = false,
        timeToLive: Duration? = nil
    ) async throws(OutboxError) -> OutboxEntry.ID? {
        try await self.runner.resend(
            deadLetter: id,
            key: withNewKey ? UUID().uuidString : nil,
            timeToLive: timeToLive
        )
    }

    /// Deletes a dead letter.
    ///
    /// - Returns: False if there is no such dead letter.
    /// - Throws: ``OutboxError``: `diskFull`, `storageFailed`, `closed`.
    @discardableResult
    public func remove(deadLetter id: OutboxEntry.ID) async throws(OutboxError) -> Bool {
        try await self.runner.remove(deadLetter: id)
    }

    // MARK: Accounts

    /// Deletes the messages and dead letters of all accounts other than ``OutboxConfiguration/account``, sent or not.
    ///
    /// - Returns: The number of messages and dead letters.
    /// - Throws: ``OutboxError``: `diskFull`, `storageFailed`, `closed`.
    @discardableResult
    public func removeOtherAccounts() async throws(OutboxError) -> Int { try await self.runner.removeOtherAccounts() }

    // MARK: What happens

    /// The state of the outbox, now and after each change. A slow reader gets the latest. Ends with the outbox.
    ///
    /// ```swift
    /// for await snapshot in outbox.snapshots where snapshot.count == 0 { break }
    /// ```
    public var snapshots: OutboxSnapshots {
        OutboxSnapshots(changes: self.runner.observers.makeChanges(), runner: self.runner)
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the outbox.
    public var events: AsyncStream<OutboxEvent> { self.runner.observers.makeEvents() }

    // MARK: The end

    /// Cancels the attempts in flight, whose messages stay on disk, and closes the file, which another outbox may then
    /// open.
    public func close() async { await self.runner.close() }
}

/// The sequence of an outbox's states.
public struct OutboxSnapshots: AsyncSequence, Sendable {
    public typealias Element = OutboxSnapshot
    public typealias Failure = Never

    let changes: AsyncStream<Void>
    let runner: OutboxRunner

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(changes: self.changes.makeAsyncIterator(), runner: self.runner)
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        var changes: AsyncStream<Void>.Iterator
        let runner: OutboxRunner

        public mutating func next() async -> OutboxSnapshot? {
            // Made on demand, so that changes without a reader cost nothing.
            await self.changes.next() == nil ? nil : self.runner.snapshot
        }
    }
}
#endif
