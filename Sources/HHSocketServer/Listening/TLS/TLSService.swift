// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore
import NIOSSL

/// The TLS of new connections: ``ServerTLS`` once its files are read.
final class TLSService: Sendable {
    /// The settings of a context, without the certificates. Sessions may be resumed where it is the same.
    private struct Settings: Equatable {
        var minimumVersion: TLSMinimumVersion
        var applicationProtocols: [String]
        var cipherSuites: [TLSCipherSuite]?
        var keyExchangeGroups: [TLSKeyExchangeGroup]?
        var verification: CertificateVerification
        var trust: NIOSSLTrustRoots?
    }

    /// The size of the reads of a TLS connection, in bytes: a record is hardly larger, and larger reads would enlarge
    /// the buffer of decrypted bytes.
    static let readSize = 16 << 10
    /// The size of the reads of one that carries files.
    static let contentReadSize = 64 << 10
    /// The size of the first, which brings a client's hello.
    static let firstReadSize = 2 << 10

    /// The configuration that it was made with.
    let tls: ServerTLS
    let handshakeTimeout: TimeAmount
    let protocols: Set<[UInt8]>
    let requiresProtocol: Bool
    let revocations: CertificateRevocations?
    private let settings: Settings
    private let context: NIOSSLContext
    /// The certificates that ``context`` shows, which a successor may replace.
    private let identities: NIOLockedValueBox<ServerIdentities>
    private let newIdentities: ServerIdentities

    /// Reads the files.
    ///
    /// - Parameter predecessor: The one that is in use. If only certificates have changed, its context is kept, and
    ///   with it the key of session tickets.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` that names the file that cannot be read or the
    ///   invalid setting.
    init(_ tls: ServerTLS, after predecessor: TLSService? = nil) throws(SocketError) {
        self.tls = tls
        self.handshakeTimeout = max(.milliseconds(1), TimeAmount(clamping: tls.handshakeTimeout))
        self.protocols = Set(tls.applicationProtocols.map { Array($0.utf8) })
        self.requiresProtocol = tls.requiresApplicationProtocol
        let identities = try ServerIdentities(tls)
        self.newIdentities = identities
        self.settings = try Self.settings(tls)
        self.revocations = try CertificateRevocations(tls.revocationLists)
        if self.revocations != nil, self.settings.verification == .none {
            throw .invalid(
                """
                revocation lists have no effect where clients present no certificate (ServerTLS.clientCertificates)
                """
            )
        }
        // Each is tried, since an existing context reports only at a handshake that a key belongs to another
        // certificate.
        var probe = self.settings
        (probe.trust, probe.verification) = (nil, .none)
        for identity in identities.all { _ = try Self.context(probe, identity: identity) }
        if let predecessor, predecessor.settings == self.settings {
            (self.context, self.identities) = (predecessor.context, predecessor.identities)
        } else {
            let box = NIOLockedValueBox(identities)
            self.identities = box
            self.context = try Self.context(self.settings, identity: identities.standard) { name in
                box.withLockedValue { $0 }.identity(for: name)
            }
        }
    }

    /// Begins to show the certificates that were read.
    func activate() { self.identities.withLockedValue { $0 = self.newIdentities } }

    private static func settings(_ tls: ServerTLS) throws(SocketError) -> Settings {
        for name in tls.applicationProtocols {
            guard (1...255).contains(name.utf8.count), name.utf8.allSatisfy({ $0 < 128 }) else {
                throw Self.noProtocol(name)
            }
        }
        guard !tls.requiresApplicationProtocol || !tls.applicationProtocols.isEmpty else {
            throw .invalid("an application protocol is required, but there is none (ServerTLS.applicationProtocols)")
        }
        guard tls.cipherSuites?.isEmpty != true, tls.keyExchangeGroups?.isEmpty != true else {
            throw .invalid("without a cipher suite or a key exchange group there is no TLS; nil is the default")
        }
        var settings = Settings(
            minimumVersion: tls.minimumVersion,
            applicationProtocols: tls.applicationProtocols,
            cipherSuites: tls.cipherSuites,
            keyExchangeGroups: tls.keyExchangeGroups,
            verification: .none
        )
        switch tls.clientCertificates {
        case .none: break
        case .wanted(let trust):
            (settings.trust, settings.verification) = (try trust.load(), .optionalVerification)
        case .required(let trust):
            (settings.trust, settings.verification) = (try trust.load(), .noHostnameVerification)
        }
        return settings
    }

