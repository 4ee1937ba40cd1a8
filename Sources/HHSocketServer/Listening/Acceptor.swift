// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The setup of the connections that one listener accepts: each is accepted and counted, admitted by its address,
/// passes through TLS if configured, and is then served. `+Binding` listens.
struct Acceptor: Sendable {
    let parts: ServerParts
    private let loops: [ObjectIdentifier: ServerLoop]
    let shortage: ConnectionShortage
    let outage: DescriptorOutage
    /// The number of listening sockets of all listeners.
    let socketCount: Int
    private let settings: ListenerSettings
    private let tls: NIOLockedValueBox<TLSService?>
    /// The settings for opening WebSockets; nil without WebSockets.
    private let webSocket: OpeningSettings?

    init(
        parts: ServerParts,
        loops: [ServerLoop],
        shortage: ConnectionShortage,
        outage: DescriptorOutage,
        socketCount: Int,
        settings: ListenerSettings,
        tls: NIOLockedValueBox<TLSService?>,
        webSocket: OpeningSettings? = nil
    ) {
        self.parts = parts
        self.loops = Dictionary(uniqueKeysWithValues: loops.map { (ObjectIdentifier($0.eventLoop), $0) })
        self.shortage = shortage
        self.outage = outage
        self.socketCount = socketCount
        self.settings = settings
        self.tls = tls
        self.webSocket = webSocket
    }

    /// Sets up an accepted connection, on its event loop.
    func accept(_ channel: any Channel) throws {
        guard let loop = self.loops[ObjectIdentifier(channel.eventLoop)] else {
            throw ChannelError.operationUnsupported
        }
        try self.setReceiveBuffers(of: channel, loop)
        let proxies = self.settings.proxies
        let peer = channel.remoteAddress
        // A peer that has reset the connection no longer has an address. It may be a proxy, whose bytes a header
        // precedes, for example of a health check.
        guard peer != nil || proxies.isEmpty || self.settings.endpoint.unixPath != nil else {
            throw ChannelError.ioOnClosedChannel
        }
        let slot = ConnectionSlot(in: self.parts.books.quota)
        let connection = ServerPeer(on: channel, loop, parts: self.parts, listener: self.settings)
        channel.closeFuture.assumeIsolated().whenComplete { _ in
            slot.release()
            connection.channelClosed()
        }
        let arrival = Arrival(
            from: peer,
            through: proxies,
            opensWebSockets: self.webSocket != nil
        ) { address in
            try self.refusal(of: channel, on: loop, for: slot, address: ClientAddress(address))
        }
        let operations = channel.pipeline.syncOperations
        guard arrival.expectsHeader else {
            try arrival.identify()
            _ = try self.secure(on: operations, at: .last, peer: connection, arrival: arrival)
            return
        }
        let acceptance = ProxyAcceptance(connection) { header, context, handler in
            try arrival.identify(by: header)
            let operations = context.pipeline.syncOperations
            return try self.secure(on: operations, at: .after(handler), peer: connection, arrival: arrival)
        }
        try operations.addHandler(acceptance)
    }

    /// Chooses the memory that the channel's reads bring.
    private func setReceiveBuffers(of channel: any Channel, _ loop: ServerLoop) throws {
        guard self.settings.sharesReceiveBuffers else {
            try channel.syncOptions?.setOption(.recvAllocator, value: TLSReadAllocator())
            return
        }
        let buffers = loop.socketLoop.receiveBuffers
        try channel.syncOptions?.setOption(.recvAllocator, value: SharedReceiveAllocator(buffers))
        // The allocator does not retain them.
        channel.closeFuture.assumeIsolated().whenComplete { _ in withExtendedLifetime(buffers) {} }
    }

    private var hasTLS: Bool { self.tls.withLockedValue { $0 } != nil }

