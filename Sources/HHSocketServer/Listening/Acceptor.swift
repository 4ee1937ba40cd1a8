import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import NIOSSL

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A listener that accepts connections.
struct BoundListener: Sendable {
    var channel: any Channel
    var address: Endpoint
    /// The file of a Unix socket when it was bound; nil for other sockets.
    var file: FileIdentity?

    /// Closes the listener. No more connections are accepted once this returns.
    func close() async {
        // Before the socket is closed, since from then on another process may listen at the path.
        if let path = self.address.unixPath, self.file == FileIdentity(path: path) { unlink(path) }
        try? await self.channel.close()
    }
}

/// The identity of a file, which distinguishes it from a later one at its path.
struct FileIdentity: Hashable, Sendable {
    private var device: UInt64
    private var number: UInt64

    /// Fails if there is no such file.
    init?(path: String) {
        var information = stat()
        guard lstat(path, &information) == 0 else { return nil }
        self.device = UInt64(truncatingIfNeeded: information.st_dev)
        self.number = UInt64(information.st_ino)
    }
}

/// The setup of the connections that one listener accepts.
struct Acceptor: Sendable {
    private let core: ServerCore
    private let loops: [ObjectIdentifier: ServerLoop]
    private let settings: ListenerSettings
    private let tls: NIOLockedValueBox<NIOSSLContext?>
    private let handshakeTimeout: TimeAmount
    /// How WebSockets are opened; nil where there are none.
    private let webSocket: WebSocketAcceptance.Settings?

    init(
        core: ServerCore,
        loops: [ServerLoop],
        settings: ListenerSettings,
        tls: NIOLockedValueBox<NIOSSLContext?>,
        handshakeTimeout: Duration,
        webSocket: WebSocketAcceptance.Settings? = nil
    ) {
        self.core = core
        self.loops = Dictionary(uniqueKeysWithValues: loops.map { (ObjectIdentifier($0.eventLoop), $0) })
        self.settings = settings
        self.tls = tls
        self.handshakeTimeout = max(.milliseconds(1), TimeAmount(clamping: handshakeTimeout))
        self.webSocket = webSocket
    }

    /// - Throws: ``HHSocket/SocketError`` with code `bindFailed` or `hostNotFound`.
    func listen(
        _ listener: ServerListener,
        on group: any EventLoopGroup
    ) async throws(SocketError) -> BoundListener {
        do {
            let channel = try await self.bind(listener, on: group)
            let address =
                channel.localAddress.flatMap { address in
                    address.port.map { Endpoint(host: address.ipAddress ?? listener.host, port: $0) }
                } ?? listener.endpoint
            return BoundListener(
                channel: channel,
                address: listener.unixPath == nil ? listener.url(of: address) : listener.endpoint,
                file: listener.unixPath.flatMap { FileIdentity(path: $0) }
            )
        } catch {
            throw SocketError.cannotListen(on: listener.endpoint, error)
        }
    }

    private func bind(_ listener: ServerListener, on group: any EventLoopGroup) async throws -> any Channel {
        let bootstrap = self.bootstrap(on: group)
        guard let path = listener.unixPath else {
            var tcp = self.probing(bootstrap.childChannelOption(.tcpOption(.tcp_nodelay), value: 1))
            if let bytes = self.core.limits.kernelSendBuffer, let option = Self.unsentBytesOption {
                tcp = tcp.childChannelOption(.tcpOption(option), value: min(bytes, Int(CInt.max)))
            }
            return try await tcp.bind(host: listener.host, port: listener.port).get()
        }
        do {
            return try await bootstrap.bind(unixDomainSocketPath: path).get()
        } catch let error as IOError where error.errnoCode == EADDRINUSE {
            // Either another process listens there, or the file was left behind.
            let probe = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            if let channel = try? await probe.connect(unixDomainSocketPath: path).get() {
                try? await channel.close()
                throw error
            }
            return try await bootstrap.bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
        }
    }

