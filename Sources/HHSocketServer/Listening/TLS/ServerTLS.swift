// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink

/// TLS for clients: the server's certificates, and how clients are verified.
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

    /// The server's certificate and key, for clients that name no host or one that is not in ``identitiesByHost``.
    public var identity: TLSIdentity
    /// Further certificates and keys, by the host that clients name (server name indication, SNI): a name such as
    /// `chat.example.com`, in upper or lower case, or `*.example.com` for all names with exactly one additional label.
    /// A name has precedence over a wildcard. None by default.
    public var identitiesByHost: [String: TLSIdentity] = [:]
    /// The certificates that clients must show; none by default.
    public var clientCertificates = ClientCertificates.none
    /// Lists of revoked client certificates (RFC 5280). None by default: certificates are not checked for revocation.
    ///
    /// If there is one, a client's certificate is refused if a list has it, if there is no list of its issuer, and if
    /// its issuer's newest list is out of date. ``ServerCounter/clientCertificatesRevoked`` counts that. It is
    /// checked after certificate and chain have been verified, also if a client resumes a session. Authorities between
    /// it and ``clientCertificates`` are not checked.
    public var revocationLists: [TLSRevocationList] = []
    /// The protocols for application-layer protocol negotiation (ALPN), the preferred one first. Each has 1 to 255
    /// characters of ASCII. None by default.
    public var applicationProtocols: [String] = []
    /// Whether a client must offer one of ``applicationProtocols``. One that does not gets the alert
    /// `no_application_protocol` and is closed; it counts in ``ServerCounter/tlsFailures``. False by default: it is
    /// served.
    public var requiresApplicationProtocol = false
    /// The oldest version that is accepted; 1.2 by default.
    public var minimumVersion = TLSMinimumVersion.tls12
    /// The cipher suites of TLS 1.2, the preferred one first. Nil, the default: those of ``TLSCipherSuite``, AES before
    /// ChaCha20, followed by older ones for old clients. Those of TLS 1.3 cannot be configured.
    public var cipherSuites: [TLSCipherSuite]?
    /// The groups for the exchange of keys, the preferred one first. Nil, the default: X25519MLKEM768, X25519,
    /// secp256r1 and secp384r1.
    public var keyExchangeGroups: [TLSKeyExchangeGroup]?
    /// The time limit of the handshake, after which the connection is closed.
    package var handshakeTimeout = Duration.seconds(10)
    /// The interval at which the files of certificates, keys, authorities and revocation lists are checked; if one has
    /// changed, all are read again, like by ``SocketServer/reloadTLS(_:)``. If they cannot be read, that is logged, the
    /// old ones stay in use, and the next change is awaited. One second at least. Nil, the default: never.
    public var fileCheckInterval: Duration?

    public init(identity: TLSIdentity) {
        self.identity = identity
    }
}

/// A cipher suite of TLS 1.2, with forward secrecy and authenticated encryption.
///
/// The suite's signature must be that of the certificate's key: ECDSA for elliptic curves, or RSA. Cases may be added;
/// have a default when you switch over it.
public enum TLSCipherSuite: Hashable, Sendable {
    case ecdheECDSAWithAES128GCM
    case ecdheECDSAWithAES256GCM
    case ecdheECDSAWithChaCha20Poly1305
    case ecdheRSAWithAES128GCM
    case ecdheRSAWithAES256GCM
    case ecdheRSAWithChaCha20Poly1305

    /// Its number in the registry of the IANA.
    var number: UInt16 {
        switch self {
        case .ecdheECDSAWithAES128GCM: 0xC02B
        case .ecdheECDSAWithAES256GCM: 0xC02C
        case .ecdheECDSAWithChaCha20Poly1305: 0xCCA9
        case .ecdheRSAWithAES128GCM: 0xC02F
        case .ecdheRSAWithAES256GCM: 0xC030
        case .ecdheRSAWithChaCha20Poly1305: 0xCCA8
        }
    }
}

/// A group in which client and server agree on a key, in TLS 1.2 and 1.3. Cases may be added; have a default when you
/// switch over it.
public enum TLSKeyExchangeGroup: Hashable, Sendable {
    /// X25519 together with ML-KEM-768, which resists quantum computers; only in TLS 1.3.
    case x25519MLKEM768
    case x25519
    case secp256r1
    case secp384r1
    case secp521r1

    /// Its number in the registry of the IANA.
    var number: UInt16 {
        switch self {
        case .x25519MLKEM768: 0x11EC
        case .x25519: 0x1D
        case .secp256r1: 0x17
        case .secp384r1: 0x18
        case .secp521r1: 0x19
        }
    }
}