    /// Adds TLS, if configured, when it is its turn, and then the next stage.
    private func secure(
        on operations: ChannelPipeline.SynchronousOperations,
        at position: ChannelPipeline.SynchronousOperations.Position,
        peer: ServerPeer,
        arrival: Arrival
    ) throws -> ServerPeer.Begin? {
        guard let timeout = self.tls.withLockedValue({ $0?.handshakeTimeout }) else {
            return try self.install(on: operations, at: position, peer: peer, arrival: arrival)
        }
        let wait = HandshakeWait(
            peer,
            arrival.address,
            timeout: timeout,
            log: { self.logFailure($0, of: arrival) },
            begin: { try self.secure(on: $0, at: .after($1), peer: peer, arrival: arrival, number: $2) }
        )
        try operations.addHandler(wait, position: position)
        return nil
    }

    private func logFailure(_ reason: String, of arrival: Arrival) {
        // Health checks that only connect cause it, too.
        self.parts.books.peerLog.write(
            .debug,
            "a TLS handshake has failed",
            metadata: [
                "remote": "\(arrival.address.map { "\($0)" } ?? "unknown")",
                "listener": "\(self.settings.endpoint)",
                "reason": .string(reason),
            ],
            by: self.parts.books.logger
        )
    }

    /// Adds TLS, whose handshake may begin.
    private func secure(
        on operations: ChannelPipeline.SynchronousOperations,
        at position: ChannelPipeline.SynchronousOperations.Position,
        peer: ServerPeer,
        arrival: Arrival,
        number: UInt64
    ) throws {
        guard let tls = self.tls.withLockedValue({ $0 }) else { throw ChannelError.operationUnsupported }
        let handlers = tls.handlers(
            peer,
            number: number,
            hold: Hold(.handshake, of: peer.account),
            address: arrival.address,
            log: { self.logFailure($0, of: arrival) }
        ) { context, handler in
            try self.install(on: context.pipeline.syncOperations, at: .after(handler), peer: peer, arrival: arrival)
        }
        try operations.addHandlers(handlers, position: position)
    }

    /// Adds the stage after TCP, or after TLS if configured.
    private func install(
        on operations: ChannelPipeline.SynchronousOperations,
        at position: ChannelPipeline.SynchronousOperations.Position,
        peer: ServerPeer,
        arrival: Arrival
    ) throws -> ServerPeer.Begin? {
        guard let webSocket = self.webSocket else {
            try peer.add(FrameSession(peer, arrival).link, to: operations, position: position)
            return { peer.begin(in: &$0) }
        }
        let acceptance = WebSocketAcceptance(webSocket, peer: peer, arrival: arrival)
        try operations.addHandler(acceptance, position: position)
        // As long as the client's address is unknown, the link does not exist.
        guard webSocket.sharesPort, arrival.isAdmitted else { return nil }
        return try acceptance.installFrames(on: operations)
    }

    /// - Returns: The go-away for a client beyond a limit; nil if it is served.
    /// - Throws: An error if too many clients are being refused already; this one is then closed at once.
    private func refusal(
        of channel: any Channel,
        on loop: ServerLoop,
        for slot: ConnectionSlot,
        address: ClientAddress?
    ) throws -> GoAway? {
        let reason: String
        switch slot.admit(address, now: self.parts.books.time.now(), makingRoom: self.shortage.makeRoom) {
        case nil:
            return nil
        case .tooMany:
            loop.counters.count(.connectionsRefused)
            reason = "there are too many connections"
        case .tooManyFromOneAddress:
            loop.counters.count(.connectionsRefusedByAddress)
            reason = "there are too many connections from your address"
        case .tooOftenFromOneAddress:
            loop.counters.count(.connectionsRefusedByRate)
            reason = "there are too many new connections from your address"
        }
        let quota = self.parts.books.quota
        var maximum = quota.limits.maximumRefusals
        if self.hasTLS {
            // Sending a go-away costs a handshake, which must not delay clients that are served.
            maximum = loop.handshakes.waitingCount > 0 ? 0 : min(maximum, ConnectionQuota.maximumRefusalsOverTLS)
        }
        guard quota.beginRefusal(maximum: maximum) else { throw ChannelError.operationUnsupported }
        channel.closeFuture.whenComplete { _ in quota.refusalIsOver() }
        return GoAway(reason: reason, retryAfter: Farewell.randomAbsence)
    }
}
