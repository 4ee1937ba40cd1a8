// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A STOMP client on its socket's thread: passes what happens on the connections that a ``/HHSocket/MessageSession``
/// makes to their owners, in order.
final class STOMPHost: STOMPPeerHost, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, or accessed only on the socket's thread; the weak reference is set
    // before the first submission.
    let configuration: STOMPConfiguration
    let connection: STOMPConnection
    let reading: STOMPReading
    let operations: STOMPOperations
    let sender: STOMPSender
    let settler: STOMPSettler
    let subscriptions: STOMPSubscriptions
    private let port: STOMPPort
    private weak var session: MessageSession<STOMPDialect>?

    init(_ configuration: STOMPConfiguration) {
        self.configuration = configuration
        self.port = STOMPPort(configuration)
        self.connection = STOMPConnection(configuration)
        self.reading = STOMPReading(
            self.connection,
            self.port,
            maximumBufferedBytes: configuration.maximumBufferedBytes
        )
        self.operations = STOMPOperations(configuration, self.connection, port: self.port, reading: self.reading)
        self.sender = STOMPSender(configuration, self.connection, operations: self.operations)
        self.settler = STOMPSettler(self.connection, self.sender, reading: self.reading)
        self.subscriptions = STOMPSubscriptions(self.connection, self.sender, reading: self.reading)
        self.reading.attach(self.subscriptions)
    }

    func attach(_ session: MessageSession<STOMPDialect>, _ driver: Driver) {
        self.session = session
        self.port.attach(session, driver)
    }

    // MARK: Frames

    func received(
        _ batch: inout Batch<STOMPLanguage>,
        from peer: STOMPPeer,
        in turn: inout Turn
    ) throws(LinkError) {
        while batch.continues, let frame = try batch.next() { try self.receivedFrame(frame, from: peer, in: &turn) }
    }

    private func receivedFrame(_ frame: STOMPFrame, from peer: STOMPPeer, in turn: inout Turn) throws(LinkError) {
        let news: STOMPMachine.News?
        do throws(STOMPMachine.Failure) {
            news = try self.connection.received(frame, from: peer)
        } catch {
            switch error {
            case .violation(let text):
                throw LinkError(text)
            case .error(let error, isAnswerToConnect: true):
                return peer.refuse(STOMPErrors.refusal(error, at: peer.endpoint), .stop, in: &turn)
            case .error(let error, isAnswerToConnect: false):
                self.blame(error, peer)
                throw LinkError("ERROR: \(error)", underlying: error, reason: .done)
            }
        }
        switch news {
        case .connected:
            self.connection.wasAccepted(peer, in: &turn)
        case .message(let delivery):
            // The broker takes back messages that are not acknowledged before DISCONNECT.
            guard delivery.ackMode == .auto || peer.link.phase == .open else { return }
            self.subscriptions.deliver(STOMPMessage(frame, delivery: delivery, settler: self.settler), in: &turn)
        case .unclaimed:
            self.session?.report(.unclaimed(STOMPMessage(frame, delivery: nil, settler: self.settler)))
        case .receipt(let receipt):
            self.confirm(receipt, peer, in: &turn)
        case nil:
            break
        }
    }

    private func confirm(_ receipt: String, _ peer: STOMPPeer, in turn: inout Turn) {
        if receipt == peer.farewell {
            self.connection.wasConfirmed()
            peer.link.peerAnsweredClose(in: &turn)
        } else if let operation = self.operations.awaiting(receipt) {
            self.operations.complete(operation, .success(()))
        } else {
            self.subscriptions.confirm(receipt, in: &turn)
        }
    }

    /// Ends the subscription or operation that the broker's ERROR refers to, if it can be identified: otherwise it
    /// would end the next connection too.
    private func blame(_ error: STOMPServerError, _ peer: STOMPPeer) {
        peer.willEnd(by: error)
        let reason = STOMPErrors.answer(error, at: peer.endpoint)
        if let receipt = error.receipt, let operation = self.operations.awaiting(receipt) {
            self.operations.complete(operation, .failure(reason))
        } else {
            self.subscriptions.blame(error, reason)
        }
    }

    // MARK: Connections

    /// Sends everything that waited for a connection, subscriptions first, once a connection is accepted and ready.
    func restore(in turn: inout Turn) {
        self.subscriptions.restore(in: &turn)
        self.operations.connected()
    }

    func end(by error: STOMPServerError, of peer: STOMPPeer) -> LinkEnd {
        var lost = STOMPErrors.answer(error, at: peer.endpoint)
        lost.delivery = .sentUnknown
        let next: EndVerdict.Next = self.configuration.reconnects(error) ? .afterBackoff : .never
        return LinkEnd(.said(lost), EndVerdict(next, isServersFault: false))
    }

    func linkEnded(_ peer: STOMPPeer, in turn: inout Turn) {
        guard self.connection.ended(peer) else { return }
        let error = STOMPErrors.unconfirmed(after: peer.serverError, at: peer.endpoint)
        self.operations.disconnected(error, in: &turn)
        self.subscriptions.disconnected()
        self.reading.reconsider()
    }

    func closedInOrder(_ peer: STOMPPeer) {
        if peer.link.phase == .closing {
            self.connection.wasConfirmed()
        } else if peer === self.connection.peer {
            self.subscriptions.suspect(at: peer.endpoint)
        }
    }

    /// Handles the end of all attempts to connect. Operations that waited for a connection fail.
    func gaveUp(_ error: SocketError) {
        self.operations.failConnectionWaiters(error)
        self.subscriptions.failWaiters(error)
        // If the driver tries again by itself, subscriptions wait for it.
        if self.port.hasStopped { self.subscriptions.removeAll(error) }
    }

    /// Closes on behalf of the user: operations no longer wait for a connection.
    func closedByUser() {
        self.operations.failConnectionWaiters(SocketError(.notConnected, message: "the client was disconnected"))
    }

    /// Ends everything because the client is released.
    func release(in turn: inout Turn) {
        self.operations.release(in: &turn)
        self.subscriptions.release()
    }
}
