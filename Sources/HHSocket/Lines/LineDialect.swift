// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Lines, as a link's session speaks them.
struct LineDialect: MessageDialect {
    typealias Language = LineLanguage
    typealias Peer = LinePeer
    typealias Message = ReceivedLine
    typealias Event = LineLink.Event
    typealias Owner = LineLink
    typealias Delegate = any LineLinkDelegate

    private let configuration: LineLink.Configuration

    init(_ configuration: LineLink.Configuration) {
        self.configuration = configuration
    }

    static var names: (messages: String, limit: String) { ("lines", "maximumWaitingLines") }
    var socket: SocketConfiguration { self.configuration.socket }
    var maximumWaitingCount: Int { self.configuration.maximumWaitingLines }

    var refusal: SocketError? {
        self.configuration.socket.servers.first { $0.isWebSocket }.map { server in
            SocketError.invalid("\(server) is the URL of a WebSocket; lines need a host and a port", endpoint: server)
        }
    }

    // MARK: Links

    func makePeer(on connection: MessageConnection<Self>) -> LinePeer {
        let link = Link(
            id: connection.id,
            loop: connection.loop,
            language: LineLanguage(
                delimiter: self.configuration.delimiter,
                maximumLength: self.configuration.maximumLineLength
            ),
            settings: self.settings,
            host: connection.host
        )
        return LinePeer(link, to: connection.endpoint, delivery: connection.delivery, ended: connection.ended)
    }

    private var settings: LinkSettings<LineUnit> {
        let (heartbeat, delimiter) = (self.configuration.socket.heartbeat, self.configuration.delimiter)
        let (line, replyTimeout) = (self.configuration.heartbeatLine, self.configuration.heartbeatReplyTimeout)
        // Without a line there is nothing to send.
        let hasLine =
            line != nil || heartbeat.map { $0.makePayload != nil || $0.payload.readableBytes > 0 } ?? false
        var settings = LinkSettings<LineUnit>(
            // The queue of waiting lines is bounded instead.
            maximumQueuedBytes: .max,
            writeStallTimeout: TimeAmount(clamping: self.configuration.socket.writeStallTimeout)
        ) { interval, now in
            guard var heartbeat, let interval else { return nil }
            if heartbeat.mode == .ping {
                guard hasLine else { return nil }
                guard let replyTimeout else { return Beats(ourSilence: TimeAmount(clamping: interval), now: now) }
                heartbeat.replyTimeout = replyTimeout
            }
            return Beats(
                monitor: HeartbeatMonitor(heartbeat, interval: interval, canPing: hasLine, now: now),
                now: now
            )
        } makeBeat: {
            let payload = try line.map { ByteBuffer(string: try $0()) } ?? heartbeat?.beat(limit: .max)
            guard let payload else { return nil }
            if let refusal = Self.refusal(of: payload, delimiter) { throw refusal }
            var beat = LineUnit(payload)
            beat.isBeat = true
            return beat
        }
        settings.beatsAtOnce = true
        return settings
    }

    func refusal(of unit: LineUnit) -> SocketError? { Self.refusal(of: unit.payload, self.configuration.delimiter) }

    private static func refusal(of line: ByteBuffer, _ delimiter: LineDelimiter) -> SocketError? {
        guard delimiter.occurs(in: line) else { return nil }
        return .invalid(
            "a line of \(line.readableBytes) bytes contains the delimiter (\(delimiter)); send several lines"
        )
    }

    // MARK: Events

    func opened(_ endpoint: Endpoint, _ agreement: OpeningAgreement?) -> LineLink.Event { .opened(endpoint) }

    func lost(_ peer: LinePeer, _ error: SocketError) -> LineLink.Event { .closed(error) }

    func closedByUser() -> (LinePeer) -> LineLink.Event { { _ in .closed(nil) } }

    func happened(_ event: SocketEvent) -> LineLink.Event { .connection(event) }

    static func handOver(_ line: ReceivedLine, to delegate: any LineLinkDelegate, of owner: LineLink) {
        delegate.lineLink(owner, didReceive: line)
    }

    static func notify(_ delegation: Delegation, of event: LineLink.Event, on loop: SocketLoop) {
        switch event {
        case .opened(let endpoint):
            delegation.notify(on: loop) { $0.lineLink($1, didOpenTo: endpoint) }
        case .closed(let error):
            delegation.notify(on: loop) { $0.lineLink($1, didCloseWith: error) }
        case .unreadable(let error):
            delegation.notify(on: loop) { $0.lineLink($1, didFailToReadWith: error) }
        case .connection(.connectFailed(let error)):
            delegation.notify(on: loop) { $0.lineLink($1, didFailToConnectWith: error) }
        case .connection(.gaveUp(let error)):
            delegation.notify(on: loop) { $0.lineLink($1, didGiveUpWith: error) }
        case .connection:
            break
        }
    }
}
