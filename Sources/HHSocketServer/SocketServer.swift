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

/// A server: it accepts connections, hands requests to a ``Router`` and pushes to its clients.
///
/// ```swift
/// var router = Router()
/// router.handle(101) { request, context in ByteBuffer(string: "hello") }
/// let server = SocketServer(configuration: .init(port: 7000), router: router)
/// try await server.start()
/// await server.push(type: 2001, body: ByteBuffer(string: "news"))
/// try await server.shutdown(gracePeriod: .seconds(5))
/// ```
/// A client may stay idle for as long as it likes. One that does not read its answers is not read from either, until it
/// does. Heartbeats are answered; a wrong checksum is answered with status 302 and an unknown type with 401, and the
/// connection stays. A length over the limit closes it.
public final class SocketServer: Sendable {
    private struct Running {
        var listener: any Channel
        var address: Endpoint?
        var loops: [ServerLoop]
        var ownGroup: MultiThreadedEventLoopGroup?

        func kill() {
            for loop in self.loops { loop.kill() }
        }
    }

    private enum State {
        case idle
        case starting
        case running(Running)
        case stopping(Running, finished: Task<Void, Never>)
        case stopped(ServerStatistics)
    }

    /// What the server was made with.
    public let configuration: Configuration
    private let router: Router
    private let state = NIOLockedValueBox(State.idle)
    /// What connections are accepted with from now on; nil without TLS.
    private let tlsContext = NIOLockedValueBox<NIOSSLContext?>(nil)

    /// - Parameters:
    ///   - configuration: Where to listen, and the limits.
    ///   - router: Which code answers which request.
    public init(configuration: Configuration = Configuration(), router: Router) {
        self.configuration = configuration
        self.router = router
    }

    deinit {
        // Nobody can shut it down any more.
        guard case .running(let running) = self.state.withLockedValue({ $0 }) else { return }
        running.listener.close(promise: nil)
        running.kill()
        running.ownGroup?.shutdownGracefully { _ in }
    }

    // MARK: Life

    /// Listens; returns once connections are accepted.
    ///
    /// - Throws: ``HHSocket/SocketError`` that names host and port: `bindFailed` when the address is taken, not allowed or
    ///   not this machine's, `hostNotFound` when the host name has no address, `invalidArgument` when a setting
    ///   cannot work or the server has been started before.
    public func start() async throws(SocketError) {
        try self.checkConfiguration()
        let mayStart = self.state.withLockedValue { state in
            guard case .idle = state else { return false }
            state = .starting
            return true
        }
        guard mayStart else {
            throw SocketError(
                .invalidArgument,
                message: "a server can be started once; make another one",
                endpoint: self.wantedAddress
            )
        }

        do throws(SocketError) {
            try self.reloadTLS()
        } catch {
            self.state.withLockedValue { $0 = .idle }
            var error = error
            error.endpoint = self.wantedAddress
            throw error
        }
        let ownGroup: MultiThreadedEventLoopGroup?
        let group: any EventLoopGroup
        if let given = self.configuration.eventLoopGroup {
            (ownGroup, group) = (nil, given)
        } else {
            let made = MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
            (ownGroup, group) = (made, made)
        }
        let connectionIDs = NIOLockedValueBox<UInt64>(0)
        let loops = group.makeIterator().map { ServerLoop(eventLoop: $0, connectionIDs: connectionIDs) }
        do {
            let listener = try await self.listen(on: group, loops: loops)
            let address =
                self.configuration.unixPath.map { Endpoint(unixPath: $0) }
                ?? listener.localAddress.flatMap { address in
                    address.port.map { Endpoint(host: address.ipAddress ?? self.configuration.host, port: $0) }
                }
            self.state.withLockedValue {
                $0 = .running(Running(listener: listener, address: address, loops: loops, ownGroup: ownGroup))
            }
        } catch {
            self.state.withLockedValue { $0 = .idle }
            try? await ownGroup?.shutdownGracefully()
            throw self.listenError(error)
        }
    }

    /// Stops accepting, finishes what is in flight, closes every connection, and returns when all of that is done.
    ///
    /// A connection closes as soon as nothing is in flight on it; a request that arrives meanwhile is answered
    /// ``HHSocket/Status/draining`` (504). What is still running when the grace is over is cancelled and its connection
    /// closed. Calling it again shortens the grace; a server that does not run is left alone.
    ///
    /// - Parameter gracePeriod: How long requests in flight may take; zero closes everything at once.
    public func shutdown(gracePeriod: Duration = .seconds(5)) async {
        let grace = TimeAmount(gracePeriod)
        let stopping: Task<Void, Never>? = self.state.withLockedValue { state in
            switch state {
            case .idle, .starting, .stopped:
                return nil
            case .stopping(_, let finished):
                return finished
            case .running(let running):
                let finished = Task { await self.finish(running) }
                state = .stopping(running, finished: finished)
                return finished
            }
        }
        guard let finished = stopping else { return }
        if grace <= .nanoseconds(0) {
            self.kill()
            await finished.value
        } else {
            let killer = Task {
                try await Task.sleep(nanoseconds: UInt64(grace.nanoseconds))
                self.kill()
            }
            await finished.value
            killer.cancel()
        }
    }

