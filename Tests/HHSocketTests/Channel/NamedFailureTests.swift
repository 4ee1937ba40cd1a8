// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL
import Testing

@testable import HHSocket

/// The failures of proxies and of TLS, which are one type, as the errors of a connection tell them.
@Suite struct NamedFailureTests {
    private static let wrongHost =
        "the server's certificate is for another name; connect by the name that it has, or set ClientTLS.serverName"
    private static let eof = NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake]))
    private static let rows: [FailureRow] = [
        .proxy("403 No\r\n\r\n", "refused(403)", "the proxy answered 403 No"),
        .proxy("502\r\n\r\n", "serverUnreachable", "the proxy answered 502: it could not reach the server"),
        .proxy(
            "407\r\n\r\n",
            "authenticationRequired",
            "the proxy answered 407: it asks for a user and a password; set Proxy.credentials"
        ),
        .proxy("SSH\r\n\r\n", "notAProxy", "the peer does not speak HTTP; check the proxy's kind and port"),
        .proxy("1", "closed", "the proxy closed the connection before it had answered"),
        .proxy(String(repeating: "1", count: 20_000), "other", "the proxy's answer is longer than 16384 bytes"),
        FailureRow(NIOSSLExtraError.failedToValidateHostname, .tlsFailed, "wrongHost", wrongHost),
        FailureRow(NIOSSLError.unableToValidateCertificate, .tlsFailed, "wrongHost", wrongHost),
        FailureRow(
            eof,
            .tlsFailed,
            "closed",
            "the other end closed the connection during the TLS handshake; check that it speaks TLS on this port"
        ),
        FailureRow(NIOSSLError.uncleanShutdown, .tlsFailed, "other", "uncleanShutdown"),
        FailureRow(TLSFailure(.pinMismatch, "another key"), .tlsFailed, "pinMismatch", "another key"),
    ]

    @Test func everyFailureIsToldWithItsReasonAndBothHosts() {
        let differences = Self.rows.compactMap(\.difference)
        #expect(differences.isEmpty)
    }

    @Test(arguments: FailureFlaw.allCases)
    func wrongRowsAreFound(_ flaw: FailureFlaw) {
        for var row in Self.rows {
            switch flaw {
            case .code: row.code = row.code == .tlsFailed ? .proxyFailed : .tlsFailed
            case .reason: row.reason = row.reason == "other" ? "closed" : "other"
            case .text: row.text.removeLast()
            case .host: row.host = "proxy.example:7000"
            }
            #expect(row.difference != nil, "a wrong \(flaw) of \(row.text)")
        }
    }
}

/// What is wrong in a row.
enum FailureFlaw: CaseIterable {
    case code, reason, text, host
}

/// An error of an attempt to connect, and the code, the reason and the words that it must have.
private struct FailureRow {
    private static let server = Endpoint(host: "db.example", port: 7_000)

    var error: any Error
    var code: SocketError.Code
    var reason: String
    var text: String
    var host = "db.example:7000"

    init(_ error: any Error, _ code: SocketError.Code, _ reason: String, _ text: String) {
        (self.error, self.code, self.reason, self.text) = (error, code, reason, text)
    }

    /// - Parameter answer: The proxy's answer after HTTP's version, after which it closes the connection.
    static func proxy(_ answer: String, _ reason: String, _ text: String) -> FailureRow {
        var (negotiation, bytes) = (HTTPConnectNegotiation(to: self.server, credentials: nil), ByteBuffer())
        bytes.writeString("HTTP/1.1 \(answer)")
        do throws(ProxyFailure) {
            _ = try negotiation.receive(&bytes)
            return FailureRow(negotiation.closed(), .proxyFailed, reason, text)
        } catch {
            return FailureRow(error, .proxyFailed, reason, text)
        }
    }

    /// A failure of either kind, since both are of this type.
    private static func words<Name>(_ failure: NamedFailure<Name>) -> String { "\(failure.reason): \(failure)" }

    var difference: String? {
        let (server, proxy) = (Self.server, Proxy.http(host: "proxy.example", port: 3_128))
        let error = SocketError.connecting(to: server, through: proxy, .proxy, failedWith: self.error, timeout: .zero)
        let message = "cannot connect to \(self.host) through http://proxy.example:3128: \(self.text)"
        let words =
            (error.underlying as? ProxyFailure).map { Self.words($0) }
            ?? (error.underlying as? TLSFailure).map { Self.words($0) }
        let isRight = error.code == self.code && error.message == message && error.endpoint == server
        return isRight && words == "\(self.reason): \(self.text)" ? nil : "\(error), \(words ?? "no failure")"
    }
}
