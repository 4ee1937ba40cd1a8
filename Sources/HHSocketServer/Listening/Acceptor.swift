import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// The setup of the connections that one listener accepts: each is accepted and counted, admitted by its address, goes
/// through TLS where there is any, and is then served. `+Binding` listens.
struct Acceptor: Sendable {
    let core: ServerCore
    private let loops: [ObjectIdentifier: ServerLoop]
    let shortage: ConnectionShortage
    let outage: DescriptorOutage
    private let settings: ListenerSettings
    private let tls: NIOLockedValueBox<NIOSSLContext?>
    private let handshakeTimeout: TimeAmount
    /// How WebSockets are opened; nil where there are none.
    private let webSocket: WebSocketAcceptance.Settings?

    init(
        core: ServerCore,
        loops: [ServerLoop],
        shortage: ConnectionShortage,
        outage: DescriptorOutage,
        settings: ListenerSettings,
        tls: NIOLockedValueBox<NIOSSLContext?>,
        handshakeTimeout: Duration,
        webSocket: WebSocketAcceptance.Settings? = nil
    ) {
        self.core = core
        self.loops = Dictionary(uniqueKeysWithValues: loops.map { (ObjectIdentifier($0.eventLoop), $0) })
        self.shortage = shortage
        self.outage = outage
        self.settings = settings
        self.tls = tls
        self.handshakeTimeout = max(.milliseconds(1), TimeAmount(clamping: handshakeTimeout))
        self.webSocket = webSocket
    }

    /// Sets up an accepted connection, on its event loop.
    func accept(_ channel: any Channel) throws {
        guard let loop = self.loops[ObjectIdentifier(channel.eventLoop)] else {
            throw ChannelError.operationUnsupported
        }
        let place = ConnectionPlace(in: self.core.quota)
        channel.closeFuture.assumeIsolated().whenComplete { _ in place.leave() }
        try self.admit(channel, loop, place, from: ClientAddress(channel.remoteAddress))
    }

    /// Goes on with an accepted connection once its client's address is known, on its event loop: serves it, or refuses
    /// it.
    ///
    /// - Parameter address: Nil where the client has none, and no limit of addresses.
    /// - Throws: An error if the connection is to be closed at once.
    private func admit(
        _ channel: any Channel,
        _ loop: ServerLoop,
        _ place: ConnectionPlace,
        from address: ClientAddress?
    ) throws {
        let refusal = try self.refusal(of: channel, loop, place, address)
        let operations = channel.pipeline.syncOperations
        guard self.hasTLS else {
            _ = try self.install(on: operations, .last, loop, refusal)
            return
        }
        guard let number = loop.handshakes.enter() else {
            let wait = HandshakeWait(loop.handshakes) { try self.secure($0, .after($1), loop, refusal, number: $2) }
            return try operations.addHandler(wait)
        }
        do {
            try self.secure(operations, .last, loop, refusal, number: number)
        } catch {
            loop.handshakes.leave(number)
            throw error
        }
    }

    private var hasTLS: Bool { self.tls.withLockedValue { $0 } != nil }

    /// Adds TLS, whose handshake may begin.
    private func secure(
        _ operations: ChannelPipeline.SynchronousOperations,
        _ position: ChannelPipeline.SynchronousOperations.Position,
        _ loop: ServerLoop,
        _ refusal: GoAway?,
        number: UInt64
    ) throws {
        guard let context = self.tls.withLockedValue({ $0 }) else { throw ChannelError.operationUnsupported }
        let tls = NIOSSLServerHandler(context: context)
        let acceptance = TLSAcceptance(loop: loop, timeout: self.handshakeTimeout, number: number) { context, handler in
            try self.install(on: context.pipeline.syncOperations, .after(handler), loop, refusal)
        }
        try operations.addHandlers([tls, acceptance], position: position)
    }

    /// Begins a connection whose channel is connected already.
    typealias Begin = (inout Turn) -> Void

    /// Adds the stage that follows TCP, or TLS where there is any.
    private func install(
        on operations: ChannelPipeline.SynchronousOperations,
        _ position: ChannelPipeline.SynchronousOperations.Position,
        _ loop: ServerLoop,
        _ refusal: GoAway?
    ) throws -> Begin? {
        let (core, settings) = (self.core, self.settings)
        func connection() -> ServerConnection {
            ServerConnection(loop: loop, core: core, listener: settings, refusal: refusal)
        }
        guard let webSocket = self.webSocket else {
            let connection = connection()
            try connection.add(to: operations, position: position)
            return { connection.begin(in: &$0) }
        }
        let acceptance = WebSocketAcceptance(webSocket, loop, core, isRefused: refusal != nil, connection)
        guard webSocket.sharesPort else {
            try operations.addHandler(acceptance, position: position)
            return nil
        }
        try operations.addHandler(acceptance, position: position)
        let shared = connection()
        acceptance.linkIsThere(shared)
        try shared.add(to: operations, position: .after(acceptance))
        return { shared.begin(in: &$0) }
    }

    /// - Returns: The go-away for a client beyond a limit; nil if it is served.
    /// - Throws: An error if too many clients are being refused already; this one is then closed at once.
    private func refusal(
        of channel: any Channel,
        _ loop: ServerLoop,
        _ place: ConnectionPlace,
        _ address: ClientAddress?
    ) throws -> GoAway? {
        let reason: String
        switch place.admit(address, now: .now(), makingRoom: self.shortage.makeRoom) {
        case nil:
            return nil
        case .tooMany:
            loop.counters.count(\.connectionsRefused)
            reason = "there are too many connections"
        case .tooManyFromOneAddress:
            loop.counters.count(\.connectionsRefusedByAddress)
            reason = "there are too many connections from your address"
        case .tooOftenFromOneAddress:
            loop.counters.count(\.connectionsRefusedByRate)
            reason = "there are too many new connections from your address"
        }
        let quota = self.core.quota
        var maximum = quota.limits.maximumRefusals
        if self.hasTLS {
            // To tell a client costs a handshake, which nobody who is served should wait for.
            maximum = loop.handshakes.waitingCount > 0 ? 0 : min(maximum, ConnectionQuota.maximumRefusalsOverTLS)
        }
        guard quota.beginRefusal(maximum: maximum) else { throw ChannelError.operationUnsupported }
        channel.closeFuture.whenComplete { _ in quota.refusalIsOver() }
        // Random, so that refused clients do not all return at the same time.
        return GoAway(reason: reason, retryAfter: .milliseconds(Int64.random(in: 1_000...5_000)))
    }
}
