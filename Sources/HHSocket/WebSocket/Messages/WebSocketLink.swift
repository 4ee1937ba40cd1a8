// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A persistent WebSocket to one of several servers, on its own thread: it connects, reconnects with jitter, sends
/// heartbeats, and carries text and binary messages.
///
/// ```swift
/// let link = WebSocketLink(configuration: try .init(url: "wss://example.com/chat"))
/// link.connect()
/// try await link.send(WebSocketMessage("hello"))
/// for await message in link.messages { print(message.text ?? "binary") }
/// ```
/// One object serves for all connections: while none is ready, messages wait in order, and are sent after the next
/// opening. There are never two connections at once. All methods may be called from any thread and in any state. When
/// the last reference is released the connection is closed and the thread ends.
///
/// For calls with answers over WebSocket pass the URL to a `SocketClient` of HHSocketRPC.
public final class WebSocketLink: ConnectionControl {
    private let link: MessageLink<WebSocketDialect>

    public convenience init(configuration: Configuration) {
        self.init(configuration, in: nil)
    }

    /// - Parameter world: The clock, network and chance; nil: the system's.
    package init(_ configuration: Configuration, in world: DriverWorld?) {
        self.link = MessageLink(WebSocketDialect(configuration), in: world)
        self.link.session.delegation.setOwner(self)
    }

    deinit {
        self.link.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.link.driver) }

    /// The delegate, which is notified of events, and of messages from the next connection on; held weakly. Set it
    /// before ``connect()``.
    public var delegate: (any WebSocketLinkDelegate)? {
        get { self.link.session.delegation.delegate }
        set { self.link.session.delegation.setDelegate { [weak newValue] in newValue } }
    }

    /// The messages that arrive on this link, over all its connections. There is one sequence: with several readers
    /// each message goes to one of them. It is empty while there is a ``delegate``, or a handler of
    /// ``setMessageHandler(_:)``, which has precedence over both.
    public var messages: WebSocketMessages { WebSocketMessages(self.link.session.inbox) }

    /// Ends ``messages`` once those that have arrived were read.
    package func finishMessages() {
        self.link.session.inbox.finish()
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the link.
    public var events: AsyncStream<Event> { self.link.session.makeEvents() }

    /// Passes messages to `handler` instead of ``messages``, from the next connection on.
    ///
    /// The handler runs on the socket's thread, which it must not block: the fastest way, for short handlers. Messages
    /// that it sends are flushed together at the end of the read.
    public func setMessageHandler(_ handler: (@Sendable (WebSocketMessage) -> Void)?) {
        self.link.session.setHandler(handler)
    }

    /// Sends a message, and returns when its last byte was handed to the system. A loss after that is reported only by
    /// ``Event/closed(_:)``.
    ///
    /// While no connection is ready the message waits, in order, and is sent after the next opening. Cancelling the
    /// calling task removes it while it waits. If attempts have stopped after ``Backoff/maximumRounds``, sending a
    /// message starts them again, as does ``applicationWillEnterForeground()``.
    ///
    /// - Throws: ``SocketError``. Its `delivery` is `sentUnknown` if sending had begun when the connection was lost:
    ///   the message is not sent again. Codes: `connectionLost`; `queueFull` (too much waits); `frameTooLarge`;
    ///   `invalidArgument` (a text that is not UTF-8); `cancelled`; `notConnected` after ``disconnect()``; and the code
    ///   with which attempts stopped.
    public func send(_ message: WebSocketMessage) async throws(SocketError) {
        try await self.link.send { WebSocketUnit(.message(message.wireKind), message.payload, outcome: $0) }
    }

    /// Sends a message like ``send(_:)``, without waiting.
    ///
    /// - Parameters:
    ///   - message: The message.
    ///   - completion: Called once, on the callback queue; nil, the default, for no notification.
    public func send(
        _ message: WebSocketMessage,
        completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    ) {
        self.link.send(completion: completion) {
            WebSocketUnit(.message(message.wireKind), message.payload, outcome: $0)
        }
    }

    /// Sends a ping, and returns the time until it was answered. Cancelling the calling task ends the wait, as a server
    /// may never answer.
    ///
    /// - Parameter payload: At most 125 bytes. Nil, the default, for one that no other ping of the connection has. The
    ///   pong of any ping with the same payload counts as the answer.
    /// - Throws: ``SocketError`` with code `notConnected`, or `connectionLost` if the connection ends before the
    ///   answer; `cancelled`; `invalidArgument` for a longer payload.
    @discardableResult
    public func ping(_ payload: ByteBuffer? = nil) async throws(SocketError) -> Duration {
        let length = payload?.readableBytes ?? 0
        guard length <= WebSocketFrameHeader.maximumControlLength else {
            throw .invalid("a ping has \(length) bytes; at most 125 are allowed")
        }
        let time = self.link.driver.configuration.time
        let began = time.now()
        let (session, driver) = (self.link.session, self.link.driver)
        try await self.link.wait { outcome in
            driver.submit { session.ping(payload, outcome, in: &$0) }
        } cancel: { outcome in
            driver.submit { _ in session.cancelPing(outcome) }
        }
        return Duration(time.now() - began)
    }

    /// Closes the connection with a close frame of this code and reason, and stays closed until ``connect()``.
    /// ``disconnect()`` is the same with 1000.
    ///
    /// - Parameters:
    ///   - code: 1000, or 3000 to 4999.
    ///   - reason: For people to read; at most 123 bytes of UTF-8.
    /// - Throws: ``SocketError`` with code `invalidArgument`.
    public func disconnect(code: UInt16, reason: String = "") throws(SocketError) {
        guard code == 1_000 || (3_000...4_999).contains(code) else {
            throw .invalid("a close code is 1000, or 3000 to 4999, not \(code)")
        }
        guard reason.utf8.count <= WebSocketClose.maximumReasonLength else {
            throw .invalid("a close reason has at most 123 bytes of UTF-8, not \(reason.utf8.count)")
        }
        let (session, driver) = (self.link.session, self.link.driver)
        driver.submit { turn in
            session.setClose(WebSocketClose(code: code, reason: reason))
            driver.disconnect(in: &turn)
        }
    }

    /// Waits until the connection that ``disconnect()`` closes is closed; returns at once if there is none.
    public func waitUntilClosed() async {
        await self.link.waitUntilClosed()
    }
}
