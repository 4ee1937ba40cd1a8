import NIOConcurrencyHelpers
public import NIOCore

/// A long WebSocket to one of several servers, on its own thread: it connects, reconnects with jitter, sends
/// heartbeats, and carries text and binary messages.
///
/// ```swift
/// let link = WebSocketLink(configuration: try .init(url: "wss://example.com/chat"))
/// link.connect()
/// try await link.send(WebSocketMessage("hello"))
/// for await message in link.messages { print(message.text ?? "binary") }
/// ```
/// It is one object for all connections: while none is ready, messages wait in order, and leave after the next opening.
/// There are never two connections at once. All methods may be called from any thread and in any state. When the last
/// reference is released the connection is closed and the thread ends.
///
/// For calls with answers over WebSocket give the URL to a `SocketClient` of HHSocketRPC.
public final class WebSocketLink: ConnectionControl {
    private let driver: Driver
    private let session: WebSocketSession

    public convenience init(configuration: Configuration) {
        self.init(configuration, in: nil)
    }

    /// - Parameter world: The clock, network and chance; nil: the system's.
    package init(_ configuration: Configuration, in world: DriverWorld?) {
        let session = WebSocketSession(configuration)
        self.session = session
        self.driver = Driver(
            configuration: configuration.socket,
            maker: session,
            refusal: session.refusal,
            world: world
        )
        session.attach(to: self.driver)
        self.driver.setHost(session)
        session.delegation.setLink(self)
    }

