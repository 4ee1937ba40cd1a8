// SPDX-License-Identifier: Apache-2.0
/// The receiver of the messages of one connection.
package protocol MessagePeer<Language>: LinkReceiver where Language.Unit: MessageUnit {
    var link: Link<Language> { get }
    /// The messages whose sending has begun.
    var begun: BegunMessages<Language> { get }
}

extension MessagePeer {
    /// Sends a unit, which fails where the link closes or too much waits.
    package func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.begun.send(unit, in: &turn) }

    package func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.begun.willBeSent(unit) }

    package func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn) {
        self.begun.progressed(outgoing)
    }

    package func hasRoom(in turn: inout Turn) -> Bool {
        self.begun.completeSent()
        return false
    }

    package func hasLeft(in turn: inout Turn) { self.begun.completeSent() }
}

/// A connection that is made, for the dialect that is spoken on it.
package struct MessageConnection<Dialect: MessageDialect> {
    package var id: ConnectionID
    package var endpoint: Endpoint
    package var agreement: OpeningAgreement?
    package var loop: SocketLoop
    package var host: any LinkHost
    /// The place where its messages go.
    package var delivery: MessageDelivery<Dialect.Message>
    package var delegation: Dialect.Delegation
    /// Receives the units whose sending has not begun when the link ends.
    package var ended: ([Dialect.Language.Unit]) -> Void
}

/// A language of messages on a client's link: everything that a ``MessageSession`` does not know. On the socket's
/// thread, except constants.
package protocol MessageDialect: Sendable {
    associatedtype Language: LinkLanguage where Language.Unit: MessageUnit
    associatedtype Peer: MessagePeer where Peer.Language == Language
    /// A message that arrives.
    associatedtype Message: InboxElement
    /// An event of the link.
    associatedtype Event: Sendable
    /// The public object of the link.
    associatedtype Owner: AnyObject & Sendable
    /// The observer of that object: an existential type.
    associatedtype Delegate: Sendable

    typealias Delegation = MessageDelegation<Owner, Delegate, Message>

    /// The name of messages in errors, and of the setting that limits the number of those that wait.
    static var names: (messages: String, limit: String) { get }
    /// The settings with which the link connects and stays connected.
    var socket: SocketConfiguration { get }
    /// The number of messages that may wait for a connection.
    var maximumWaitingCount: Int { get }
    /// The reason why this configuration is not supported; nil if it is.
    var refusal: SocketError? { get }

    /// The exchange on each connection before it is used; nil, the default, for none.
    var handshake: LinkHandshake? { get }

    /// The offer by which WebSockets are opened; nil, the default, if this language is not spoken on them.
    func webSocketOffer() -> WebSocketOffer?
    /// The receiver of a connection's units, with its link.
    func makePeer(on connection: MessageConnection<Self>) -> Peer
    /// The reason why a message cannot be sent on any connection; nil if it can.
    func refusal(of unit: Language.Unit) -> SocketError?

    /// Begins the ``handshake``. `completion` is called once, in a turn, with nil if messages may be sent.
    func shakeHands(
        on peer: Peer,
        attempt: Int,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    )
    /// The connection ended, or is about to be closed, before its handshake was complete, whose work ends at once: the
    /// link itself may take longer. Does nothing by default.
    func handshakeEnded(on peer: Peer)
    /// The reason why a message cannot be sent on this connection; nil, the default, if it can.
    func refusal(of unit: Language.Unit, on peer: Peer) -> SocketError?

    /// A connection is ready.
    mutating func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> Event
    /// Whether reading should be suspended, for reasons other than the inbox and the delegate. False by default.
    var isBehind: Bool { get }
    /// Sends the units that precede waiting messages on a new connection. None by default.
    mutating func restore(on peer: Peer, in turn: inout Turn)
    /// An open connection was lost.
    func lost(_ peer: Peer, _ error: SocketError) -> Event
    /// The user closes the connection. The result makes the event that is reported once it is closed, if one was open.
    mutating func closedByUser() -> (Peer) -> Event
    /// Another event of the connection.
    func happened(_ event: SocketEvent) -> Event
    /// The link was released, and no further calls follow. Does nothing by default.
    func invalidated(in turn: inout Turn)

    /// Notifies the delegate of a message.
    static func handOver(_ message: Message, to delegate: Delegate, of owner: Owner)
    /// Notifies the delegate of an event, if it is one of the delegate's.
    static func notify(_ delegation: Delegation, of event: Event, on loop: SocketLoop)
}

extension MessageDialect {
    package var handshake: LinkHandshake? { nil }

    package func webSocketOffer() -> WebSocketOffer? { nil }

    package func shakeHands(
        on peer: Peer,
        attempt: Int,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        completion(nil, &turn)
    }

    package func handshakeEnded(on peer: Peer) {}

    package func refusal(of unit: Language.Unit, on peer: Peer) -> SocketError? { nil }

    package func invalidated(in turn: inout Turn) {}

    package var isBehind: Bool { false }

    package mutating func restore(on peer: Peer, in turn: inout Turn) {}
}
