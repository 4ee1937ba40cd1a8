// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A persistent connection to one of several servers, on its own thread, that carries lines of text or bytes: it
/// connects, reconnects with jitter, and sends heartbeats.
///
/// ```swift
/// let link = LineLink(configuration: try .init(address: "example.com:7002"))
/// link.connect()
/// try await link.send("hello")
/// for await line in link.lines { print(line) }
/// ```
/// One object serves for all connections: while none is ready, lines wait in order, and are sent after the next
/// opening. There are never two connections at once. All methods may be called from any thread and in any state. When
/// the last reference is released the connection is closed and the thread ends.
public final class LineLink: ConnectionControl {
    private let link: MessageLink<LineDialect>

    public init(configuration: Configuration) {
        self.link = MessageLink(LineDialect(configuration))
        self.link.session.delegation.setOwner(self)
    }

    deinit {
        self.link.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.link.driver) }

    /// The delegate, which is notified of events, and of lines from the next connection on; held weakly. Set it before
    /// ``connect()``.
    public var delegate: (any LineLinkDelegate)? {
        get { self.link.session.delegation.delegate }
        set { self.link.session.delegation.setDelegate { [weak newValue] in newValue } }
    }

    /// The lines that arrive on this link, over all its connections, as text; ``ReceivedLines/bytes``,
    /// ``ReceivedLines/results`` and ``ReceivedLines/decoded(as:decoder:)`` are other views of them. With several
    /// readers each line goes to one of them. The sequence is empty while there is a ``delegate``, or a handler of
    /// ``setLineHandler(_:)``, which has precedence over both.
    ///
    /// A line that is not UTF-8 is skipped, and reported by ``Event/unreadable(_:)``.
    public var lines: ReceivedLines<String> {
        ReceivedLines<String>(self.link.session.inbox) { [weak link] line in
            do throws(SocketError) {
                return try line.text
            } catch {
                guard let link else { return nil }
                link.driver.submit { _ in link.session.report(.unreadable(error)) }
                return nil
            }
        }
    }

    /// Ends ``lines`` once those that have arrived were read.
    package func finishLines() {
        self.link.session.inbox.finish()
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the link.
    public var events: AsyncStream<Event> { self.link.session.makeEvents() }

    /// Passes lines to `handler` instead of ``lines``, from the next connection on.
    ///
    /// The handler runs on the socket's thread, which it must not block: the fastest way, for short handlers. Lines
    /// that it sends are flushed together at the end of the read.
    public func setLineHandler(_ handler: (@Sendable (ReceivedLine) -> Void)?) {
        self.link.session.setHandler(handler)
    }

    // MARK: Sending

    /// Sends a line, and returns when its last byte was handed to the system. A loss after that is reported only by
    /// ``Event/closed(_:)``.
    ///
    /// While no connection is ready the line waits, in order, and is sent after the next opening. Cancelling the
    /// calling task removes it while it waits. If attempts have stopped after ``Backoff/maximumRounds``, sending a line
    /// starts them again, as does ``applicationWillEnterForeground()``.
    ///
    /// - Parameter text: The line without its delimiter.
    /// - Throws: ``SocketError``. Its `delivery` is `sentUnknown` if sending had begun when the connection was lost:
    ///   the line is not sent again. Codes: `invalidArgument` (a line that contains the delimiter); `connectionLost`;
    ///   `queueFull` (too much waits); `cancelled`; `notConnected` after ``disconnect()``; and the code with which
    ///   attempts stopped.
    public func send(_ text: String) async throws(SocketError) {
        try await self.send(ByteBuffer(string: text))
    }

    /// Sends a line of bytes as ``send(_:)-(String)`` sends text.
    public func send(_ bytes: ByteBuffer) async throws(SocketError) {
        try await self.link.send { LineUnit(bytes, $0) }
    }

    /// Sends a line like ``send(_:)-(String)``, without waiting.
    ///
    /// - Parameters:
    ///   - text: The line, without a delimiter.
    ///   - completion: Called once, on the callback queue; nil for no notification.
    public func send(_ text: String, completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        self.send(ByteBuffer(string: text), completion: completion)
    }

    /// Sends a line of bytes like ``send(_:)-(String)``, without waiting.
    ///
    /// - Parameters:
    ///   - bytes: The line, without a delimiter.
    ///   - completion: Called once, on the callback queue; nil for no notification.
    public func send(_ bytes: ByteBuffer, completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        self.link.send(completion: completion) { LineUnit(bytes, $0) }
    }

    /// Waits until the connection that ``disconnect()`` closes is closed; returns at once if there is none.
    public func waitUntilClosed() async {
        await self.link.waitUntilClosed()
    }
}
