import NIOCore

/// The receiver of the messages of one connection.
package protocol MessagePeer<Language>: LinkReceiver where Language.Unit: MessageUnit {
    var link: Link<Language> { get }
    /// Sends a unit, which fails where the link closes or too much waits.
    func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool
}

/// A connection that is made, for the dialect that is spoken on it.
struct MessageConnection<Dialect: MessageDialect> {
    var id: ConnectionID
    var endpoint: Endpoint
    var agreement: OpeningAgreement?
    var loop: SocketLoop
    var host: any LinkHost
    /// The place where its messages go.
    var delivery: MessageDelivery<Dialect.Message>
    var delegation: Dialect.Delegation
    /// To be told the units that have not begun to leave when the link ends.
    var ended: ([Dialect.Language.Unit]) -> Void
}

/// A language of messages as a client's link speaks it: all that a ``MessageSession`` does not know. On the socket's
/// thread, but for what is constant.
protocol MessageDialect: Sendable {
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

    /// The offer by which WebSockets are opened.
    func webSocketOffer() -> WebSocketOffer
    /// The receiver of what comes on a connection, with its link.
    func makePeer(on connection: MessageConnection<Self>) -> Peer
    /// Why a message cannot be sent, on whatever connection; nil: it can.
    func refusal(of unit: Language.Unit) -> SocketError?

    /// A connection is ready.
    mutating func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> Event
    /// An open connection was lost.
    func lost(_ peer: Peer, _ error: SocketError) -> Event
    /// The user closes. The result makes the event that is reported once the connection is gone, if one was open.
    mutating func closedByUser() -> (Peer) -> Event
    /// Another event of the connection.
    func happened(_ event: SocketEvent) -> Event

    /// Notifies the delegate of a message.
    static func handOver(_ message: Message, to delegate: Delegate, of owner: Owner)
    /// Notifies the delegate of an event, if it is one of the delegate's.
    static func notify(_ delegation: Delegation, of event: Event, on loop: SocketLoop)
}