    deinit {
        self.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.driver) }

    /// The executor of the link's thread, for Swift tasks and actors that run there.
    public var executor: SocketExecutor { self.driver.executor }

    /// The delegate, which is notified of events, and of messages from the next connection on; held weakly. Set it
    /// before ``connect()``.
    public var delegate: (any WebSocketLinkDelegate)? {
        get { self.session.delegation.delegate }
        set { self.session.delegation.delegate = newValue }
    }

    /// The messages that arrive on this link, over all its connections. There is one sequence: with several readers
    /// each message goes to one of them. It is empty while there is a ``delegate``, or a handler of
    /// ``setMessageHandler(_:)``, which comes before both.
    public var messages: WebSocketMessages { WebSocketMessages(self.session.inbox) }

    /// Ends ``messages`` once those that have arrived were read.
    package func finishMessages() {
        self.session.inbox.finish()
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the link.
    public var events: AsyncStream<Event> { self.session.makeEvents() }

    /// Has messages handed to `handler` instead of ``messages``, from the next connection on.
    ///
    /// It runs on the socket's thread, which it must not block: the fastest way, for handlers that are short. What it
    /// sends leaves with the flush of the read that brought the message.
    public func setMessageHandler(_ handler: (@Sendable (WebSocketMessage) -> Void)?) {
        self.session.setHandler(handler)
    }

    /// Sends a message, and returns when its last byte was handed to the system. A loss after that is told by
    /// ``Event/closed(_:)`` alone.
    ///
    /// While no connection is ready the message waits, in order, and leaves after the next opening. Cancelling the
    /// calling task takes it back while it waits. Where attempts have stopped after ``Backoff/maximumRounds``, a
    /// message begins them anew, as does ``applicationWillEnterForeground()``.
    ///
    /// - Throws: ``SocketError``. Its `delivery` is `sentUnknown` if the message had begun to leave when the connection
    ///   was lost: it does not leave again. Codes: `connectionLost`; `queueFull` (too much waits); `frameTooLarge`;
    ///   `invalidArgument` (a text that is not UTF-8); `cancelled`; `notConnected` after ``disconnect()``; and the code
    ///   with which attempts stopped.
    public func send(_ message: WebSocketMessage) async throws(SocketError) {
        let taken = NIOLockedValueBox<WebSocketOutcome?>(nil)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (sender: CheckedContinuation<Result<Void, SocketError>, Never>) in
                let outcome = WebSocketOutcome { sender.resume(returning: $0) }
                taken.withLockedValue { $0 = outcome }
                self.submit(message, outcome)
                if Task.isCancelled { self.cancel(outcome) }
            }
        } onCancel: {
            if let outcome = taken.withLockedValue({ $0 }) { self.cancel(outcome) }
        }
        try result.get()
    }

    /// Sends a message as ``send(_:)`` does, without waiting.
    ///
    /// - Parameter completion: Called once, on the callback queue; nil, the default: nobody is told.
    public func send(
        _ message: WebSocketMessage,
        completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    ) {
        guard let completion else { return self.submit(message, nil) }
        let queue = self.driver.configuration.callbackQueue
        self.submit(message, WebSocketOutcome { result in queue.run { completion(result) } })
    }

    private func submit(_ message: WebSocketMessage, _ outcome: WebSocketOutcome?) {
        let unit = WebSocketUnit(.message(message.wireKind), message.payload, outcome)
        let session = self.session
        // A handler on the socket's thread sends at once.
        let isSent = self.driver.loop.ifHandlersRun { turn in
            session.send(unit, in: &turn)
            return true
        }
        if !isSent { self.driver.submit(.closure { session.send(unit, in: &$0) }) }
    }

    private func cancel(_ outcome: WebSocketOutcome) {
        self.driver.submit(.closure { [session] _ in session.cancel(outcome) })
    }

    /// Sends a ping, and returns the time until it was answered.
    ///
    /// - Parameter payload: At most 125 bytes; empty by default.
    /// - Throws: ``SocketError`` with code `notConnected`, or `connectionLost` if the connection ends before the
    ///   answer; `invalidArgument` for a longer payload.
    public func ping(_ payload: ByteBuffer = ByteBuffer()) async throws(SocketError) -> Duration {
        guard payload.readableBytes <= WebSocketFrameHeader.maximumControlLength else {
            throw SocketError(
                .invalidArgument,
                message: "a ping has \(payload.readableBytes) bytes; at most 125 are allowed"
            )
        }
        let began = ContinuousClock.now
        let result = await withCheckedContinuation { (pinger: CheckedContinuation<Result<Void, SocketError>, Never>) in
            self.driver.submit(
                .closure { [session] in session.ping(payload, in: &$0) { pinger.resume(returning: $0) } }
            )
        }
        try result.get()
        return ContinuousClock.now - began
    }

    /// Closes the connection with a close frame of this code and reason, and stays closed until ``connect()``.
    /// ``disconnect()`` does so with 1000.
    ///
    /// - Parameters:
    ///   - code: 1000, or 3000 to 4999.
    ///   - reason: For people to read; at most 123 bytes of UTF-8.
    /// - Throws: ``SocketError`` with code `invalidArgument`.
    public func disconnect(code: UInt16, reason: String = "") throws(SocketError) {
        guard code == 1_000 || (3_000...4_999).contains(code) else {
            throw SocketError(.invalidArgument, message: "a close code is 1000, or 3000 to 4999, not \(code)")
        }
        guard reason.utf8.count <= WebSocketClose.maximumReasonLength else {
            throw SocketError(
                .invalidArgument,
                message: "a close reason has at most 123 bytes of UTF-8, not \(reason.utf8.count)"
            )
        }
        let (session, driver) = (self.session, self.driver)
        driver.submit(
            .closure { turn in
                session.setClose(WebSocketClose(code: code, reason: reason))
                driver.disconnect(in: &turn)
            }
        )
    }

    /// Completes when the connection that was closed by ``disconnect()`` is gone; at once where there is none.
    public func waitUntilClosed() async {
        await withCheckedContinuation { (waiter: CheckedContinuation<Void, Never>) in
            let driver = self.driver
            let isSubmitted = driver.submit(
                .closure { _ in driver.drained().whenComplete { _ in waiter.resume() } }
            )
            if !isSubmitted { waiter.resume() }
        }
    }
}