    /// Closes every connection at once, unless that is over.
    private func kill() {
        // Submitted under the lock: once the server has stopped, the event loops may be gone.
        self.state.withLockedValue { state in
            if case .stopping(let running, _) = state { running.kill() }
        }
    }

    private func finish(_ running: Running) async {
        try? await running.listener.close()
        if let path = self.configuration.unixPath { unlink(path) }
        for drained in running.loops.map({ $0.drain() }) { try? await drained.get() }
        let statistics = Self.total(running.loops)
        self.state.withLockedValue { $0 = .stopped(statistics) }
        try? await running.ownGroup?.shutdownGracefully()
    }

    /// Reads certificates and keys anew: connections that are accepted from now on get the new ones, those that are open stay.
    ///
    /// - Parameter tls: What to use from now on; nil, the default: what the server was configured with, whose files are read
    ///   again.
    /// - Throws: ``HHSocket/SocketError`` with code `invalidArgument` that says what cannot be read; the old ones stay.
    public func reloadTLS(_ tls: ServerTLS? = nil) throws(SocketError) {
        guard let configured = self.configuration.tls else {
            guard tls == nil else {
                throw SocketError(.invalidArgument, message: "a server that was made without TLS cannot begin with it")
            }
            return
        }
        let context = try (tls ?? configured).makeContext()
        self.tlsContext.withLockedValue { $0 = context }
    }

    // MARK: What it is doing

    /// Where it listens, with the port it was given; nil unless it runs.
    public var address: Endpoint? {
        if case .running(let running) = self.state.withLockedValue({ $0 }) { running.address } else { nil }
    }

    /// The connections open now.
    public var connectionCount: Int {
        self.loops.reduce(0) { $0 + $1.connectionCount }
    }

    /// What it has done since it started.
    public var statistics: ServerStatistics {
        switch self.state.withLockedValue({ $0 }) {
        case .idle, .starting: ServerStatistics()
        case .running(let running), .stopping(let running, _): Self.total(running.loops)
        case .stopped(let statistics): statistics
        }
    }

    private var loops: [ServerLoop] {
        switch self.state.withLockedValue({ $0 }) {
        case .running(let running), .stopping(let running, _): running.loops
        case .idle, .starting, .stopped: []
        }
    }

    private static func total(_ loops: [ServerLoop]) -> ServerStatistics {
        loops.reduce(into: ServerStatistics()) { $0 += $1.statistics }
    }

    // MARK: Pushes

    /// Sends a push (in the standard format serial 1, status 200) to every connection.
    ///
    /// The frame is encoded once. A client that reads so slowly that ``Configuration/maximumPendingWriteBytes`` wait for
    /// it does not get it; ``ServerStatistics/pushesDropped`` counts that.
    ///
    /// - Parameters:
    ///   - type: One that the wire format leaves to applications, in the standard format 16 to 0x1FFFFFFF.
    ///   - body: The payload.
    /// - Returns: How many connections it was handed to; 0 in a wire format without pushes.
    /// - Precondition: `type` is such a type.
    @discardableResult
    public func push(type: UInt32, body: ByteBuffer) async -> Int {
        let format = self.configuration.wireFormat
        precondition(format.isApplicationType(type), "type \(type) belongs to the protocol")
        guard let push = format.layout.push else { return 0 }
        // A header that is wrong has kept the server from starting, and there is nobody to push to.
        let fields = try? format.customFields(self.configuration.header, in: .response)
        var frame = ByteBuffer()
        FrameEncoder(direction: .response, format: format, customFields: fields).encode(
            Frame(type: type, serial: push.serial, payload: body),
            into: &frame
        )
        let bytes = frame
        // Submitted under the lock: once it stops, the event loops may be gone.
        let counts = self.state.withLockedValue { state -> [EventLoopFuture<Int>] in
            guard case .running(let running) = state else { return [] }
            return running.loops.map { $0.push(bytes) }
        }
        var total = 0
        for count in counts { total += (try? await count.get()) ?? 0 }
        return total
    }

    // MARK: Listening

