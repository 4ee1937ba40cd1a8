// SPDX-License-Identifier: Apache-2.0
import NIOCore
package import NIOSSL

/// The oldest version of TLS that is accepted. Cases may be added; have a default when you switch over it.
public enum TLSMinimumVersion: Hashable, Sendable {
    /// TLS 1.2, RFC 5246.
    case tls12
    /// TLS 1.3, RFC 8446.
    case tls13

    package var version: TLSVersion {
        switch self {
        case .tls12: .tlsv12
        case .tls13: .tlsv13
        }
    }
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
