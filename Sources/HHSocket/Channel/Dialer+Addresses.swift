// SPDX-License-Identifier: Apache-2.0
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
    /// If the system's order of address families is requested, the bootstrap looks up the name and races its addresses;
    /// otherwise this is done here.
    func connect(_ id: ConnectionID, _ endpoint: Endpoint, hasTLS: Bool) -> EventLoopFuture<any Channel> {
        if let path = endpoint.unixPath { return self.bootstrap(id, hasTLS).connect(unixDomainSocketPath: path) }
        let families = self.configuration.addressFamilies
        guard families != .any, !endpoint.isAddress else {
            return self.bootstrap(id, hasTLS).connect(host: endpoint.host, port: endpoint.port)
        }
        return self.lookUp(endpoint.host, families).flatMap { addresses in
            AddressRacer(
                addresses,
                on: self.eventLoop,
                isWanted: { self.attempts[id] != nil },
                connect: { self.bootstrap(id, hasTLS).connect(host: $0, port: endpoint.port) }
            ).run()
        }
        .map { channel in
            // Attempts that have lost are still in progress.
            for other in self.attempts[id]?.channels ?? [] where other !== channel { other.close(promise: nil) }
            return channel
        }
    }

    /// Looks up the addresses of a name, in the order in which they are tried; at least one.
    private func lookUp(_ host: String, _ families: AddressFamilies) -> EventLoopFuture<[String]> {
        let found: EventLoopFuture<[String]>
        if let world = self.world {
            found = world.lookUp(host, families)
        } else {
            let promise = self.eventLoop.makePromise(of: [String].self)
            promise.completeWithTask { try await AddressLookup.addresses(of: host, families) }
            found = promise.futureResult
        }
        return found.flatMapThrowing { addresses in
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
