// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import NIOCore

/// STOMP, as a link's session speaks it.
package struct STOMPDialect: MessageDialect {
    package typealias Language = STOMPLanguage
    package typealias Peer = STOMPPeer
    package typealias Message = STOMPMessage
    package typealias Event = STOMPEvent
    package typealias Owner = STOMPClient
    package typealias Delegate = any STOMPClientDelegate

    private let configuration: STOMPConfiguration
    private let host: STOMPHost

    init(_ configuration: STOMPConfiguration, _ host: STOMPHost) {
        self.configuration = configuration
        self.host = host
    }

    package static var names: (messages: String, limit: String) { ("messages", "maximumWaitingMessages") }

    package var socket: SocketConfiguration {
        var socket = self.configuration.socket
        // STOMP agrees on its own.
        socket.heartbeat = nil
        return socket
    }

    package var maximumWaitingCount: Int { self.configuration.maximumWaitingMessages }
    package var refusal: SocketError? { self.configuration.refusal }

    package var handshake: LinkHandshake? {
        let timeout = self.configuration.connectTimeout
        return LinkHandshake(
            timeout: timeout,
            failure: "the broker did not answer CONNECT within \(timeout) (STOMPClient.Configuration.connectTimeout)"
        )
    }

    package func webSocketOffer() -> WebSocketOffer? {
        var offer = WebSocketOffer()
        offer.subprotocols = self.configuration.versions.sorted(by: >).map(\.webSocketSubprotocol)
        offer.isCarriage = true
        // RabbitMQ sends binary bodies so.
        offer.acceptsText = true
        offer.compression = self.configuration.socket.webSocket.compression
        return offer
    }

    // MARK: Links

    package func makePeer(on connection: MessageConnection<Self>) -> STOMPPeer {
        let patience = TimeAmount(clamping: self.configuration.disconnectTimeout)
        let farewell = "disconnect-\(connection.id)"
        var settings = LinkSettings<STOMPUnit>(
            // Waiting messages are bounded before they are sent.
            maximumQueuedBytes: .max,
            writeStallTimeout: TimeAmount(clamping: self.configuration.socket.writeStallTimeout)
        ) { [connection = self.host.connection] _, now in
            connection.beats(now: now)
        } makeBeat: {
            .heartbeat
        }
        settings.partingTime = patience
        let link = Link(
            id: connection.id,
            loop: connection.loop,
            language: STOMPLanguage(limits: self.configuration.limits, farewell: farewell, patience: patience),
            settings: settings,
            host: connection.host
        )
        return STOMPPeer(
            link,
            to: connection.endpoint,
            isOfAnotherOrigin: connection.agreement?.isOfAnotherOrigin ?? false,
            host: self.host,
            farewell: farewell,
            ended: connection.ended
        )
    }

    package func shakeHands(
        on peer: STOMPPeer,
        attempt: Int,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        self.host.connection.connect(peer, in: &turn, completion)
    }

    package func handshakeEnded(on peer: STOMPPeer) { peer.abandonHandshake() }

    package mutating func restore(on peer: STOMPPeer, in turn: inout Turn) { self.host.restore(in: &turn) }

    package func refusal(of unit: STOMPUnit) -> SocketError? { nil }

    package func refusal(of unit: STOMPUnit, on peer: STOMPPeer) -> SocketError? { self.host.sender.refusal(of: unit) }

    package var isBehind: Bool { self.host.reading.isBehind }

    package func invalidated(in turn: inout Turn) { self.host.release(in: &turn) }

    // MARK: Events

    package func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> STOMPEvent {
        self.host.connection.agreement.map { .opened($0) } ?? .connection(.connected(endpoint))
    }

    package func lost(_ peer: STOMPPeer, _ error: SocketError) -> STOMPEvent { .closed(error) }

    package func closedByUser() -> (STOMPPeer) -> STOMPEvent { { _ in .closed(nil) } }

    package func happened(_ event: SocketEvent) -> STOMPEvent {
        switch event {
        case .gaveUp(let error): self.host.gaveUp(error)
        case .closed: self.host.closedByUser()
        default: break
        }
        return .connection(event)
    }

    package static func handOver(
        _ message: STOMPMessage,
        to delegate: any STOMPClientDelegate,
        of owner: STOMPClient
    ) {
        delegate.stompClient(owner, didReceive: message)
    }

    package static func notify(_ delegation: Delegation, of event: STOMPEvent, on loop: SocketLoop) {
        switch event {
        case .opened(let agreement):
            delegation.notify(on: loop) { $0.stompClient($1, didConnect: agreement) }
        case .closed(let error):
            delegation.notify(on: loop) { $0.stompClient($1, didCloseWith: error) }
        case .unclaimed(let message):
            delegation.notify(on: loop) { $0.stompClient($1, didReceiveUnclaimed: message) }
        case .connection(.connectFailed(let error)):
            delegation.notify(on: loop) { $0.stompClient($1, didFailToConnectWith: error) }
        case .connection(.gaveUp(let error)):
            delegation.notify(on: loop) { $0.stompClient($1, didGiveUpWith: error) }
        case .connection:
            break
        }
    }
}

extension MessageSession: STOMPSession where Dialect == STOMPDialect {}
