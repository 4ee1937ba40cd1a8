// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A driver as the floor above sees it, on the socket's thread. ``Driver`` is the real one; the decisions about calls
/// are tested on another, in virtual time.
package protocol ConnectionDriver: AnyObject, Sendable {
    /// The server connected to, or being connected to.
    var currentEndpoint: Endpoint? { get }
    /// The last attempt's.
    var lastError: SocketError? { get }
    /// Whether nobody reconnects any more: the user has disconnected, or attempts have stopped.
    var isClosed: Bool { get }
    /// Whether there is a network, as far as is known.
    var isNetworkReachable: Bool { get }
    /// Why nothing can be sent now.
    func notConnected() -> SocketError
    func perform(_ request: DriverRequest, in turn: inout Turn)
    /// To be called once after each turn: what it did is measured together.
    func measure()
}

/// A request of the floor above.
package enum DriverRequest: Sendable {
    /// Somebody found no connection and would like one soon.
    case reconnectSooner
    /// Something was not answered in time: finds out whether the connection still lives. One dead call does not kill
    /// it.
    case suspect(ConnectionID)
    /// Too many calls to the present server go wrong: leaves it, if there is another.
    case serverFails(Endpoint, wrong: Int, calls: Int)
    /// The server of this connection is about to end: leaves it for another, once that is ready.
    case goAway(ConnectionID, GoAway, isAnnounced: Bool)
    /// Something does not move on this connection: leaves it for a new one, to the same server if there is no other.
    case leave(ConnectionID)
    /// This connection has been of use: its back-off starts over, however short it was ready.
    case proved(ConnectionID)
    /// Nothing is in flight any more on a connection that drains.
    case finishDraining(ConnectionID)
    /// Whether bytes that come are left where they are, on every connection there is and will be.
    case setReading(isSuspended: Bool)
    /// The gate of a connection waits for the answer to hello, or has it.
    case awaitHello(Bool)
    /// The gate of a connection has returned; nil: it lets calls through.
    case gateReturned(ConnectionID, GateRefusal?)
}

/// Why a gate let nobody through.
package struct GateRefusal: Sendable {
    package var error: SocketError
    package var remedy: HandshakeRefusal.Remedy

    package init(error: SocketError, remedy: HandshakeRefusal.Remedy) {
        self.error = error
        self.remedy = remedy
    }
}

/// The floor above a driver.
package protocol DriverHost: AnyObject {
    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn)
}

/// A change of a connection.
package enum ConnectionChange {
    /// Nothing is ready, and a connection is being made.
    case beingMade
    /// Calls leave by this connection from now on. If another one was ready, ``draining(_:)`` comes next.
    case ready(ConnectionID, Endpoint)
    /// The server of the ready connection is about to end: nothing new should be sent by it, and a successor will be
    /// made. What is in flight on it may still be answered.
    case goingAway(ConnectionID)
    /// The next attempts to connect begin later, by themselves: whoever waits for them asks for
    /// ``DriverRequest/reconnectSooner``.
    case reconnectDeferred
    /// The connection has a successor. What is in flight on it may still be answered; ask for
    /// ``DriverRequest/finishDraining(_:)`` as soon as nothing is.
    case draining(ConnectionID)
    /// The connection is no more; what was in flight on it will not be answered.
    case lost(ConnectionID, SocketError)
    /// Nothing is ready and no attempt is in progress; the error is the last attempt's.
    case offline(SocketError)
    case happened(SocketEvent)
    /// The driver is gone for good: complete what there is.
    case invalidated
}

/// The offer of a client that opens a WebSocket.
package struct WebSocketOffer: Sendable {
    /// The subprotocols, the preferred one first.
    package var subprotocols: [String] = []
    /// Whether the server has to select one.
    package var requiresSubprotocol = false
    /// The compression; nil: it is not offered.
    package var compression: WebSocketCompression?
    /// Whether the WebSocket carries the bytes of a link; else the link speaks its frames itself.
    package var isCarriage = false
    /// Whether the bytes may also come in text messages, which are not checked for UTF-8 then.
    package var acceptsText = false

    package init() {}
}

/// An exchange on each connection before it is used.
package struct LinkHandshake: Sendable {
    /// The time that it may take.
    package var timeout: Duration
    /// The failure when that time is up, for the error.
    package var failure: String

    package init(timeout: Duration, failure: String) {
        self.timeout = timeout
        self.failure = failure
    }

    /// The exchange of a gate.
    package static func gate(_ gate: HandshakeGate) -> LinkHandshake {
        LinkHandshake(
            timeout: gate.timeout,
            failure: "the handshake took longer than \(gate.timeout) (HandshakeGate.timeout)"
        )
    }
}

/// Makes links for a driver, which does not know what is spoken on them, and gets them ready.
package protocol LinkMaker: AnyObject {
    /// Whether a connection may be made while another one is left. Only a language that joins answers to requests by
    /// serial can have two.
    var linksMayOverlap: Bool { get }
    /// The exchange on each connection before it is used; nil, the default: there is none.
    var handshake: LinkHandshake? { get }
    /// The offer by which WebSockets are opened, where an address is a URL.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` if the configuration cannot work.
    func webSocketOffer() throws(SocketError) -> WebSocketOffer
    /// - Parameter agreement: The agreement with the server, on a WebSocket.
    /// - Throws: ``SocketError`` if the configuration cannot work.
    func makeLink(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        _ agreement: OpeningAgreement?,
        _ loop: SocketLoop,
        _ host: any LinkHost
    ) throws(SocketError) -> any ChannelHandler & DrivenLink
    /// Runs the handshake on a connection that is made; ``DriverRequest/gateReturned(_:_:)`` ends that.
    func shakeHands(_ id: ConnectionID, attempt: Int, in turn: inout Turn)
    /// The connection is over before it was ready.
    func pendingEnded(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn)
}

extension LinkMaker {
    package var handshake: LinkHandshake? { nil }
}
