// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Messages of WebSocket, as a link's session speaks them.
struct WebSocketDialect: MessageDialect {
    typealias Language = WebSocketLanguage
    typealias Peer = WebSocketPeer
    typealias Message = WebSocketMessage
    typealias Event = WebSocketLink.Event
    typealias Owner = WebSocketLink
    typealias Delegate = any WebSocketLinkDelegate

    private let configuration: WebSocketLink.Configuration
    /// Our close frame, where the user has chosen one for the current connection.
    var ownClose: WebSocketClose?

    init(_ configuration: WebSocketLink.Configuration) {
        self.configuration = configuration
    }

    static var names: (messages: String, limit: String) { ("messages", "maximumWaitingMessages") }
    var socket: SocketConfiguration { self.configuration.socket }
    var maximumWaitingCount: Int { self.configuration.maximumWaitingMessages }

    var refusal: SocketError? {
        self.configuration.socket.servers.first { !$0.isWebSocket }.map { server in
            SocketError.invalid("\(server) is not the URL of a WebSocket; write ws://\(server)/path", endpoint: server)
        }
    }

    func webSocketOffer() -> WebSocketOffer? {
        var offer = WebSocketOffer()
        offer.subprotocols = self.configuration.subprotocols
        offer.compression = self.configuration.compression
        return offer
    }

    // MARK: Links

    func makePeer(on connection: MessageConnection<Self>) -> WebSocketPeer {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = self.configuration.maximumMessageLength
        limits.maximumFragments = self.configuration.maximumFragments
        let link = Link(
            id: connection.id,
            loop: connection.loop,
            language: WebSocketLanguage(
                role: .client,
                limits: limits,
                deflate: connection.agreement?.deflate,
                compression: self.configuration.compression,
                buffers: connection.loop.buffers,
                account: nil
            ),
            settings: self.settings,
            host: connection.host
        )
        let (reconnects, ended) = (self.configuration.reconnects, connection.ended)
        let peer = WebSocketPeer(link, role: .client, connection.delivery) {
            $0.end(reconnects: reconnects)
        } ended: { units, _ in
            ended(units)
        }
        peer.pongCame = { [delegation = connection.delegation, loop = connection.loop] payload in
            delegation.notify(on: loop) { $0.webSocketLink($1, didReceivePong: payload) }
        }
        return peer
    }

    private var settings: LinkSettings<WebSocketUnit> {
        let socket = self.configuration.socket
        let (heartbeat, message) = (socket.heartbeat, self.configuration.heartbeatMessage)
        var settings = LinkSettings<WebSocketUnit>(
            // The queue of waiting messages is bounded instead.
            maximumQueuedBytes: .max,
            writeStallTimeout: TimeAmount(clamping: socket.writeStallTimeout)
        ) { interval, now in
            guard let heartbeat, let interval else { return nil }
            return Beats(
                monitor: HeartbeatMonitor(heartbeat, interval: interval, canPing: true, now: now),
                now: now
            )
        } makeBeat: {
            if let message = try message?() {
                var beat = WebSocketUnit(.message(message.wireKind), message.payload)
                beat.isBeat = true
                return beat
            }
            guard let heartbeat else { return nil }
            return WebSocketUnit(.ping, try heartbeat.beat(limit: WebSocketFrameHeader.maximumControlLength))
        }
        settings.partingTime = WebSocketLanguage.patience
        return settings
    }

    func refusal(of unit: WebSocketUnit) -> SocketError? {
        guard case .message(.text) = unit.kind, !unit.payload.isUTF8 else { return nil }
        return .invalid("a text message is not UTF-8; send it as binary")
    }

    // MARK: Events

    mutating func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> WebSocketLink.Event {
        // It was chosen for an earlier connection.
        self.ownClose = nil
        let headers = agreement?.headers.all.map { (name: $0.name, value: $0.value) } ?? []
        return .opened(endpoint, subprotocol: agreement?.subprotocol, headers: headers)
    }

    func lost(_ peer: WebSocketPeer, _ error: SocketError) -> WebSocketLink.Event {
        let closure = error.underlying as? WebSocketClosure ?? peer.received.map { WebSocketClosure($0) }
        return .closed(
            WebSocketLink.Closure(
                code: closure?.code ?? 1_006,
                reason: closure?.reason ?? "",
                wasClean: closure != nil,
                error: error
            )
        )
    }

    mutating func closedByUser() -> (WebSocketPeer) -> WebSocketLink.Event {
        let close = self.ownClose.take() ?? WebSocketClose(code: 1_000)
        return { peer in
            .closed(
                WebSocketLink.Closure(
                    code: close.code ?? 1_000,
                    reason: close.reason,
                    wasClean: peer.received != nil,
                    error: nil
                )
            )
        }
    }

    func happened(_ event: SocketEvent) -> WebSocketLink.Event { .connection(event) }

    static func handOver(
        _ message: WebSocketMessage,
        to delegate: any WebSocketLinkDelegate,
        of owner: WebSocketLink
    ) {
        delegate.webSocketLink(owner, didReceive: message)
    }

    static func notify(_ delegation: Delegation, of event: WebSocketLink.Event, on loop: SocketLoop) {
        switch event {
        case .opened(let endpoint, let subprotocol, let headers):
            delegation.notify(on: loop) { delegate, link in
                delegate.webSocketLink(link, didOpenTo: endpoint, subprotocol: subprotocol, headers: headers)
            }
        case .closed(let closure):
            delegation.notify(on: loop) { $0.webSocketLink($1, didCloseWith: closure) }
        case .connection(.connectFailed(let error)):
            delegation.notify(on: loop) { $0.webSocketLink($1, didFailToConnectWith: error) }
        case .connection(.gaveUp(let error)):
            delegation.notify(on: loop) { $0.webSocketLink($1, didGiveUpWith: error) }
        case .connection:
            break
        }
    }
}

/// Pings and close frames.
extension MessageSession where Dialect == WebSocketDialect {
    func setClose(_ close: WebSocketClose) {
        self.dialect.ownClose = close
        self.ready?.peer.link.setClose(close)
    }

    func ping(_ payload: ByteBuffer?, _ outcome: MessageOutcome, in turn: inout Turn) {
        guard let ready = self.ready, self.driver != nil else {
            return outcome.complete(.failure(self.driver?.notConnected() ?? Driver.closedByUser))
        }
        let endpoint = ready.endpoint
        ready.peer.ping(payload, outcome, in: &turn) {
            SocketError(
                .connectionLost,
                message: "the connection to \(endpoint) ended before the ping was answered",
                endpoint: endpoint,
                delivery: .sentUnknown
            )
        }
    }

    func cancelPing(_ outcome: MessageOutcome) {
        self.ready?.peer.cancelPing(outcome)
        outcome.complete(
            .failure(SocketError(.cancelled, message: "the task that waits for the pong was cancelled"))
        )
    }
}
