// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import HHSocketLink

/// The owner of a client's connections, as far as their peers use it.
protocol STOMPPeerHost: AnyObject {
    func received(_ batch: inout Batch<STOMPLanguage>, from peer: STOMPPeer, in turn: inout Turn) throws(LinkError)
    /// The broker has closed a WebSocket with a close frame: in answer to DISCONNECT, as RabbitMQ does, or on its own
    /// initiative.
    func closedInOrder(_ peer: STOMPPeer)
    /// The end of a connection by an ERROR.
    func end(by error: STOMPServerError, of peer: STOMPPeer) -> LinkEnd
    func linkEnded(_ peer: STOMPPeer, in turn: inout Turn)
}

/// The receiver of a link that speaks STOMP. On the socket's thread.
package final class STOMPPeer: MessagePeer {
    package typealias Language = STOMPLanguage

    package let link: Link<STOMPLanguage>
    package let endpoint: Endpoint
    /// The receipt of our DISCONNECT.
    let farewell: String
    private let host: any STOMPPeerHost
    /// Called with the units that have not begun to leave.
    private let ended: ([STOMPUnit]) -> Void
    /// Whether a redirect has led to a broker of another origin, which must not get the credentials.
    let isOfAnotherOrigin: Bool
    package let begun: BegunMessages<STOMPLanguage>
    /// Gets the credentials for CONNECT.
    private var credentials: Task<Void, Never>?
    /// Called once, when the broker has answered CONNECT; nil: it has accepted.
    private var connectAnswered: ((GateRefusal?, inout Turn) -> Void)?
    private var lastWord: STOMPServerError?

    init(
        _ link: Link<STOMPLanguage>,
        to endpoint: Endpoint,
        isOfAnotherOrigin: Bool,
        host: any STOMPPeerHost,
        farewell: String,
        ended: @escaping ([STOMPUnit]) -> Void
    ) {
        self.link = link
        self.endpoint = endpoint
        self.isOfAnotherOrigin = isOfAnotherOrigin
        self.host = host
        self.farewell = farewell
        self.ended = ended
        self.begun = BegunMessages(link)
    }

    /// The ERROR that ends the connection, once it is accepted.
    var serverError: STOMPServerError? { self.lastWord }

    func willEnd(by error: STOMPServerError) { self.lastWord = error }

    // MARK: Handshake

    /// - Parameter completion: Called once, when the broker has answered CONNECT; nil: it has accepted.
    func beginHandshake(_ completion: @escaping (GateRefusal?, inout Turn) -> Void) {
        self.connectAnswered = completion
    }

    /// - Parameter credentials: Gets the credentials for CONNECT.
    func awaitCredentials(_ credentials: Task<Void, Never>) { self.credentials = credentials }

    /// Whether the handshake has neither been completed nor abandoned.
    var isInHandshake: Bool { self.connectAnswered != nil }

    func finishHandshake(_ refusal: GateRefusal?, in turn: inout Turn) { self.connectAnswered.take()?(refusal, &turn) }

    func refuse(_ error: SocketError, _ remedy: HandshakeRefusal.Remedy, in turn: inout Turn) {
        var error = error
        error.endpoint = self.endpoint
        self.finishHandshake(GateRefusal(error: error, remedy: remedy), in: &turn)
    }

    /// Ends what the handshake waits for: the user's credentials and the broker's answer.
    func abandonHandshake() {
        self.connectAnswered = nil
        self.credentials.take()?.cancel()
    }

    // MARK: Link

    package func received(_ batch: inout Batch<STOMPLanguage>, in turn: inout Turn) throws(LinkError) {
        try self.host.received(&batch, from: self, in: &turn)
    }

    /// An ERROR is the broker's word, and no violation.
    package func explain(_ end: LinkEnd) -> LinkEnd {
        if end.isOrderlyClose { self.host.closedInOrder(self) }
        guard case .protocolViolation(let error) = end.cause, let said = error.underlying as? STOMPServerError else {
            return end
        }
        return self.host.end(by: said, of: self)
    }

    package func linkEnded(returning units: [STOMPUnit], in turn: inout Turn) {
        self.begun.fail()
        for unit in units where unit.isOfOneConnection {
            unit.outcome?.complete(.failure(STOMPErrors.lost("the connection was lost before the frame was sent")))
        }
        self.host.linkEnded(self, in: &turn)
        self.ended(units)
    }
}

extension LinkEnd {
    /// The close code of a WebSocket for a normal end.
    private static var normalClosure: UInt16 { 1_000 }

    /// Whether the peer has closed a WebSocket by that code.
    fileprivate var isOrderlyClose: Bool {
        guard case .said(let error) = self.cause, let closure = error.underlying as? WebSocketClosure else {
            return false
        }
        return closure.code == Self.normalClosure
    }
}
