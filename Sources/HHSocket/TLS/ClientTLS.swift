// SPDX-License-Identifier: Apache-2.0
import NIOCore
package import NIOSSL

/// TLS to a server: how the server is verified, and the client's own certificate.
///
/// The server's certificate must chain to a trusted authority, be valid now, and name the server. Pins are checked in
/// addition.
public struct ClientTLS: Sendable {
    /// The trusted authorities; the system's by default.
    public var trust = TLSTrust.system
    /// The client's certificate, for servers that request one. Nil by default.
    public var identity: TLSIdentity?
    /// The name that the server's certificate must have, and that is sent as the server name indication (SNI). Nil by
    /// default, for ``Endpoint/serverName``, or else the endpoint's host.
    public var serverName: String?
    /// The pins, one of which the server's key must match if there are any. Include a second one, of a key that is kept
    /// elsewhere, in case the first must be replaced. None by default.
    public var pins: Set<PublicKeyPin> = []
    /// The protocols offered by application-layer protocol negotiation (ALPN), in order of preference. None by default.
    public var applicationProtocols: [String] = []
    /// The oldest version that is accepted; 1.2 by default.
    public var minimumVersion = TLSMinimumVersion.tls12
    /// Whether any certificate is accepted as the server's: anyone on the path can then read and change everything. For
    /// tests against a server with a worthless certificate. Pins are still checked. False by default.
    public var insecurelySkipsVerification = false

    public init() {}

    /// - Throws: ``SocketError`` with code `invalidArgument` whose message names the file that cannot be read.
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

/// The oldest version of TLS that is accepted.
public struct TLSMinimumVersion: Hashable, Sendable {
    package let version: TLSVersion

    /// TLS 1.2, RFC 5246.
    public static let tls12 = TLSMinimumVersion(version: .tlsv12)
    /// TLS 1.3, RFC 8446.
    public static let tls13 = TLSMinimumVersion(version: .tlsv13)
}

extension NIOSSLContext {
    /// The signatures of the other end that are accepted, the preferred ones first: BoringSSL's own list, and those of
    /// two further kinds of keys, with which it signs by default but which it does not accept. Other libraries do.
    private static let acceptedSignatures: [SignatureAlgorithm] = [
        .ecdsaSecp256R1Sha256, .rsaPssRsaeSha256, .rsaPkcs1Sha256, .ed25519,
        .ecdsaSecp384R1Sha384, .rsaPssRsaeSha384, .rsaPkcs1Sha384,
        .ecdsaSecp521R1Sha512, .rsaPssRsaeSha512, .rsaPkcs1Sha512,
        .rsaPkcs1Sha1,
    ]

    /// - Throws: ``SocketError`` with code `invalidArgument`, such as for the key of another certificate.
    package static func make(_ configuration: TLSConfiguration) throws(SocketError) -> NIOSSLContext {
        var configuration = configuration
        // Our close_notify is sent, the peer's is not awaited: RFC 8446, 6.1 allows that, and our frames have lengths.
        // To receive the rest of the peer's bytes, close one direction first. (If both ends close at once on a channel
        // that may be half closed, NIOSSL 2.37 would wait for all of this time.)
        configuration.shutdownTimeout = .zero
        configuration.verifySignatureAlgorithms = Self.acceptedSignatures
        do {
            return try NIOSSLContext(configuration: configuration)
        } catch {
            throw .invalid(
                "TLS cannot be set up: \(error); check that the private key belongs to the certificate",
                underlying: error
            )
        }
    }
}
