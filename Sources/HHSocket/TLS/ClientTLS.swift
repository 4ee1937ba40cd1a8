import NIOCore
package import NIOSSL

/// TLS to a server: how it is verified, and the client's own certificate.
///
/// The server's certificate must lead to an authority that is trusted, be valid now, and name the server. Pins come on
/// top of that and replace none of it.
public struct ClientTLS: Sendable {
    /// The authorities to believe; those of the system by default.
    public var trust = TLSTrust.system
    /// The client's certificate, for servers that request one. Nil by default.
    public var identity: TLSIdentity?
    /// What the server's certificate must name, and what is sent as the server name indication (SNI). By default the
    /// endpoint's host.
    public var serverName: String?
    /// If there are any, the server's key must be one of them. Have a second one ready, of a key that is kept
    /// elsewhere, for the day when the first must be replaced. None by default.
    public var pins: Set<PublicKeyPin> = []
    /// What is offered by application-layer protocol negotiation (ALPN), the favourite first. None by default.
    public var applicationProtocols: [String] = []
    /// The oldest version that is accepted; 1.2 by default.
    public var minimumVersion = TLSMinimumVersion.tls12
    /// Takes any certificate of anybody for the server's: whoever is on the path can read and change everything. For
    /// tests against a server whose certificate is worth nothing. Pins are still checked.
    public var insecurelySkipsVerification = false

    public init() {}

    /// - Throws: ``SocketError`` with code `invalidArgument` that says what cannot be read.
    func makeContext() throws(SocketError) -> NIOSSLContext {
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.minimumTLSVersion = self.minimumVersion.version
        configuration.applicationProtocols = self.applicationProtocols
        configuration.trustRoots = try self.trust.load()
        configuration.certificateVerification = self.insecurelySkipsVerification ? .none : .fullVerification
        if let identity = try self.identity?.load() {
            configuration.certificateChain = identity.chain.map { .certificate($0) }
            configuration.privateKey = .privateKey(identity.key)
        }
        return try NIOSSLContext.make(configuration)
    }
}

/// A version of TLS, by which older ones are refused.
public struct TLSMinimumVersion: Hashable, Sendable {
    package let version: TLSVersion

    /// TLS 1.2, RFC 5246.
    public static let tls12 = TLSMinimumVersion(version: .tlsv12)
    /// TLS 1.3, RFC 8446.
    public static let tls13 = TLSMinimumVersion(version: .tlsv13)
}

extension NIOSSLContext {
    /// - Throws: ``SocketError`` with code `invalidArgument`, such as for a key that is another certificate's.
    package static func make(_ configuration: TLSConfiguration) throws(SocketError) -> NIOSSLContext {
        var configuration = configuration
        // Our last word is sent, the peer's is not waited for: RFC 8446, 6.1 allows that, and our frames have lengths.
        // Who wants to hear the peer out closes one direction first. (Where both ends close at once on a channel that
        // may be half closed, NIOSSL 2.37 would wait for all of this time.)
        configuration.shutdownTimeout = .zero
        do {
            return try NIOSSLContext(configuration: configuration)
        } catch {
            throw SocketError(
                .invalidArgument,
                message: "TLS cannot be set up: \(error); see that the private key is the certificate's",
                underlying: error
            )
        }
    }
}
