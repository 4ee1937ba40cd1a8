import HHSocket
import NIOSSL

/// TLS for clients: the server's certificate, and how clients are verified.
public struct ServerTLS: Sendable {
    /// The certificates that clients must show.
    public enum ClientCertificates: Sendable {
        /// No certificate. The default.
        case none
        /// One may be shown, and must then lead to one of these authorities.
        case wanted(TLSTrust)
        /// One must be shown, and must lead to one of these authorities.
        case required(TLSTrust)
    }

    /// The server's certificate and key.
    public var identity: TLSIdentity
    /// The certificates that clients must show; none by default.
    public var clientCertificates = ClientCertificates.none
    /// The protocols for application-layer protocol negotiation (ALPN), the preferred one first. None by default.
    public var applicationProtocols: [String] = []
    /// The oldest version that is accepted; 1.2 by default.
    public var minimumVersion = TLSMinimumVersion.tls12
    /// The time that a client may take for the handshake; then its connection is closed. 10 s by default.
    public var handshakeTimeout = Duration.seconds(10)

    public init(identity: TLSIdentity) {
        self.identity = identity
    }

    /// - Throws: ``HHSocket/SocketError`` with code `invalidArgument` that says what cannot be read.
    func makeContext() throws(SocketError) -> NIOSSLContext {
        let identity = try self.identity.load()
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: identity.chain.map { .certificate($0) },
            privateKey: .privateKey(identity.key)
        )
        configuration.minimumTLSVersion = self.minimumVersion.version
        configuration.applicationProtocols = self.applicationProtocols
        switch self.clientCertificates {
        case .none:
            configuration.certificateVerification = .none
        case .wanted(let trust):
            configuration.trustRoots = try trust.load()
            configuration.certificateVerification = .optionalVerification
        case .required(let trust):
            configuration.trustRoots = try trust.load()
            configuration.certificateVerification = .noHostnameVerification
        }
        return try NIOSSLContext.make(configuration)
    }
}
