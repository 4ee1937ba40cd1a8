#if Outbox
import Dispatch
import Foundation
public import HHSocketRPC

/// Messages that must leave, even if the app dies: they are on disk before ``enqueue(_:)`` returns, and stay there
/// until the server has answered 200.
///
/// ```swift
/// configuration.hello = HelloPolicy()
/// let client = SocketClient(configuration: configuration)
/// client.connect()
/// let outbox = try await Outbox(at: folder + "/outbox.sqlite", client: client)
/// try await outbox.enqueue(OutboxMessage(type: 130, body: "hello", topic: "conversation 7"))
/// ```
/// Whenever a connection is ready, hello and gate behind it, messages leave: within a topic in the order in which they
/// were enqueued, each after the one before it was answered, and of several topics at once. What was not answered is
/// sent again after a back-off, as often as it takes, by the next process too, and with the same idempotency key: so
/// the server runs it once. That takes a client with ``HHSocketRPC/SocketClient/Configuration/hello``, and a server
/// that agrees on idempotency keys and keeps its answers at least as long as messages live (`ServerHello.idempotency`).
/// A message is never sent without its key.
///
/// A message that the server refuses for good, or of which too many attempts fail, is moved to the dead letters
/// (``deadLetters()``), where it stays until the app resends or removes it. So a message is deleted only when it was
/// delivered, when it has expired, or because the app says so. ``OutboxConfiguration/verdict`` decides otherwise.
/// Everything is bounded.
///
/// Delivery is at least once: if the process ends after the answer, but before the message is removed from disk, the
/// next process sends it again, with the same key.
///
/// One outbox at a time has a file. It keeps its client. Without ``close()`` it ends with its last reference, but not
/// at once.
public final class Outbox: Sendable {
    private let core: OutboxCore
    /// Where a damaged file is that was found in its place, as ``OutboxConfiguration/CorruptionPolicy/setAside`` says.
    public let setAside: String?

    /// Opens the file, or makes it, and begins to send.
    ///
    /// - Parameters:
    ///   - path: The file, in a folder that exists. Beside it there will be others whose names begin with its own. On
    ///     Apple's platforms not in a container that several processes share: a process that is suspended while it has
    ///     a file there locked is ended.
    ///   - client: By what messages leave. Connecting it is the app's affair.
    ///   - configuration: How it keeps and sends; as by default if left out.
    /// - Throws: ``OutboxError``: `inUse`, `readOnly`, `diskFull`, `corrupted`, `notAnOutbox`, `newerVersion`,
    ///   `storageFailed`.
    public convenience init(
        at path: String,
        client: SocketClient,
        configuration: OutboxConfiguration = OutboxConfiguration()
    ) async throws(OutboxError) {
        try await self.init(at: path, transport: ClientTransport(client: client), configuration: configuration)
    }

