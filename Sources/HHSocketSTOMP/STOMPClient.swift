// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore

/// A client of message brokers that speak STOMP 1.0, 1.1 or 1.2, over one long connection to one of several servers: it
/// connects, reconnects with jitter, sends and checks heart-beats, and restores subscriptions.
///
/// ```swift
/// let client = STOMPClient(configuration: try .init(url: "stomp://example.com"))
/// client.connect()
/// let orders = try client.subscribe(to: "/queue/orders")
/// try await client.send("hello", to: "/queue/orders", receipt: true)
/// for try await message in orders { print(message.text ?? "binary") }
/// ```
///
/// It is one object for all connections: while none is ready, messages wait in order, and are sent after the next one
/// was accepted. There are never two connections at the same time. All methods may be called from any thread and in any
/// state. When the last reference is released the connection is closed and the thread ends.
public final class STOMPClient: ConnectionControl {
    /// The content type of texts.
    @usableFromInline package static let textType = "text/plain"

    public typealias Configuration = STOMPConfiguration

    /// The number of unsettled messages of a subscription at which reading is suspended, by default.
    static let largestWindow = 65_536

    private let host: STOMPHost
    private let link: MessageLink<STOMPDialect>
    /// The number of the latest subscription.
    private let lastSubscription = NIOLockedValueBox(0)

    public convenience init(configuration: STOMPConfiguration) {
        self.init(configuration, in: nil)
    }

    /// - Parameter world: The clock, network and chance; nil: the system's.
    package init(_ configuration: STOMPConfiguration, in world: DriverWorld?) {
        self.host = STOMPHost(configuration)
        self.link = MessageLink(STOMPDialect(configuration, self.host), in: world)
        self.host.attach(self.link.session, self.link.driver)
        self.link.session.delegation.setOwner(self)
    }