    private static func noProtocol(_ name: String) -> SocketError {
        .invalid("\"\(name)\" is not an application protocol, which has 1 to 255 characters of ASCII")
    }

    /// - Parameter identities: The certificate for a client that names a host; nil: always `identity`.
    private static func context(
        _ settings: Settings,
        identity: ServerIdentities.Identity,
        identities: (@Sendable (String?) -> ServerIdentities.Identity)? = nil
    ) throws(SocketError) -> NIOSSLContext {
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: identity.chain.map { .certificate($0) },
            privateKey: .privateKey(identity.key)
        )
        configuration.minimumTLSVersion = settings.minimumVersion.version
        configuration.applicationProtocols = settings.applicationProtocols
        if let suites = settings.cipherSuites {
            configuration.cipherSuiteValues = suites.map { NIOTLSCipher(rawValue: $0.number) }
        }
        if let groups = settings.keyExchangeGroups {
            var unique: [NIOTLSCurve] = []
            for group in groups.map({ NIOTLSCurve(rawValue: $0.number) }) where !unique.contains(group) {
                unique.append(group)
            }
            configuration.curves = unique
        }
        configuration.trustRoots = settings.trust
        configuration.certificateVerification = settings.verification
        if let identities {
            let own = identity.chain
            configuration.sslContextCallback = { values, promise in
                let identity = identities(values.serverHostname)
                // A certificate for one connection costs it some kilobytes, the context's own does not.
                guard identity.chain != own else { return promise.succeed(.noChanges) }
                var change = NIOSSLContextConfigurationOverride()
                change.certificateChain = identity.chain.map { .certificate($0) }
                change.privateKey = .privateKey(identity.key)
                promise.succeed(change)
            }
        }
        return try NIOSSLContext.make(configuration)
    }

    /// The handlers of a connection, from the network on.
    ///
    /// - Parameters:
    ///   - number: The number of the handshake among those of the event loop.
    ///   - hold: The charge for the handshake.
    ///   - log: As for ``TLSAcceptance``, and so is `install`.
    func handlers(
        _ peer: ServerPeer,
        number: UInt64,
        hold: consuming Hold,
        address: SocketAddress?,
        log: @escaping (String) -> Void,
        _ install: @escaping (ChannelHandlerContext, TLSAcceptance) throws -> ServerPeer.Begin?
    ) -> [any ChannelHandler] {
        var handlers: [any ChannelHandler] = []
        if self.requiresProtocol { handlers.append(ApplicationProtocolGate(self.protocols, account: peer.account)) }
        handlers.append(NIOSSLServerHandler(context: self.context))
        handlers.append(TLSPieces())
        handlers.append(
            TLSAcceptance(
                peer,
                service: self,
                number: number,
                hold: hold,
                address: address,
                log: log,
                install: install
            )
        )
        return handlers
    }
}

/// Buffers for the reads of a TLS connection. None is kept while nothing arrives, since the bytes of a read are
/// decrypted at once into another buffer.
///
/// With ``readsAtATime`` NIO keeps the first buffer that it gets. It does not reuse it if the next may be larger, so
/// each read has a new one, which is freed when the read is over. A connection that carries files uses one buffer
/// again and again, which is charged to it: the system would have to clear the pages of new ones for each read.
struct TLSReadAllocator: RecvByteBufferAllocator {
    /// The number of reads after which received bytes are passed on. TLS decrypts them all into one buffer.
    static let readsAtATime: UInt = 1

    private let carriesContent: Bool
    private var hasRead = false

    /// - Parameter carriesContent: Whether the connection carries files.
    init(carriesContent: Bool = false) {
        self.carriesContent = carriesContent
    }

    func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        if self.carriesContent { return allocator.buffer(capacity: TLSService.contentReadSize) }
        return allocator.buffer(capacity: self.hasRead ? TLSService.readSize : TLSService.firstReadSize)
    }

    /// The size of the buffer that is used again; nil: there is none.
    func nextBufferSize() -> Int? { self.carriesContent ? TLSService.contentReadSize : nil }

    mutating func record(actualReadBytes: Int) -> Bool {
        self.hasRead = true
        return true
    }
}
