// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
public import NIOCore

/// The session of a connection's handle. On its event loop.
protocol WebSocketSender: AnyObject {
    func send(_ unit: WebSocketUnit, in turn: inout Turn)
    func close(_ close: WebSocketClose, in turn: inout Turn)
}

/// One client of ``SocketServer/webSocket(_:options:_:)``. All methods may be called from any thread.
public final class WebSocketConnection: Sendable {
    /// A number that no other connection of the server has.
    public let id: UInt64
    /// The client's address, if it is known: the address of the socket's peer, or the one that a listed proxy reported
    /// (``ServerListener/proxies``).
    public let remoteAddress: SocketAddress?
    /// The client's identity, if ``ConnectionPolicy/admit`` returned one. The connection counts for
    /// ``ServerLimits/maximumSessionsPerIdentity``: the oldest one beyond is closed, a WebSocket with 1008.
    public var identity: String? { self.port.identity }
    /// The request by which the client opened the WebSocket.
    public var request: WebSocketListening.Request { self.kept.request }
    /// The subprotocol that was selected; nil for none.
    public let subprotocol: String?
    let kept: KeptRequest
    /// The charge for the request.
    private let hold: Hold
    private let inbox: WebSocketInbox
    private let port: PeerPort
    private let sender: NIOLoopBound<any WebSocketSender>

    init(
        id: UInt64,
        remoteAddress: SocketAddress?,
        request: KeptRequest,
        hold: consuming Hold,
        subprotocol: String?,
        inbox: WebSocketInbox,
        port: PeerPort,
        sender: any WebSocketSender
    ) {
        self.id = id
        self.remoteAddress = remoteAddress
        self.kept = request
        self.hold = hold
        self.subprotocol = subprotocol
        self.inbox = inbox
        self.port = port
        self.sender = NIOLoopBound(sender, eventLoop: port.loop.eventLoop)
    }

    /// The client's messages, in order; the sequence ends when the connection does. A close frame of the client is
    /// answered when all messages before it have been read.
    public var messages: WebSocketMessages { WebSocketMessages(self.inbox) }

    /// Sends a message, and returns when its last byte was handed to the system.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `connectionLost`, or `queueFull` if more bytes wait than
    ///   ``ServerLimits/maximumBufferedBytesPerConnection`` allows, because the client does not read.
    public func send(_ message: WebSocketMessage) async throws(SocketError) {
        let result = await withCheckedContinuation { (sender: CheckedContinuation<Result<Void, SocketError>, Never>) in
            self.submit(message, MessageOutcome { sender.resume(returning: $0) })
        }
        try result.get()
    }

    /// Sends a message without waiting. A message that cannot be sent, because the connection has ended or the client
    /// does not read, is dropped; use ``send(_:)`` to be notified.
    public func post(_ message: WebSocketMessage) {
        self.submit(message, nil)
    }

    private func submit(_ message: WebSocketMessage, _ outcome: MessageOutcome?) {
        let unit = WebSocketUnit(.message(message.kind == .text ? .text : .binary), message.payload, outcome: outcome)
        // A handler on the connection's thread sends at once.
        let isSent = self.port.loop.ifHandlersRun { turn in
            self.sender.value.send(unit, in: &turn)
            return true
        }
        guard !isSent else { return }
        let sender = self.sender
        guard !self.port.loop.submit(.closure { sender.value.send(unit, in: &$0) }) else { return }
        outcome?.complete(.failure(SocketError(.connectionLost, message: "the server has shut down")))
    }

    /// Closes the connection after the messages that were sent.
    ///
    /// - Parameters:
    ///   - code: A code that may be sent, such as 1000, 1001, 1008, 1011, and 3000 to 4999; others count as 1000.
    ///   - reason: The reason, as text for people, cut to 123 bytes of UTF-8.
    public func close(code: UInt16 = 1_000, reason: String = "") {
        let close = WebSocketClose(code: WebSocketClose.isValid(code: code) ? code : 1_000, reason: reason)
        let sender = self.sender
        self.port.loop.submit { sender.value.close(close, in: &$0) }
    }
}
