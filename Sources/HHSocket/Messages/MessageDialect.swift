// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The receiver of the messages of one connection.
package protocol MessagePeer<Language>: LinkReceiver where Language.Unit: MessageUnit {
    var link: Link<Language> { get }
    /// The messages that are on their way.
    var leaving: LeavingMessages<Language> { get }
}

extension MessagePeer {
    /// Sends a unit, which fails where the link closes or too much waits.
    package func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.leaving.send(unit, in: &turn) }

    package func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.leaving.willBeSent(unit) }

    package func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn) {
        self.leaving.progressed(outgoing)
    }

    package func hasRoom(in turn: inout Turn) -> Bool {
        self.leaving.completeSent()
        return false
    }

    package func hasLeft(in turn: inout Turn) { self.leaving.completeSent() }
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
    /// To be told the units that have not begun to leave when the link ends.
    package var ended: ([Dialect.Language.Unit]) -> Void
}

/// A language of messages as a client's link speaks it: all that a ``MessageSession`` does not know. On the socket's
/// thread, but for what is constant.
package protocol MessageDialect: Sendable {
    associatedtype Language: LinkLanguage where Language.Unit: MessageUnit
    associatedtype Peer: MessagePeer where Peer.Language == Language
    /// A message that arrives.
    associatedtype Message: InboxMessage
    /// An event of the link.
    associatedtype Event: Sendable
    /// The public object of the link.
    associatedtype Owner: AnyObject & Sendable
    /// The observer of that object: an existential type.
    associatedtype Delegate: Sendable

    typealias Delegation = MessageDelegation<Owner, Delegate, Message>

    /// The name of messages in errors, and of the setting that limits the number of those that wait.
    static var names: (messages: String, limit: String) { get }
    /// How the link connects and stays connected.
    var socket: SocketConfiguration { get }
    /// The number of messages that may wait for a connection.
    var maximumWaitingCount: Int { get }
    /// Why this configuration cannot work; nil: it can.
    var refusal: SocketError? { get }

    /// The exchange on each connection before it is used; nil, the default: there is none.
    var handshake: LinkHandshake? { get }

    /// The offer by which WebSockets are opened.
    func webSocketOffer() -> WebSocketOffer
    /// The receiver of what comes on a connection, with its link.
    func makePeer(on connection: MessageConnection<Self>) -> Peer
    /// Why a message cannot be sent, on whatever connection; nil: it can.
    func refusal(of unit: Language.Unit) -> SocketError?

    /// Begins the ``handshake``. `completion` is called once, in a turn; nil: messages may leave.
    func shakeHands(
        on peer: Peer,
        attempt: Int,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    )
    /// Why a message cannot be sent on this connection; nil, the default: it can.
    func refusal(of unit: Language.Unit, on peer: Peer) -> SocketError?

    /// A connection is ready.
    mutating func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> Event
    /// Whether it does not want more to be read for now, beside what the inbox and the delegate say. False by default.
    var isBehind: Bool { get }
    /// Sends what leaves before the messages that have waited. By default nothing.
    mutating func restore(on peer: Peer, in turn: inout Turn)
    /// An open connection was lost.
    func lost(_ peer: Peer, _ error: SocketError) -> Event
    /// The user closes. The result makes the event that is reported once the connection is gone, if one was open.
    mutating func closedByUser() -> (Peer) -> Event
    /// Another event of the connection.
    func happened(_ event: SocketEvent) -> Event
    /// The link is released, and nothing comes any more. By default nothing follows.
    func invalidated(in turn: inout Turn)

    /// Notifies the delegate of a message.
    static func handOver(_ message: Message, to delegate: Delegate, of owner: Owner)
    /// Notifies the delegate of an event, if it is one of the delegate's.
    static func notify(_ delegation: Delegation, of event: Event, on loop: SocketLoop)
}

extension MessageDialect {
    package var handshake: LinkHandshake? { nil }

    package func shakeHands(
        on peer: Peer,
        attempt: Int,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        completion(nil, &turn)
    }

    package func refusal(of unit: Language.Unit, on peer: Peer) -> SocketError? { nil }

    package func invalidated(in turn: inout Turn) {}

    package var isBehind: Bool { false }

    package mutating func restore(on peer: Peer, in turn: inout Turn) {}
}
