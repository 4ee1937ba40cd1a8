// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOCore
import NIOPosix

#if canImport(NIOTransportServices)
import NIOTransportServices
import Network
#endif

/// Finding the addresses of a host, and connecting to them.
extension Dialer {
    /// Connects to a server, or to a proxy.
    ///
    /// The name is looked up and its addresses are raced here, because NIO's bootstrap looks up one name after the
    /// other. Network.framework, which does not, does it itself if no order of address families is requested.
    func connect(_ id: ConnectionID, _ endpoint: Endpoint, hasTLS: Bool) -> EventLoopFuture<any Channel> {
        if let path = endpoint.unixPath {
            do throws(UnixPathTooLong) {
                return self.bootstrap(id, hasTLS).connect(to: try SocketAddress(unixPath: path))
            } catch {
                return self.eventLoop.makeFailedFuture(error)
            }
        }
        let families = self.configuration.addressFamilies
        guard !endpoint.isAddress, families != .any || !self.resolvesNamesItself else {
            return self.connect(id, to: endpoint.host, endpoint.port, hasTLS: hasTLS)
        }
        return self.lookUp(for: id, endpoint.host, families).flatMap { addresses in
            AddressRacer(
                addresses,
                on: self.eventLoop,
                time: self.configuration.time,
                isWanted: { self.attempts[id] != nil },
                connect: { self.connect(id, to: $0, endpoint.port, hasTLS: hasTLS) }
            ).run()
        }
        .map { channel in
            // Attempts that have lost are still in progress.
            for other in self.attempts[id]?.channels ?? [] where other !== channel { other.close(promise: nil) }
            return channel
        }
    }

    private func connect(
        _ id: ConnectionID,
        to host: String,
        _ port: Int,
        hasTLS: Bool
    ) -> EventLoopFuture<any Channel> {
        self.bootstrap(id, hasTLS).connect(host: host, port: port).flatMapThrowing { channel in
            guard !channel.isConnectedToItself else {
                // A reset: otherwise the port, which may be that of a server about to start, stays in use for a minute.
                _ = (channel as? any SocketOptionProvider)?.setSoLinger(linger(l_onoff: 1, l_linger: 0))
                channel.close(promise: nil)
                throw ConnectedToItself()
            }
            return channel
        }
    }

    /// Whether connections find the addresses of a name themselves, and in parallel.
    private var resolvesNamesItself: Bool {
        #if canImport(NIOTransportServices)
        self.world == nil && NIOTSConnectionBootstrap(validatingGroup: self.eventLoop) != nil
        #else
        false
        #endif
    }

    /// Looks up the addresses of a name, in the order in which they are tried; at least one.
    private func lookUp(
        for id: ConnectionID,
        _ host: String,
        _ families: AddressFamilies
    ) -> EventLoopFuture<[String]> {
        let addresses = AbandonableResult<[String]>(on: self.eventLoop)
        self.begin(.resolving(host), of: id, awaiting: addresses)
        if let world = self.world {
            world.lookUp(host, families).whenComplete { addresses.complete($0) }
        } else {
            AddressLookup.system.addresses(of: host, families) { addresses.complete($0) }
        }
        return addresses.futureResult.always { _ in
            self.attempts[id]?.stage = .connecting
        }
        .flatMapThrowing { addresses in
            let addresses = families.order(addresses)
            guard !addresses.isEmpty else { throw AddressLookupError(host, families, reason: "no address found") }
            return addresses
        }
    }

    private func bootstrap(_ id: ConnectionID, _ hasTLS: Bool) -> any NIOClientTCPBootstrapProtocol {
        self.bootstrap(hasTLS)
            // The dialer's timeout covers the whole attempt, and its error names the stage that was reached.
            .connectTimeout(.hours(24))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    guard self.attempts[id] != nil else { throw CancellationError() }
                    self.attempts[id]?.channels.append(channel)
                }
            }
    }

    /// The greatest number of bytes that are read at once.
    private static let longestRead = 256 << 10
    /// The largest read on a connection with TLS, which decrypts the received bytes into one buffer. The buffer is
    /// reused only if none of it is retained: after larger reads it would contain whole frames, whose payloads retain
    /// it. With smaller reads the payloads of long frames are assembled in separate buffers.
    private static let longestSealedRead = 64 << 10

    private func bootstrap(_ hasTLS: Bool) -> any NIOClientTCPBootstrapProtocol {
        if let world = self.world { return world.makeBootstrap() }
        #if canImport(NIOTransportServices)
        // Network.framework's event loops use their own kind of connections.
        if let bootstrap = NIOTSConnectionBootstrap(validatingGroup: self.eventLoop) {
            let options = NWProtocolTCP.Options()
            options.noDelay = true
            return bootstrap.tcpOptions(options)
        }
        #endif
        return ClientBootstrap(group: self.eventLoop)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.writeBufferWaterMark, value: LinkChannel.waterMarks)
            .channelOption(.maxMessagesPerRead, value: UInt(hasTLS ? 1 : 4))
            .channelOption(
                .recvAllocator,
                value: AdaptiveRecvByteBufferAllocator(
                    minimum: 2 << 10,
                    initial: 16 << 10,
                    maximum: hasTLS ? Self.longestSealedRead : Self.longestRead
                )
            )
    }
}

extension Channel {
    /// Whether the system has connected the socket to itself: it may choose the server's port, if nothing listens
    /// there, as the socket's own one, and the two ends of TCP's handshake then meet.
    fileprivate var isConnectedToItself: Bool {
        guard let address = self.localAddress, address.port != nil else { return false }
        return address == self.remoteAddress
    }
}

/// The failure of a socket that the system has connected to itself.
struct ConnectedToItself: Error {}