    private func listen(on group: any EventLoopGroup, loops: [ServerLoop]) async throws -> any Channel {
        let configuration = self.configuration
        let router = self.router
        let limits = ServerSession.Limits(
            format: configuration.wireFormat,
            customFields: try configuration.wireFormat.customFields(configuration.header, in: .response),
            maximumPayloadLength: configuration.maximumPayloadLength,
            maximumCorruptRun: configuration.maximumCorruptRun,
            maximumInFlight: configuration.maximumInFlightPerConnection,
            maximumPendingWriteBytes: configuration.maximumPendingWriteBytes,
            heartbeat: configuration.heartbeat
        )
        let loopsByID = Dictionary(uniqueKeysWithValues: loops.map { (ObjectIdentifier($0.eventLoop), $0) })
        let (tlsContext, handshakeTimeout) = (self.tlsContext, configuration.tls?.handshakeTimeout ?? .zero)
        let bootstrap = ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.writeBufferWaterMark, value: .init(low: 256 << 10, high: 1 << 20))
            .childChannelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(minimum: 2048, initial: 2048, maximum: 256 << 10)
            )
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let loop = loopsByID[ObjectIdentifier(channel.eventLoop)] else {
                        throw ChannelError.operationUnsupported
                    }
                    let operations = channel.pipeline.syncOperations
                    func session() -> ServerSession { ServerSession(loop: loop, router: router, limits: limits) }
                    guard let context = tlsContext.withLockedValue({ $0 }) else {
                        return try operations.addHandler(session())
                    }
                    let timeout = max(.milliseconds(1), TimeAmount(handshakeTimeout))
                    try operations.addHandlers([
                        NIOSSLServerHandler(context: context),
                        TLSAcceptance(loop: loop, timeout: timeout, session: session),
                    ])
                }
            }
        if let path = configuration.unixPath { return try await self.listen(with: bootstrap, atUnixPath: path) }
        return
            try await bootstrap
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .bind(host: configuration.host, port: configuration.port)
            .get()
    }

    private func listen(with bootstrap: ServerBootstrap, atUnixPath path: String) async throws -> any Channel {
        do {
            return try await bootstrap.bind(unixDomainSocketPath: path).get()
        } catch let error as IOError where error.errnoCode == EADDRINUSE {
            // Somebody's who still listens, or left behind by one who does not?
            let probe = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            if let channel = try? await probe.connect(unixDomainSocketPath: path).get() {
                try? await channel.close()
                throw error
            }
            return try await bootstrap.bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
        }
    }

    private var wantedAddress: Endpoint {
        self.configuration.unixPath.map { Endpoint(unixPath: $0) }
            ?? Endpoint(host: self.configuration.host, port: self.configuration.port)
    }

    private func checkConfiguration() throws(SocketError) {
        func fail(_ message: String) -> SocketError {
            SocketError(.invalidArgument, message: message, endpoint: self.wantedAddress)
        }
        guard (0...65_535).contains(self.configuration.port) else {
            throw fail("cannot listen on \(self.wantedAddress): a port is a number from 0 to 65535")
        }
        guard self.configuration.maximumInFlightPerConnection > 0 else {
            throw fail("maximumInFlightPerConnection must be above 0")
        }
        let format = self.configuration.wireFormat
        if let type = self.router.types.first(where: { !format.isApplicationType($0) }) {
            let types = format.layout.applicationTypes
            throw fail(
                """
                the router has a handler for type \(type), which belongs to the protocol; in the wire format \(format) \
                applications use \(types.lowerBound) to \(types.upperBound)
                """
            )
        }
        guard self.configuration.heartbeat == nil || format.serverPing != nil else {
            throw fail("a server does not ping in the wire format \(format); leave heartbeat nil")
        }
        do throws(SocketError) {
            _ = try format.customFields(self.configuration.header, in: .response)
        } catch {
            throw fail(error.message)
        }
    }

    private func listenError(_ error: any Error) -> SocketError {
        let place = self.wantedAddress
        switch error {
        case let error as IOError:
            let advice =
                switch error.errnoCode {
                case EADDRINUSE: "address already in use; another server listens there, choose another port"
                case EACCES: "permission denied; ports below 1024 belong to the superuser"
                case EADDRNOTAVAIL: "this machine has no such address"
                default: String(describing: error)
                }
            return SocketError(
                .bindFailed,
                message: "cannot listen on \(place): \(advice)",
                underlying: error,
                endpoint: place
            )
        case is SocketAddressError.UnknownHost:
            return SocketError(
                .hostNotFound,
                message: "cannot listen on \(place): the host has no address",
                underlying: error,
                endpoint: place
            )
        default:
            return SocketError(
                .bindFailed,
                message: "cannot listen on \(place): \(error)",
                underlying: error,
                endpoint: place
            )
        }
    }
}
