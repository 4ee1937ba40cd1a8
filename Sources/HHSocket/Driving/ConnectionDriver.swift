// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A driver as the floor above sees it, on the socket's thread. ``Driver`` is the real one; the decisions about calls
/// are tested on another, in virtual time.
package protocol ConnectionDriver: AnyObject, Sendable {
    /// The server connected to, or being connected to.
    var currentEndpoint: Endpoint? { get }
    /// The last attempt's.
    var lastError: SocketError? { get }
    /// Whether no reconnect will happen: the user has disconnected, or attempts have stopped.
    var isClosed: Bool { get }
    /// Whether there is a network, as far as is known.
    var isNetworkReachable: Bool { get }
    /// The error for sends while there is no connection.
    func notConnected() -> SocketError
    func perform(_ request: DriverRequest, in turn: inout Turn)
    /// Updates the metrics. Must be called once after each turn.
    func measure()
}

/// A request of the floor above.
package enum DriverRequest: Sendable {
    /// A sender found no connection and requests one soon.
    case reconnectSooner
    /// An answer did not arrive in time: probes whether the connection still lives. One timed-out call does not end it.
    case suspect(ConnectionID)
    /// Too many calls to the current server fail: fails over, if there is another server.
    case serverFails(Endpoint, wrong: Int, calls: Int)
    /// The server of this connection is shutting down: fails over once another connection is ready.
    case goAway(ConnectionID, GoAway, isAnnounced: Bool)
    /// There is no progress on this connection: replaces it, by one to the same server if there is no other.
    case replace(ConnectionID)
    /// This connection has been of use: its back-off starts over, however short it was ready.
    case proved(ConnectionID)
    /// A draining connection has nothing left in flight.
    case finishDraining(ConnectionID)
    /// Suspends or resumes reading, on every present and future connection.
    case setReading(isSuspended: Bool)
    /// Whether the gate of a connection waits for the answer to hello.
    case awaitHello(Bool)
    /// The gate of a connection has returned; nil: it lets calls through.
    case gateReturned(ConnectionID, GateRefusal?)
}

/// The reason why a gate refused all connections.
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
    /// The server of the ready connection is shutting down: nothing new should be sent on it, and a successor will be
    /// made. Calls in flight on it may still be answered.
    case goingAway(ConnectionID)
    /// The next attempts to connect begin later, automatically; send ``DriverRequest/reconnectSooner`` to have them
    /// sooner.
    case reconnectDeferred
    /// The connection has a successor. Calls in flight on it may still be answered; send
    /// ``DriverRequest/finishDraining(_:)`` as soon as there are none.
    case draining(ConnectionID)
    /// The connection has ended; calls in flight on it will not be answered.
    case lost(ConnectionID, SocketError)
    /// Nothing is ready and no attempt is in progress; the error is the last attempt's.
    case offline(SocketError)
    case happened(SocketEvent)
    /// The driver was released: complete everything.
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
    /// Whether the bytes may also arrive in text messages, which are then not checked for UTF-8.
    package var acceptsText = false

    package init() {}
}

/// An exchange on each connection before it is used.
package struct LinkHandshake: Sendable {
    /// The time limit.
    package var timeout: Duration
    /// The failure when that time is up, for the error.
    package var failure: String
    /// The app's decision before each attempt; nil: all are made.
    package var admission: HandshakeGate.Admission?

    package init(timeout: Duration, failure: String, admission: HandshakeGate.Admission? = nil) {
        self.timeout = timeout
        self.failure = failure
        self.admission = admission
    }

    /// The exchange of a gate.
    package static func gate(_ gate: HandshakeGate) -> LinkHandshake {
        LinkHandshake(
            timeout: gate.timeout,
            failure: "the handshake took longer than \(gate.timeout) (HandshakeGate.timeout)",
            admission: gate.admission
        )
    }
}

/// Makes links for a driver, which does not know their language.
package protocol LinkMaker: AnyObject {
    /// Whether a connection may be made while another one drains. Only a language that matches answers to requests by
    /// serial supports two.
    var linksMayOverlap: Bool { get }
    /// The exchange on each connection before it is used; nil, the default, for none.
    var handshake: LinkHandshake? { get }
    /// The offer by which WebSockets are opened, where an address is a URL; nil, the default, if the language is not
    /// spoken on them.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` if the configuration cannot work.
    func webSocketOffer() throws(SocketError) -> WebSocketOffer?
    /// - Parameter agreement: The agreement with the server, on a WebSocket.
    /// - Throws: ``SocketError`` if the configuration cannot work.
    func makeLink(
        _ id: ConnectionID,
        to endpoint: Endpoint,
        agreement: OpeningAgreement?,
        on loop: SocketLoop,
        for host: any LinkHost
    ) throws(SocketError) -> any MadeLink
}

extension LinkMaker {
    package var handshake: LinkHandshake? { nil }
    package func webSocketOffer() throws(SocketError) -> WebSocketOffer? { nil }
}

/// A link that is not ready yet, for the driver to guide: either ``isReady(in:)`` or ``ended(_:in:)`` is called, once.
package protocol MadeLink: AnyObject {
    associatedtype Driven: ChannelHandler & DrivenLink

    var link: Driven { get }
    /// Runs the handshake; ``DriverRequest/gateReturned(_:_:)`` ends it.
    func shakeHands(attempt: Int, in turn: inout Turn)
    /// Units are sent on this link from now on. If another one was ready, ``ConnectionChange/draining(_:)`` comes next.
    func isReady(in turn: inout Turn)
    /// The link has ended, or is about to be closed, before it was ready.
    func ended(_ error: SocketError, in turn: inout Turn)
}
