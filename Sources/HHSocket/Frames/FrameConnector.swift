// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Makes links for frames, and gets them ready, for a ``Driver``, which does not know frames.
package final class FrameConnector: LinkMaker, @unchecked Sendable {
    // Proof of Sendable: the rules are constant; the rest is accessed only on the socket thread, or set before the
    // connector is shared.
    package let rules: FrameRules
    /// The driver, which requests connections and retains this object. Weak: a gate may return just after the driver
    /// was released.
    private weak var driver: (any ConnectionDriver)?
    /// Reads a go-away that arrives on a connection which is being made; nil: it is ignored.
    private var readGoAway: (Frame, ConnectionID, inout Turn) -> GoAway? = { _, _, _ in nil }
    private var pending: PendingConnection?

    package var linksMayOverlap: Bool { true }
    package var handshake: LinkHandshake? { self.rules.configuration.gate.map { .gate($0) } }

    package init(_ rules: FrameRules) {
        self.rules = rules
    }

    /// - Parameter readGoAway: Reads a go-away that arrives on a connection being made; returns nil if it must be
    ///   ignored.
    package func attach(
        to driver: any ConnectionDriver,
        readGoAway: @escaping (Frame, ConnectionID, inout Turn) -> GoAway?
    ) {
        self.driver = driver
        self.readGoAway = readGoAway
    }

    package func webSocketOffer() throws(SocketError) -> WebSocketOffer {
        guard let subprotocol = self.rules.configuration.webSocket.subprotocol ?? self.rules.format.subprotocol else {
            throw SocketError(
                .invalidArgument,
                message: """
                    the wire format \(self.rules.format) has no subprotocol of its own; name the server's \
                    (SocketConfiguration.webSocket.subprotocol)
                    """
            )
        }
        var offer = WebSocketOffer()
        offer.subprotocols = [subprotocol]
        offer.requiresSubprotocol = true
        offer.isCarriage = true
        offer.compression = self.rules.configuration.webSocket.compression
        return offer
    }

    package func makeLink(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        _ agreement: OpeningAgreement?,
        _ loop: SocketLoop,
        _ host: any LinkHost
    ) throws(SocketError) -> any ChannelHandler & DrivenLink {
        let link = Link(
            id: id,
            loop: loop,
            language: self.rules.language(
                customFields: try self.rules.customFields.get(),
                isCopiedAgain: agreement != nil || self.rules.configuration.tls != nil
            ),
            settings: self.rules.linkSettings,
            host: host
        )
        let pending = PendingConnection(
            link: link,
            endpoint: endpoint,
            isCompressed: agreement?.deflate != nil,
            isOfAnotherOrigin: agreement?.isOfAnotherOrigin ?? false,
            connector: self
        )
        link.receiver = pending
        self.pending = pending
        return link
    }

    package func shakeHands(_ id: ConnectionID, attempt: Int, in turn: inout Turn) {
        guard let gate = self.rules.configuration.gate, let pending = self.pending(id) else { return }
        let endpoint = pending.endpoint
        let loop = pending.link.loop
        pending.run(
            gate,
            attempt: attempt,
            lastSerial: self.rules.format.layout.requestSerials.upperBound,
            transmit: { [weak self] frame, completion in
                let isAlive = self.map { connector in
                    loop.submit(.closure { connector.send(frame, id, in: &$0, completion) })
                }
                if isAlive != true { completion(.failure(PendingConnection.isOver(endpoint))) }
            },
            completion: { [weak self] refusal in
                guard let self else { return }
                loop.submit(.closure { self.driver?.perform(.gateReturned(id, refusal), in: &$0) })
            }
        )
    }

    package func pendingEnded(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        guard let pending = self.pending(id) else { return }
        self.pending = nil
        pending.link.releaseReceiver(in: &turn)
        pending.end(error)
    }

    /// The ready connection, for the object that receives frames from now on, which must become the link's receiver
    /// before ``PendingConnection/finish(in:)`` is called.
    package func takePending(_ id: ConnectionID) -> PendingConnection? {
        guard let pending = self.pending(id) else { return nil }
        self.pending = nil
        return pending
    }

    /// The connection that is being made, if it is this one.
    package func pending(_ id: ConnectionID) -> PendingConnection? {
        self.pending?.link.id == id ? self.pending : nil
    }

    /// Sends a frame of the gate's.
    private func send(
        _ frame: Frame,
        _ id: ConnectionID,
        in turn: inout Turn,
        _ completion: (Result<Void, SocketError>) -> Void
    ) {
        guard let pending = self.pending(id) else {
            return completion(.failure(PendingConnection.isOver(self.pending?.endpoint ?? Endpoint(host: "", port: 0))))
        }
        do throws(SocketError) {
            try self.rules.check(frame)
            if frame.type == FrameType.hello, pending.awaitsHello {
                // Its answer may be right before frames that have them.
                pending.link.expectFlags(FrameType.allFlags)
                self.driver?.perform(.awaitHello(true), in: &turn)
            }
            _ = try self.rules.send(frame, .default, on: pending.link, pending.endpoint, in: &turn)
            completion(.success(()))
        } catch {
            completion(.failure(error))
        }
    }

    // MARK: Frames on a connection that is being made

    func helloCame(in turn: inout Turn) {
        self.driver?.perform(.awaitHello(false), in: &turn)
    }

    func goAwayCame(_ frame: Frame, _ id: ConnectionID, in turn: inout Turn) {
        guard let departure = self.readGoAway(frame, id, &turn) else { return }
        self.driver?.perform(.goAway(id, departure, isAnnounced: true), in: &turn)
    }

    /// A server has refused the session token of hello.
    ///
    /// - Returns: What follows; nil if hello has no tokens.
    func tokenWasRefused() -> HandshakeRefusal? { self.rules.configuration.gate?.admission?.tokenWasRefused() }

    func handshakeFailed(
        _ id: ConnectionID,
        _ error: SocketError,
        _ remedy: HandshakeRefusal.Remedy = .tryAnotherServer,
        in turn: inout Turn
    ) {
        self.driver?.perform(.gateReturned(id, GateRefusal(error: error, remedy: remedy)), in: &turn)
    }
}
