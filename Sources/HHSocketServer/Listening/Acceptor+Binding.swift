// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketSystem
import NIOCore
import NIOPosix

/// A listener that accepts connections.
struct BoundListener: Sendable {
    /// One, or several that share the address.
    var channels: [any Channel]
    var address: Endpoint
    /// The file of a Unix socket when it was bound; nil for other sockets.
    var file: FileIdentity?

    /// Closes the listener. No more connections are accepted once this returns.
    func close() async {
        // Before the socket is closed, since from then on another process may listen at the path.
        if let path = self.address.unixPath, self.file == FileIdentity(path: path) { unlink(path) }
        for channel in self.channels { try? await channel.close() }
    }
}

/// Binding a listener, and the options of its connections.
extension Acceptor {
    /// - Throws: ``/HHSocket/SocketError`` with code `bindFailed` or `hostNotFound`.
    func listen(
        _ listener: ServerListener,
        on group: any EventLoopGroup
    ) async throws(SocketError) -> BoundListener {
        if let descriptor = listener.descriptor {
            return try await self.listen(listener, InheritedSocket(descriptor), on: group)
        }
        do {
            let channels = try await self.bind(listener, on: group)
            let address =
                channels[0].localAddress.flatMap { address in
                    address.port.map { Endpoint(host: address.ipAddress ?? listener.host, port: $0) }
                } ?? listener.endpoint
            return BoundListener(
                channels: channels,
                address: listener.unixPath == nil ? listener.url(of: address) : listener.endpoint,
                file: listener.unixPath.flatMap { FileIdentity(path: $0) }
            )
        } catch {
            throw SocketError.cannotListen(on: listener.endpoint, error)
        }
    }

    private func listen(
        _ listener: ServerListener,
        _ socket: InheritedSocket,
        on group: any EventLoopGroup
    ) async throws(SocketError) -> BoundListener {
        let isTCP = socket.address.unixPath == nil
        let bootstrap = self.bootstrap(on: group, group, backlog: listener.backlog)
        do {
            let channel = try await (isTCP ? self.tcp(bootstrap) : bootstrap).withBoundSocket(socket.descriptor).get()
            // SwiftNIO has listened once more, with a backlog of its own.
            socket.setBacklog(listener.backlog)
            // The file of a Unix domain socket is that of the process that made it.
            return BoundListener(
                channels: [channel],
                address: isTCP ? listener.url(of: socket.address) : socket.address,
                file: nil
            )
        } catch {
            throw SocketError.cannotListen(on: socket.address, error)
        }
    }

    private func bind(_ listener: ServerListener, on group: any EventLoopGroup) async throws -> [any Channel] {
        guard let path = listener.unixPath else { return try await self.bindTCP(listener, on: group) }
        let bootstrap = self.bootstrap(on: group, group, backlog: listener.backlog)
        let address = try SocketAddress(unixPath: path)
        do {
            return [try await bootstrap.bind(to: address).get()]
        } catch let error as IOError where error.errnoCode == EADDRINUSE {
            try await UnixSocketFile.removeIfStale(path, address, inUse: error)
            return [try await bootstrap.bind(to: address).get()]
        }
    }

    private func bindTCP(_ listener: ServerListener, on group: any EventLoopGroup) async throws -> [any Channel] {
        guard listener.listeningSockets > 1, let sharing = Self.sharedPortOption else {
            let bootstrap = self.tcp(self.bootstrap(on: group, group, backlog: listener.backlog))
            return [try await bootstrap.bind(host: listener.host, port: listener.port).get()]
        }
        let eventLoops = Array(group.makeIterator())
        var channels: [any Channel] = []
        do {
            for number in 0..<listener.listeningSockets {
                let eventLoop = eventLoops[number % eventLoops.count]
                let bootstrap = self.tcp(self.bootstrap(on: eventLoop, group, backlog: listener.backlog))
                    .serverChannelOption(.socketOption(sharing), value: 1)
                // The first may have found a name's address, and a free port.
                if let address = channels.first?.localAddress {
                    channels.append(try await bootstrap.bind(to: address).get())
                } else {
                    channels.append(try await bootstrap.bind(host: listener.host, port: listener.port).get())
                }
            }
            return channels
        } catch {
            for channel in channels { try? await channel.close() }
            throw error
        }
    }

    /// Sets the options of TCP connections.
    private func tcp(_ bootstrap: ServerBootstrap) -> ServerBootstrap {
        let tcp = self.probing(bootstrap.childChannelOption(.tcpOption(.tcp_nodelay), value: 1))
        guard let bytes = self.parts.rules.limits.kernelSendBuffer, let option = NIOBSDSocket.Option.unsentBytes else {
            return tcp
        }
        return tcp.childChannelOption(.tcpOption(option), value: min(bytes, Int(CInt.max)))
    }

    /// The option with which several sockets listen on a port, and share its connections. Nil if the system has none,
    /// or does not distribute the connections.
    private static var sharedPortOption: NIOBSDSocket.Option? {
        #if os(Linux)
        NIOBSDSocket.Option(rawValue: SO_REUSEPORT)
        #else
        nil
        #endif
    }

    /// Makes the system probe clients, to detect that a client is gone while its request is in flight and it is
    /// therefore not idle. Probes are as rare as the idle timeout, since each wakes a phone's radio.
    private func probing(_ bootstrap: ServerBootstrap) -> ServerBootstrap {
        guard let idle = self.parts.rules.limits.idleTimeout else { return bootstrap }
        let options = KeepAlive.options(
            after: max(TimeAmount(clamping: idle), .seconds(60)),
            every: .seconds(60),
            count: 3
        )
        return options.reduce(bootstrap.childChannelOption(.socketOption(.so_keepalive), value: 1)) {
            $0.childChannelOption(.tcpOption($1.option), value: $1.value)
        }
    }

    /// Sets the options of peers' connections, whatever they speak: a peer may close its direction alone, and nothing
    /// more is read from it while 1 MiB waits for it.
    static func withOptionsOfPeers(_ bootstrap: ServerBootstrap) -> ServerBootstrap {
        bootstrap
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.writeBufferWaterMark, value: .init(low: 256 << 10, high: 1 << 20))
            .childChannelOption(.maxMessagesPerRead, value: 1)
    }

    /// - Parameters:
    ///   - group: The event loops of the listening socket.
    ///   - childGroup: The event loops of the connections, which they get in turn.
    private func bootstrap(
        on group: any EventLoopGroup,
        _ childGroup: any EventLoopGroup,
        backlog: Int
    ) -> ServerBootstrap {
        let (outage, shortage) = (self.outage, self.shortage)
        return Self.withOptionsOfPeers(ServerBootstrap(group: group, childGroup: childGroup))
            .serverChannelOption(.backlog, value: Int32(clamping: backlog))
            .serverChannelOption(.maxMessagesPerRead, value: UInt(outage.acceptsInTurn(sockets: self.socketCount)))
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptGate(outage, shortage))
                }
            }
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try self.accept(channel) }
            }
    }
}
