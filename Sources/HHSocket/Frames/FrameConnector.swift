// SPDX-License-Identifier: Apache-2.0
/// The floor above connections of frames.
package protocol FrameHost: AnyObject {
    /// Must give the connection's link another receiver, and then call ``PendingConnection/finish(in:)``.
    func connectionIsReady(_ connection: PendingConnection, in turn: inout Turn)
    /// Receives a go-away on a connection, which may not be ready yet.
    func receivedGoAway(_ frame: Frame, on id: ConnectionID, in turn: inout Turn)
}

/// Makes links for frames, for a ``Driver``, which does not know frames.
package final class FrameConnector: LinkMaker, @unchecked Sendable {
    // Proof of Sendable: the rules are constant; the rest is set before the connector is shared.
    package let rules: FrameRules
    /// The driver, which requests connections and retains this object, and the floor above, which the driver retains
    /// until it is invalidated.
    private weak var driver: (any ConnectionDriver)?
    private unowned var host: (any FrameHost)?

    package var linksMayOverlap: Bool { true }
    package var handshake: LinkHandshake? { self.rules.configuration.gate.map { .gate($0) } }

    package init(_ rules: FrameRules) {
        self.rules = rules
    }

    package func attach(to driver: any ConnectionDriver, _ host: any FrameHost) {
        self.driver = driver
        self.host = host
    }

    package func webSocketOffer() throws(SocketError) -> WebSocketOffer? {
        guard let subprotocol = self.rules.configuration.webSocket.subprotocol ?? self.rules.format.subprotocol else {
            throw .invalid(
                """
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
        to endpoint: Endpoint,
        agreement: OpeningAgreement?,
        on loop: SocketLoop,
        for host: any LinkHost
    ) throws(SocketError) -> any MadeLink {
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
            agreement: agreement,
            rules: self.rules,
            driver: self.driver,
            host: self.host
        )
        link.receiver = pending
        return pending
    }
}