    /// An outbox with another way to send.
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
        self.core = OutboxCore(
            configuration,
            transport,
            OutboxWriter(store, on: queue),
            clock,
            loaded: contents
        )
        self.core.start()
    }

    deinit {
        self.core.stop()
        self.core.observers.finish()
    }

    // MARK: Messages

    /// Keeps a message and sends it when its turn has come. Returns when it is on disk, and would survive a loss of
    /// power; until then it is not promised. Messages that one task enqueues one after the other leave in that order.
    ///
    /// Where a message with the same key, topic, type, body and metadata is waiting already, nothing is added: so an
    /// app that does not know whether it has enqueued something before it died may do so again.
    ///
    /// - Returns: What names it here.
    /// - Throws: ``OutboxError``: `full` where as much waits as may, `deadLettersFull` where there are as many dead
    ///   letters as may be, `keyInUse` where another message with its key is waiting, `invalidMessage`, `diskFull`,
    ///   `storageFailed`, `closed`. Nothing was kept then.
    @discardableResult
    public func enqueue(_ message: OutboxMessage) async throws(OutboxError) -> OutboxEntry.ID {
        try await self.core.enqueue(message)
    }

    /// Takes a message back.
    ///
    /// - Returns: False if it is in flight, or not there any more. After true it is not sent by this process; it is
    ///   removed from disk when ``OutboxEvent/withdrawn(_:)`` is reported. ``OutboxEntry/mayHaveBeenSent`` there says
    ///   whether the server may have got it all the same.
    @discardableResult
    public func withdraw(_ id: OutboxEntry.ID) -> Bool { self.core.withdraw(id) }

    /// Ends the suspension of a topic, or its back-off. A message whose attempts were exhausted may be sent as often
    /// again.
    public func resume(topic: String) { self.core.resume(topic: topic) }

    // MARK: What waits

    /// What waits now.
    public var snapshot: OutboxSnapshot { self.core.snapshot }

    /// Each message that waits, those in flight included, in the order in which they were enqueued.
    public var pending: [OutboxEntry] { self.core.pending }

    // MARK: Dead letters

    /// The messages of this account that were given up, in the order in which they were enqueued.
    ///
    /// - Returns: ``OutboxConfiguration/maximumCount`` and ``OutboxConfiguration/maximumDeadLetters`` together at most,
    ///   without their bodies.
    /// - Throws: ``OutboxError``: `storageFailed`, `corrupted`, `closed`.
    public func deadLetters() async throws(OutboxError) -> [OutboxDeadLetter] { try await self.core.deadLetters() }

    /// A dead letter with its body, metadata and key.
    ///
    /// - Returns: Nil if there is no such dead letter.
    /// - Throws: ``OutboxError``: `corrupted` if it is damaged on disk, `storageFailed`, `closed`.
    public func message(ofDeadLetter id: OutboxEntry.ID) async throws(OutboxError) -> OutboxMessage? {
        try await self.core.message(ofDeadLetter: id)
    }

    /// Makes a dead letter a message again, the last of its topic. It has all its attempts again.
    ///
    /// With its old key the server runs it once at most; but if its answer was final, the server keeps that for the
    /// key, and gives it again until it forgets it. With a new key the server runs the message, perhaps for the second
    /// time.
    ///
    /// - Parameters:
    ///   - id: The dead letter's ``OutboxDeadLetter/id``.
    ///   - withNewKey: Whether it gets a new UUID for key; false by default.
    ///   - timeToLive: For how long it is worth sending from now on; nil, the default, for
    ///     ``OutboxConfiguration/defaultTimeToLive``.
    /// - Returns: The number of the message, which is another than before; if the same message with the same key is
    ///   waiting already, that one's. Nil if there is no such dead letter.
    /// - Throws: ``OutboxError``: `full` where as many messages wait as may, `keyInUse` where another message with its
    ///   key is waiting, `corrupted` if it is damaged on disk, `invalidMessage`, `diskFull`, `storageFailed`, `closed`.
    ///   It is a dead letter still then.
    @discardableResult
    public func resend(
        deadLetter id: OutboxEntry.ID,
        withNewKey: Bool = false,
        timeToLive: Duration? = nil
    ) async throws(OutboxError) -> OutboxEntry.ID? {
        try await self.core.resend(
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
        try await self.core.remove(deadLetter: id)
    }

    // MARK: Accounts

    /// Deletes the messages and dead letters of all accounts but ``OutboxConfiguration/account``, sent or not.
    ///
    /// - Returns: The number of messages and dead letters.
    /// - Throws: ``OutboxError``: `diskFull`, `storageFailed`, `closed`.
    @discardableResult
    public func removeOtherAccounts() async throws(OutboxError) -> Int { try await self.core.removeOtherAccounts() }

    // MARK: What happens

    /// What waits, now and whenever that changes. A reader that is slow gets the latest. Ends with the outbox.
    ///
    /// ```swift
    /// for await snapshot in outbox.snapshots where snapshot.count == 0 { break }
    /// ```
    public var snapshots: OutboxSnapshots {
        OutboxSnapshots(changes: self.core.observers.makeChanges(), core: self.core)
    }

    /// What happens from now on. Each call makes a stream of its own, which keeps the latest 256 events for its reader
    /// and ends with the outbox.
    public var events: AsyncStream<OutboxEvent> { self.core.observers.makeEvents() }

    // MARK: The end

    /// Gives up what is in flight, which stays on disk, and closes the file. The next outbox may open it then.
    public func close() async { await self.core.close() }
}

/// What waits in an outbox, whenever that changes.
public struct OutboxSnapshots: AsyncSequence, Sendable {
    public typealias Element = OutboxSnapshot
    public typealias Failure = Never

    let changes: AsyncStream<Void>
    let core: OutboxCore

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(changes: self.changes.makeAsyncIterator(), core: self.core)
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        var changes: AsyncStream<Void>.Iterator
        let core: OutboxCore

        public mutating func next() async -> OutboxSnapshot? {
            // Made when it is asked for: nobody pays for what nobody looks at.
            await self.changes.next() == nil ? nil : self.core.snapshot
        }
    }
}
#endif
