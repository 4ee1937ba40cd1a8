// SPDX-License-Identifier: Apache-2.0
import NIOSSL

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
