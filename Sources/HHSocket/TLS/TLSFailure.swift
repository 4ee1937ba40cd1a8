// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOSSL

/// A failure of TLS, as specific as can be determined: the ``SocketError/underlying`` of errors with the code
/// `tlsFailed`.
public typealias TLSFailure = NamedFailure<TLSFailureReason>

/// The reason for a failure of TLS. Cases may be added; have a default when you switch over it.
public enum TLSFailureReason: Hashable, Sendable {
    /// The server's certificate is for another name.
    case wrongHost
    /// The server's certificate does not chain to a trusted authority, or is otherwise unacceptable.
    case notTrusted
    /// The server's certificate has expired, or is not valid yet.
    case outOfDate
    /// The server's certificate is valid, but its key matches none of the pins.
    case pinMismatch
    /// The server requires a client certificate, and received none.
    case clientCertificateRequired
    /// The server does not accept our certificate.
    case clientCertificateRejected
    /// The two have no version, cipher, application protocol or kind of certificate in common.
    case noCommonProtocol
    /// The peer does not speak TLS.
    case notTLS
    /// The connection ended during the handshake.
    case closed
    /// Another failure; see ``NamedFailure/description``.
    case other
}

extension TLSFailure {
    /// Creates the failure for an error of NIOSSL; nil if it is not a failure of TLS.
    ///
    /// - Parameter certificate: The peer's certificate, if it is known: BoringSSL does not report why it rejected one.
    init?(_ error: any Error, certificate: NIOSSLCertificate? = nil) {
        switch error {
        case let failure as TLSFailure:
            self = failure
        case let error as NIOSSLExtraError where error == .failedToValidateHostname:
            self = .wrongHost(underlying: error)
        case NIOSSLError.unableToValidateCertificate:
            self = .wrongHost(underlying: error)
        case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
            self.init(
                .closed,
                "the other end closed the connection during the TLS handshake; check that it speaks TLS on this port",
                underlying: error
            )
        case NIOSSLError.handshakeFailed(.sslError(let stack)), BoringSSLError.sslError(let stack):
            self.init(stack, certificate, underlying: error)
        case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError:
            self.init(.other, "\(error)", underlying: error)
        default:
            return nil
        }
    }

    private init(_ stack: NIOBoringSSLErrorStack, _ certificate: NIOSSLCertificate?, underlying: any Error) {
        // BoringSSL reports only names: "error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED".
        let text = stack.map(\.description).joined(separator: "; ")
        func has(_ names: String...) -> Bool { names.contains { text.contains($0) } }
        if has("CERTIFICATE_VERIFY_FAILED") {
            self = Self.rejection(of: certificate)
        } else if has("ALERT_CERTIFICATE_REQUIRED") {
            self.init(.clientCertificateRequired, "the server requires a client certificate; set ClientTLS.identity")
        } else if has(
            "ALERT_BAD_CERTIFICATE",
            "ALERT_UNSUPPORTED_CERTIFICATE",
            "ALERT_CERTIFICATE_REVOKED",
            "ALERT_CERTIFICATE_EXPIRED",
            "ALERT_CERTIFICATE_UNKNOWN",
            "ALERT_UNKNOWN_CA",
            "ALERT_ACCESS_DENIED",
            "ALERT_DECRYPT_ERROR"
        ) {
            self.init(
                .clientCertificateRejected,
                "the other end does not accept our certificate: \(Self.alert(in: text) ?? text)"
            )
        } else if has(
            "UNSUPPORTED_PROTOCOL",
            "ALERT_PROTOCOL_VERSION",
            "NO_SHARED_CIPHER",
            "ALERT_HANDSHAKE_FAILURE",
            "ALERT_INSUFFICIENT_SECURITY",
            "NO_APPLICATION_PROTOCOL",
            "NO_COMMON_SIGNATURE_ALGORITHMS"
        ) {
            self.init(
                .noCommonProtocol,
                "the two ends have no version, cipher, protocol or kind of certificate in common: \(text)"
            )
        } else if has(
            "WRONG_VERSION_NUMBER",
            "HTTP_REQUEST",
            "HTTPS_PROXY_REQUEST",
            "INVALID_ALERT",
            "UNEXPECTED_RECORD"
        ) {
            self.init(.notTLS, "the peer does not speak TLS: \(text)")
        } else {
            self.init(.other, text)
        }
        self.underlying = underlying
    }

    static func wrongHost(underlying error: (any Error)? = nil) -> TLSFailure {
        TLSFailure(
            .wrongHost,
            "the server's certificate is for another name; connect by the name that it has, or set "
                + "ClientTLS.serverName",
            underlying: error
        )
    }

    /// Determines the reason why our side rejected the peer's certificate.
    private static func rejection(of certificate: NIOSSLCertificate?) -> TLSFailure {
        let now = Int(Date().timeIntervalSince1970)
        if let end = certificate.map({ Int($0.notValidAfter) }), end < now {
            return TLSFailure(.outOfDate, "the other end's certificate expired on \(self.day(end))")
        }
        if let begin = certificate.map({ Int($0.notValidBefore) }), begin > now {
            return TLSFailure(
                .outOfDate,
                "the other end's certificate is not valid before \(self.day(begin)); check that the clock is right"
            )
        }
        return TLSFailure(
            .notTrusted,
            "the other end's certificate is not trusted: "
                + "none of the authorities known here (ClientTLS.trust) has issued it"
        )
    }

    private static func day(_ time: Int) -> String {
        String(Date(timeIntervalSince1970: TimeInterval(time)).inUTC.prefix(10))
    }

    /// The alert's name in lower case, such as "unknown ca".
    private static func alert(in text: String) -> String? {
        guard let start = text.range(of: "ALERT_") else { return nil }
        let name = text[start.upperBound...].prefix { $0.isLetter || $0 == "_" }
        return name.lowercased().replacingOccurrences(of: "_", with: " ")
    }
}
