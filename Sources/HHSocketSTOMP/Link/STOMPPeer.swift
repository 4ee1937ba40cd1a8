// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOCore

/// The receiver of a link that speaks STOMP. On the socket's thread.
package final class STOMPPeer: MessagePeer {
    package typealias Language = STOMPLanguage

    package let link: Link<STOMPLanguage>
    package let endpoint: Endpoint
    /// The receipt of our DISCONNECT.
    let farewell: String
    private let core: STOMPCore
    /// Called with the units that have not begun to leave.
    private let ended: ([STOMPUnit]) -> Void
    /// Whether a redirect has led to a broker of another origin, which must not get the credentials.
    var isOfAnotherOrigin = false
    package let leaving: LeavingMessages<STOMPLanguage>
    /// Gets the credentials for CONNECT.
    var credentials: Task<Void, Never>?
    /// Called once, when the broker has answered CONNECT; nil: it has accepted.
    var connectAnswered: ((GateRefusal?, inout Turn) -> Void)?
    /// The ERROR that ends the connection, once it is accepted.
    var serverError: STOMPServerError?

    init(
        _ link: Link<STOMPLanguage>,
        _ endpoint: Endpoint,
        _ core: STOMPCore,
        farewell: String,
        ended: @escaping ([STOMPUnit]) -> Void
    ) {
        self.link = link
        self.endpoint = endpoint
        self.core = core
        self.farewell = farewell
        self.ended = ended
        self.leaving = LeavingMessages(link)
    }

    /// Ends what the handshake waits for: the user's credentials and the broker's answer.
    func abandonHandshake() {
        self.connectAnswered = nil
        self.credentials.take()?.cancel()
    }

    package func received(_ batch: inout Batch<STOMPLanguage>, in turn: inout Turn) throws(LinkError) {
        while batch.goesOn, let frame = try batch.next() { try self.core.received(frame, from: self, in: &turn) }
    }

    /// An ERROR is the broker's word, and no violation.
    package func explain(_ end: LinkEnd) -> LinkEnd {
        if end.isOrderlyClose { self.core.closedInOrder(self) }
        guard case .protocolViolation(let error) = end.cause, let said = error.underlying as? STOMPServerError else {
            return end
        }
        return self.core.end(by: said, of: self)
    }

    package func linkEnded(returning units: [STOMPUnit], in turn: inout Turn) {
        self.leaving.fail()
        for unit in units where unit.isOfOneConnection {
            unit.outcome?.complete(.failure(STOMPCore.lost("the connection was lost before the frame was sent")))
        }
        self.core.linkEnded(self, in: &turn)
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