    /// Makes the system probe clients, to detect those that are gone while a request of theirs is in flight and that
    /// are therefore not idle. Probes are as rare as the idle timeout, since each wakes a phone's radio.
    private func probing(_ bootstrap: ServerBootstrap) -> ServerBootstrap {
        guard let idle = self.core.limits.idleTimeout else { return bootstrap }
        let seconds = min(max(TimeAmount(clamping: idle).nanoseconds / 1_000_000_000, 60), 32_767)
        #if os(Linux)
        let options = [(TCP_KEEPIDLE, Int(seconds)), (TCP_KEEPINTVL, 60), (TCP_KEEPCNT, 3)]
        #elseif canImport(Darwin)
        let options = [(TCP_KEEPALIVE, Int(seconds)), (TCP_KEEPINTVL, 60), (TCP_KEEPCNT, 3)]
        #else
        let options: [(CInt, Int)] = []
        #endif
        return options.reduce(bootstrap.childChannelOption(.socketOption(.so_keepalive), value: 1)) {
            $0.childChannelOption(.tcpOption(NIOBSDSocket.Option(rawValue: $1.0)), value: $1.1)
        }
    }

    private func bootstrap(on group: any EventLoopGroup) -> ServerBootstrap {
        let (loops, core) = (self.loops, self.core)
        return ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelInitializer { channel in
                // After a failed accept, NIO pauses for a second by itself and continues.
                channel.eventLoop.makeCompletedFuture {
                    let loop = loops[ObjectIdentifier(channel.eventLoop)]
                    try channel.pipeline.syncOperations.addHandler(AcceptFailureCounter(loop: loop, core: core))
                }
            }
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.writeBufferWaterMark, value: .init(low: 256 << 10, high: 1 << 20))
            .childChannelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 2048, initial: 2048, maximum: 256 << 10)
            )
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try self.accept(channel) }
            }
    }

    /// Sets up an accepted connection, on its event loop.
    private func accept(_ channel: any Channel) throws {
        guard let loop = self.loops[ObjectIdentifier(channel.eventLoop)] else {
            throw ChannelError.operationUnsupported
        }
        let refusal = try self.admit(channel, loop)
        let operations = channel.pipeline.syncOperations
        guard let context = self.tls.withLockedValue({ $0 }) else {
            _ = try self.install(on: operations, .last, loop, refusal)
            return
        }
        try operations.addHandlers([
            NIOSSLServerHandler(context: context),
            TLSAcceptance(loop: loop, timeout: self.handshakeTimeout) { context, handler in
                try self.install(on: context.pipeline.syncOperations, .after(handler), loop, refusal)
            },
        ])
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
        let acceptance = WebSocketAcceptance(
            webSocket,
            loop,
            core,
            listener: settings.endpoint,
            isRefused: refusal != nil,
            connection
        )
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

    /// - Returns: The go-away for a client beyond the limit; nil if it is served.
    /// - Throws: An error if too many clients are being refused already; this one is then closed at once.
    private func admit(_ channel: any Channel, _ loop: ServerLoop) throws -> GoAway? {
        let quota = self.core.quota
        let origin = ConnectionQuota.Origin(channel.remoteAddress)
        let reason: String
        switch quota.enter(origin) {
        case nil:
            channel.closeFuture.whenComplete { _ in quota.leave(origin) }
            return nil
        case .tooMany:
            loop.counters.count(\.connectionsRefused)
            reason = "there are too many connections"
        case .tooManyFromOneAddress:
            loop.counters.count(\.connectionsRefusedByAddress)
            reason = "there are too many connections from your address"
        }
        guard quota.beginRefusal() else { throw ChannelError.operationUnsupported }
        channel.closeFuture.whenComplete { _ in quota.refusalIsOver() }
        // Random, so that refused clients do not all return at the same time.
        return GoAway(reason: reason, retryAfter: .milliseconds(Int64.random(in: 1_000...5_000)))
    }

    /// The option for the number of unsent bytes that the system holds at most. Nil if it has no such option.
    private static var unsentBytesOption: NIOBSDSocket.Option? {
        #if os(Linux) || canImport(Darwin)
        NIOBSDSocket.Option(rawValue: CInt(TCP_NOTSENT_LOWAT))
        #else
        nil
        #endif
    }
}

/// The handler that counts and logs failures to accept a connection.
private final class AcceptFailureCounter: ChannelInboundHandler {
    typealias InboundIn = any Channel

    private let loop: ServerLoop?
    private let core: ServerCore

    init(loop: ServerLoop?, core: ServerCore) {
        self.loop = loop
        self.core = core
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError {
            self.loop?.counters.count(\.acceptFailures)
            let log = self.core.peerLog
            log.write(.error, "a connection cannot be accepted", ["error": "\(error)"], by: self.core.logger)
        }
        context.fireErrorCaught(error)
    }
}
