// SPDX-License-Identifier: Apache-2.0
package import NIOSSL

/// A certificate with its chain to an authority, and its private key.
public struct TLSIdentity: Sendable {
    private enum Source: Sendable {
        case files(certificates: String, key: String)
        case pem(certificates: String, key: String)
    }

    private let source: Source

    /// Creates an identity from PEM files, which are read whenever a TLS context is made, so that a reload reads them
    /// again.
    ///
    /// - Parameters:
    ///   - certificateFile: The certificate, followed by its chain to the authority.
    ///   - keyFile: The private key, which is not encrypted.
    public init(certificateFile: String, keyFile: String) {
        self.source = .files(certificates: certificateFile, key: keyFile)
    }

    /// Creates an identity from PEM texts.
    public init(certificatePEM: String, keyPEM: String) {
        self.source = .pem(certificates: certificatePEM, key: keyPEM)
    }

    /// The files that ``load()`` reads.
    package var files: [String] {
        switch self.source {
        case .files(let certificates, let key): [certificates, key]
        case .pem: []
        }
    }

    /// - Throws: ``SocketError`` with code `invalidArgument` whose message names the file that cannot be read.
    package func load() throws(SocketError) -> (chain: [NIOSSLCertificate], key: NIOSSLPrivateKey) {
        switch self.source {
        case .files(let certificates, let key):
            return (
                try PEM.certificates(inFile: certificates),
                try PEM.privateKey(in: "the file \(key)") {
                    try NIOSSLPrivateKey(file: key, format: .pem, passphraseCallback: $0)
                }
            )
        case .pem(let certificates, let key):
            return (
                try PEM.certificates(inText: certificates),
                try PEM.privateKey(in: "the given text") {
                    try NIOSSLPrivateKey(bytes: Array(key.utf8), format: .pem, passphraseCallback: $0)
                }
            )
        }
    }
}

extension TLSIdentity: CustomStringConvertible, CustomReflectable {
    /// The source of the identity. A private key is never shown.
    public var description: String {
        switch self.source {
        case .files(let certificates, let key): "certificate in \(certificates), key in \(key)"
        case .pem: "certificate and key given as text"
        }
    }

    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// The authorities to which a peer's certificate must chain.
public enum TLSTrust: Sendable {
    /// The authorities that the system trusts.
    case system
    /// Only the authorities in a PEM file, given by its path.
    case file(String)
    /// Only the authorities in a PEM text.
    case pem(String)

    /// The files that ``load()`` reads.
    package var files: [String] {
        if case .file(let path) = self { [path] } else { [] }
    }

    /// - Throws: ``SocketError`` with code `invalidArgument`.
    package func load() throws(SocketError) -> NIOSSLTrustRoots {
        switch self {
        case .system: .default
        case .file(let path): .certificates(try PEM.certificates(inFile: path))
        case .pem(let text): .certificates(try PEM.certificates(inText: text))
        }
    }
}

/// Reads PEM, with errors that describe the fault.
private enum PEM {
    static func certificates(inFile path: String) throws(SocketError) -> [NIOSSLCertificate] {
        try self.some(in: "the file \(path)") { try NIOSSLCertificate.fromPEMFile(path) }
    }

    static func certificates(inText text: String) throws(SocketError) -> [NIOSSLCertificate] {
        try self.some(in: "the given text") { try NIOSSLCertificate.fromPEMBytes(Array(text.utf8)) }
    }

    private static func some(
        in source: String,
        _ body: () throws -> [NIOSSLCertificate]
    ) throws(SocketError) -> [NIOSSLCertificate] {
        let certificates = try self.read("certificates", from: source, body)
        guard !certificates.isEmpty else { throw .invalid("there is no certificate in \(source); it takes PEM") }
        return certificates
    }

    /// - Parameter body: Reads the key, with a callback for its passphrase, which is never known.
    static func privateKey(
        in source: String,
        _ body: (@escaping NIOSSLPassphraseCallback<[UInt8]>) throws -> NIOSSLPrivateKey
    ) throws(SocketError) -> NIOSSLPrivateKey {
        var isEncrypted = false
        do {
            return try body { _ in isEncrypted = true }
        } catch {
            guard isEncrypted else { throw Self.failure("a private key", from: source, because: error) }
            throw .invalid(
                """
                the private key in \(source) is encrypted, which is not supported; openssl pkey -in FILE -out FILE writes \
                it without a passphrase
                """,
                underlying: error
            )
        }
    }

    private static func read<Value>(
        _ what: String,
        from source: String,
        _ body: () throws -> Value
    ) throws(SocketError) -> Value {
        do {
            return try body()
        } catch {
            throw Self.failure(what, from: source, because: error)
        }
    }

    private static func failure(_ what: String, from source: String, because error: any Error) -> SocketError {
        .invalid("cannot read \(what) from \(source): \(error); check that it exists and is in PEM", underlying: error)
    }
}