    deinit {
        self.link.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.link.driver) }

    /// The number of the accepted connection; 0 if there is none.
    package var connectionNumber: UInt64 { self.host.connection.number }

    /// The delegate, which is notified of events, and of messages of the subscriptions that are made while it is set;
    /// held weakly. Set it before ``connect()``.
    public var delegate: (any STOMPClientDelegate)? {
        get { self.link.session.delegation.delegate }
        set { self.link.session.delegation.setDelegate { [weak newValue] in newValue } }
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the client.
    public var events: AsyncStream<STOMPEvent> { self.link.session.makeEvents() }

    // MARK: Sending

    /// Sends a message, and returns when its last byte was handed to the system, or, with a receipt, when the broker
    /// has confirmed it.
    ///
    /// While no connection is ready the message waits, in order, and is sent after the next one was accepted.
    /// Cancelling the calling task withdraws it while it waits. A message that had begun to leave when the connection
    /// was lost is not sent again.
    ///
    /// - Parameters:
    ///   - body: The bytes of the body.
    ///   - destination: The header `destination`.
    ///   - headers: Further headers, in order. None by default.
    ///   - contentType: The header `content-type`. Nil, the default: none, and the body is just bytes.
    ///   - receipt: Whether to wait for the broker's receipt. False by default.
    ///
    /// - Throws: ``/HHSocket/SocketError``. Its `delivery` says whether the message may have arrived. Codes:
    ///   `connectionLost`, with an `underlying` ``STOMPServerError`` if the broker has ended the connection by an ERROR
    ///   that does not say what it refers to, as RabbitMQ's; `timeout` (``STOMPConfiguration/timeout``); `queueFull`
    ///   (too much waits); `brokerError` (the broker refuses it); `invalidArgument` (a header that the broker's version
    ///   cannot carry); `cancelled`; `notConnected` after ``disconnect()``; and the code with which attempts stopped.
    public func send(
        _ body: ByteBuffer,
        to destination: String,
        headers: STOMPHeaders = [:],
        contentType: String? = nil,
        receipt: Bool = false
    ) async throws(SocketError) {
        try await self.send(
            STOMPFrame.sending(body, to: destination, headers: headers, contentType: contentType),
            receipt
        )
    }

    private func send(_ frame: STOMPFrame, _ receipt: Bool) async throws(SocketError) {
        let sender = self.host.sender
        try sender.check(frame)
        try await sender.operations.run { turn, completion in
            sender.send(frame, awaitsReceipt: receipt, isOfOneConnection: false, in: &turn, completion)
        }
    }

    /// Sends a text, with the content type `text/plain` unless specified otherwise.
    ///
    /// - Throws: ``/HHSocket/SocketError``.
    public func send(
        _ text: String,
        to destination: String,
        headers: STOMPHeaders = [:],
        contentType: String? = STOMPClient.textType,
        receipt: Bool = false
    ) async throws(SocketError) {
        try await self.send(
            self.host.sender.sending(text, to: destination, headers: headers, contentType: contentType),
            receipt
        )
    }

    /// Sends a message without waiting.
    ///
    /// - Parameters:
    ///   - body: The body.
    ///   - destination: The destination, in the broker's notation.
    ///   - headers: Further headers; none by default.
    ///   - contentType: The header `content-type`; none by default.
    ///   - receipt: Whether to wait for the broker's receipt; false by default.
    ///   - completion: Called once, on the callback queue, when the asynchronous version would return or throw; nil:
    ///     there is no completion and no receipt.
    public func send(
        _ body: ByteBuffer,
        to destination: String,
        headers: STOMPHeaders = [:],
        contentType: String? = nil,
        receipt: Bool = false,
        completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    ) {
        let frame = STOMPFrame.sending(body, to: destination, headers: headers, contentType: contentType)
        let sender = self.host.sender
        do throws(SocketError) {
            try sender.check(frame)
        } catch {
            return sender.operations.port.complete(completion, .failure(error))
        }
        sender.operations.run(completion) { turn, completion in
            sender.send(
                frame,
                awaitsReceipt: receipt && completion != nil,
                isOfOneConnection: false,
                in: &turn,
                completion
            )
        }
    }

    // MARK: Subscribing

    /// Subscribes to a destination, now or as soon as there is a connection, and again on each that follows.
    ///
    /// Its messages are read from the result, and the subscription ends when the result is released. If the client has
    /// a ``delegate``, the delegate gets the messages instead, and the subscription lasts until
    /// ``STOMPSubscription/unsubscribe(headers:)``.
    ///
    /// - Parameters:
    ///   - destination: The header `destination`.
    ///   - ack: How messages are acknowledged. ``STOMPAckMode/auto`` by default.
    ///   - window: The number of messages that may be delivered and not settled: the broker is asked for no more by the
    ///     headers `prefetch-count` (RabbitMQ) and `activemq.prefetchSize`, and if it sends more, reading is suspended.
    ///     Nil, the default: the broker is asked for nothing, and reading is suspended with more than 65,536. It has no
    ///     effect with ``STOMPAckMode/auto``.
    ///   - headers: Further headers, in order. A header `id` among them is the id of the subscription, in place of a
    ///     generated one.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for headers that no version can carry, and a
    ///   window below 1.
    public func subscribe(
        to destination: String,
        ack: STOMPAckMode = .auto,
        window: Int? = nil,
        headers: STOMPHeaders = [:]
    ) throws(SocketError) -> STOMPSubscription {
        if self.delegate != nil {
            let delegation = self.link.session.delegation
            return try self.subscribe(to: destination, ack: ack, window: window, headers: headers, isHeld: true) { _ in
                (.delegate(delegation), nil)
            }
        }
        let subscriptions = self.host.subscriptions
        return try self.subscribe(to: destination, ack: ack, window: window, headers: headers, isHeld: false) { id in
            let inbox = Inbox<STOMPMessage>(account: nil) { [weak subscriptions] in subscriptions?.fullnessChanged(id) }
            return (.inbox(inbox), inbox)
        }
    }

    /// Subscribes as ``subscribe(to:ack:window:headers:)`` does, and passes messages to `handler`, until
    /// ``STOMPSubscription/unsubscribe(headers:)``.
    ///
    /// - Parameters:
    ///   - destination: The destination, in the broker's notation.
    ///   - ack: How messages are acknowledged; `auto` by default.
    ///   - window: As in ``subscribe(to:ack:window:headers:)``.
    ///   - headers: Further headers; none by default.
    ///   - handler: It runs on the socket's thread, which it must not block: the fastest way, for short handlers.
    ///     Frames that it sends leave with the flush of the read that brought the message.
    ///
    /// - Throws: ``/HHSocket/SocketError`` as the other does.
    @discardableResult
    public func subscribe(
        to destination: String,
        ack: STOMPAckMode = .auto,
        window: Int? = nil,
        headers: STOMPHeaders = [:],
        handler: @escaping @Sendable (STOMPMessage) -> Void
    ) throws(SocketError) -> STOMPSubscription {
        try self.subscribe(to: destination, ack: ack, window: window, headers: headers, isHeld: true) { _ in
            (.handler(handler), nil)
        }
    }

    private func subscribe(
        to destination: String,
        ack: STOMPAckMode,
        window: Int?,
        headers: STOMPHeaders,
        isHeld: Bool,
        makeDelivery: (String) -> (MessageDelivery<STOMPMessage>, Inbox<STOMPMessage>?)
    ) throws(SocketError) -> STOMPSubscription {
        guard window.map({ $0 > 0 }) ?? true else { throw .invalid("the window of a subscription is 1 or more") }
        var headers = headers
        let id = headers["id"] ?? self.makeID()
        headers["id"] = nil
        if let window, ack != .auto {
            for name in ["prefetch-count", "activemq.prefetchSize"] where headers[name] == nil {
                headers.add(name: name, value: "\(window)")
            }
        }
        var all: STOMPHeaders = ["id": id, "destination": destination]
        for (name, value) in headers { all.add(name: name, value: value) }
        try self.host.sender.check(STOMPFrame(.subscribe, all))
        let (delivery, inbox) = makeDelivery(id)
        let route = STOMPRoute(id: id, ack, delivery, inbox: inbox)
        let (subscriptions, further, limit) = (self.host.subscriptions, headers, window ?? Self.largestWindow)
        subscriptions.operations.port.perform {
            subscriptions.subscribe(route, to: destination, headers: further, window: limit, in: &$0)
        }
        return STOMPSubscription(route, subscriptions, destination: destination, endsWhenReleased: !isHeld)
    }

    private func makeID() -> String {
        let number = self.lastSubscription.withLockedValue { last in
            last += 1
            return last
        }
        return "sub-\(number)"
    }

    // MARK: Transactions

    /// Performs a transaction: the messages and acknowledgements that `body` sends by its argument take effect together
    /// when it returns, or not at all when it throws.
    ///
    /// It waits for a connection if there is none, and for the broker's receipt at the end. A transaction belongs to
    /// one connection: if the connection is lost, nothing of the transaction takes effect.
    ///
    /// - Throws: The error that `body` throws; ``/HHSocket/SocketError``. Codes: `connectionLost`, whose `delivery` is
    ///   `sentUnknown` if it is unknown whether the broker has committed; `timeout`, `brokerError`, `cancelled`,
    ///   `notConnected`.
    public func transaction<Value>(
        isolation: isolated (any Actor)? = #isolation,
        _ body: (STOMPTransaction) async throws -> Value
    ) async throws -> Value {
        let (operations, settler) = (self.host.operations, self.host.settler)
        try await operations.run { turn, completion in operations.whenConnected("BEGIN", in: &turn, completion) }
        let begun = NIOLockedValueBox<Result<String, SocketError>>(.failure(STOMPErrors.released))
        try await operations.run { turn, completion in
            let result = settler.beginTransaction(in: &turn)
            begun.withLockedValue { $0 = result }
            completion(.success(()))
        }
        let id = try begun.withLockedValue { $0 }.get()
        let value: Value
        do {
            value = try await body(STOMPTransaction(id: id, self.host.sender, settler))
        } catch {
            operations.run(nil) { turn, _ in settler.abort(id, in: &turn) }
            throw error
        }
        do {
            try await operations.run { turn, completion in settler.commit(id, in: &turn, completion) }
        } catch {
            // If the task was cancelled before the commit began, the transaction has not ended.
            operations.run(nil) { turn, _ in settler.abort(id, in: &turn) }
            throw error
        }
        return value
    }

    // MARK: Ending

    /// Waits until the broker has confirmed everything that awaits a receipt, sends DISCONNECT, waits for its receipt,
    /// and closes the connection, which stays closed until ``connect()``. The broker has then processed everything that
    /// was sent before. Subscriptions are kept, and restored after ``connect()``.
    ///
    /// RabbitMQ sends no receipts for DISCONNECT over a WebSocket: there its close frame counts.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `timeout` if the broker does not confirm it within
    ///   ``STOMPConfiguration/disconnectTimeout``, or `connectionLost` if it does not before the connection ends: then
    ///   it is unknown whether everything that was sent has been processed. The connection is closed in any case.
    public func disconnect() async throws(SocketError) {
        let (host, driver) = (self.host, self.link.driver)
        let wasConnected = await withCheckedContinuation { (waiter: CheckedContinuation<Bool, Never>) in
            let isSubmitted = host.operations.port.perform { turn in
                let wasConnected = host.connection.peer != nil
                host.operations.whenIdle(in: &turn) { turn in
                    driver.disconnect(in: &turn)
                    waiter.resume(returning: wasConnected)
                }
            }
            if !isSubmitted { waiter.resume(returning: false) }
        }
        let began = driver.configuration.time.now()
        await self.link.waitUntilClosed()
        guard wasConnected, !host.connection.hasConfirmedDisconnect else { return }
        let patience = host.configuration.disconnectTimeout
        let isLate = Duration(driver.configuration.time.now() - began) >= patience
        throw SocketError(
            isLate ? .timeout : .connectionLost,
            message: isLate
                ? "the broker did not confirm DISCONNECT within \(patience) (disconnectTimeout)"
                : "the connection ended before the broker had confirmed DISCONNECT",
            delivery: .sentUnknown
        )
    }
}
