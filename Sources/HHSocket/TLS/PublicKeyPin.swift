// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOSSL

/// The SHA-256 of a certificate's public key (the DER of its SubjectPublicKeyInfo, RFC 7469), which stays the same when
/// a certificate is renewed with the same key.
public struct PublicKeyPin: Hashable, Sendable {
    private let digest: [UInt8]

    /// - Parameter base64: The 32 bytes in base64, 44 characters, optionally prefixed with `sha256/`.
    /// - Throws: ``SocketError`` with code `invalidArgument` for anything else.
    public init(base64: String) throws(SocketError) {
        let text = base64.hasPrefix("sha256/") ? String(base64.dropFirst(7)) : base64
        guard let data = Data(base64Encoded: text), data.count == SHA256.byteCount else {
            throw .invalid("\"\(base64)\" is no pin: it takes the base64 of a public key's SHA-256, 44 characters")
        }
        self.digest = Array(data)
    }

    /// Creates the pin of the first certificate in a PEM text.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` if there is none.
    package init(certificatePEM: String) throws(SocketError) {
        let certificate = try? NIOSSLCertificate.fromPEMBytes(Array(certificatePEM.utf8)).first
        guard let certificate, let pin = PublicKeyPin(certificate) else {
            throw .invalid("there is no certificate in this PEM text")
        }
        self = pin
    }

    /// Creates the pin of a certificate; nil if its key cannot be read.
    init?(_ certificate: NIOSSLCertificate) {
        guard let key = try? certificate.extractPublicKey().toSPKIBytes() else { return nil }
        self.digest = SHA256.hash(of: key)
    }

    /// The 32 bytes in base64.
    package var base64: String { Data(self.digest).base64EncodedString() }
}

extension PublicKeyPin: CustomStringConvertible {
    public var description: String { "sha256/\(self.base64)" }
}
