// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

@Suite struct HTTPConnectNegotiationTests {
    private let server = Endpoint(host: "db.example", port: 7_000)

    private func negotiation(_ credentials: Proxy.Credentials? = nil) -> HTTPConnectNegotiation {
        HTTPConnectNegotiation(to: self.server, credentials: credentials)
    }

    private func negotiated(_ text: String, _ credentials: Proxy.Credentials? = nil, closes: Bool = false) -> Negotiated
    {
        negotiate(self.negotiation(credentials), [Array(text.utf8)], closes: closes)
    }

    @Test func requestNamesTheServerAndWhoWeAre() {
        #expect(
            negotiate(self.negotiation(), [[UInt8]]()).sent
                == Array("CONNECT db.example:7000 HTTP/1.1\r\nHost: db.example:7000\r\n\r\n".utf8)
        )
        // RFC 7617's example, with a colon in the password.
        let credentials = Proxy.Credentials(user: "Aladdin", password: "open:sesame")
        let negotiation = HTTPConnectNegotiation(to: Endpoint(host: "::1", port: 1), credentials: credentials)
        let request = """
            CONNECT [::1]:1 HTTP/1.1\r
            Host: [::1]:1\r
            Proxy-Authorization: Basic QWxhZGRpbjpvcGVuOnNlc2FtZQ==\r
            \r

            """
        #expect(negotiate(negotiation, [[UInt8]]()).sent == Array(request.utf8))
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11.1\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 299 \r\n\r\n",
        "HTTP/1.1 200 OK\n\n",
        // These fields are ignored in such an answer (RFC 9110, 9.3.6).
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ])
    func everySplitOfAnAnswerConnectsAndLosesNothing(answer: String) {
        let first: [UInt8] = [0, 0x0D, 0x0A, 0x0D, 0x0A, 200]
        for pieces in splits(of: Array(answer.utf8) + first) {
            let result = negotiate(self.negotiation(), pieces)
            #expect(result.end == .connected)
            #expect(result.rest == first)
        }
        for length in 0..<answer.utf8.count {
            #expect(negotiate(self.negotiation(), [answer.utf8.prefix(length)]).end == .waiting)
        }
        #expect(self.negotiated(String(answer.prefix(12)), closes: true).end == .failed(.closed))
    }

    @Test(
        arguments: [
            ("403 Forbidden", .refused(403), "the proxy answered 403 Forbidden"),
            ("301 Moved", .refused(301), "the proxy answered 301 Moved"),
            ("101 Switching Protocols", .refused(101), "the proxy answered 101 Switching Protocols"),
            ("999", .refused(999), "the proxy answered 999"),
            (
                "502 Bad Gateway", .serverUnreachable,
                "the proxy answered 502 Bad Gateway: it could not reach the server"
            ),
            ("503", .serverUnreachable, "the proxy answered 503: it could not reach the server"),
            ("504", .serverUnreachable, "the proxy answered 504: it could not reach the server"),
            // The shown text is one short line.
            ("500 a\u{1B}[2Jb", .refused(500), "the proxy answered 500 a?[2Jb"),
            (
                "500 \(String(repeating: "x", count: 200))", .refused(500),
                "the proxy answered 500 \(String(repeating: "x", count: 80))"
            ),
        ] as [(String, ProxyFailure.Reason, String)]
    )
    func statusIsTheReason(status: String, reason: ProxyFailure.Reason, text: String) {
        let answer = "HTTP/1.1 \(status)\r\nContent-Length: 4\r\n\r\nbody"
        for pieces in splits(of: Array(answer.utf8)) {
            let result = negotiate(self.negotiation(), pieces)
            #expect(result.end == .failed(reason))
            #expect(result.text == text)
        }
        // Cut after the status.
        guard reason != .refused(101) else { return }
        #expect(self.negotiated("HTTP/1.1 \(status)\r\nConte", closes: true).end == .failed(reason))
    }

    @Test func authenticationIsDistinguished() {
        let credentials = Proxy.Credentials(user: "me", password: "secret")
        let basic = "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: basic realm=\"x\"\r\n\r\n"
        let others =
            "HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nProxy-Authenticate:\tDigest realm=\"x\"\r\n\r\n"
        #expect(self.negotiated(basic).end == .failed(.authenticationRequired))
        #expect(self.negotiated(basic).text.contains("set Proxy.credentials"))
        #expect(self.negotiated(basic, credentials).end == .failed(.authenticationFailed))
        #expect(self.negotiated("HTTP/1.1 407\r\n\r\n", credentials).end == .failed(.authenticationFailed))
        #expect(self.negotiated(others, credentials).end == .failed(.authenticationRequired))
        #expect(
            self.negotiated(others, credentials).text
                == "the proxy answered 407 No: it wants authentication by Negotiate or Digest, and only Basic is known here"
        )
        let both = "HTTP/1.1 407 No\r\nProxy-Authenticate: Digest realm=\"x\", Basic realm=\"x\"\r\n\r\n"
        #expect(self.negotiated(both, credentials).end == .failed(.authenticationFailed))
        // The answer of tinyproxy.
        let unauthorized = "HTTP/1.0 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\r\n"
        #expect(self.negotiated(unauthorized).end == .failed(.authenticationRequired))
        #expect(self.negotiated(unauthorized, credentials).end == .failed(.authenticationFailed))
        for text in [basic, others, unauthorized] {
            let result = self.negotiated(text, credentials)
            #expect(!result.text.contains("secret"))
        }
    }

    @Test(arguments: [
        "SSH-2.0-OpenSSH", "HTTP/2 200 OK\r\n", "\u{5}\0", "HTTP/1.1200 OK\r\n", "HTTP/1.1 20 OK\r\n",
        "HTTP/1.1 2000 OK\r\n", "HTTP/1.1 -20 OK\r\n", "HTTP/1.1 099 OK\r\n", "HTTP/1.1 ٢٠٠\r\n", "\r\n",
        "HTTP/1.1\r\n",
    ])
    func otherProtocolsThanHTTPAreRecognised(text: String) {
        for pieces in splits(of: Array(text.utf8)) {
            #expect(negotiate(self.negotiation(), pieces).end == .failed(.notAProxy))
        }
    }

    @Test func answerThatNeverEndsIsGivenUp() {
        let limit = HTTPConnectNegotiation.maximumHeadLength
        let line = [UInt8](repeating: UInt8(ascii: "a"), count: limit)
        let fields = (0..<limit).flatMap { _ in Array("a: b\r\n".utf8) }
        let interim = (0..<limit).flatMap { _ in Array("HTTP/1.1 100 \r\n\r\n".utf8) }
        for endless in [line, fields] {
            let answer = Array("HTTP/1.1 200 OK\r\n".utf8) + endless
            #expect(negotiate(self.negotiation(), [answer]).end == .failed(.other))
            #expect(negotiate(self.negotiation(), [answer.prefix(limit - 1)]).end == .waiting)
            #expect(negotiate(self.negotiation(), answer.prefix(limit).map { [$0] }).end == .failed(.other))
        }
        #expect(negotiate(self.negotiation(), [interim]).end == .failed(.other))
        // An answer of the greatest length.
        let fitting = Array("HTTP/1.1 200 OK\r\n".utf8) + line.prefix(limit - 21) + Array("\r\n\r\n".utf8)
        #expect(fitting.count == limit)
        for rest in [[], [7]] as [[UInt8]] {
            let result = negotiate(self.negotiation(), [fitting + rest])
            #expect(result.end == .connected)
            #expect(result.rest == rest)
        }
    }

    @Test(arguments: 0..<20 as Range<UInt64>) func randomBytesNeverTrap(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let words = [
            "HTTP/1.1 ", "200", "407", " ", "\r\n", "\n", "\r\n\r\n", "Proxy-Authenticate:", "a", ":", "\u{FF}", "\0",
        ]
        for _ in 0..<200 {
            var garbage = Bool.random(using: &random) ? "HTTP/1.1 200\r\n" : "HTTP/1.1 407\r\n"
            for _ in 0..<Int.random(in: 0..<20, using: &random) { garbage += words.randomElement(using: &random) ?? "" }
            if Bool.random(using: &random) {
                garbage = String(garbage.dropFirst(Int.random(in: 0..<20, using: &random)))
            }
            var bytes = Array(garbage.utf8)
            if Bool.random(using: &random) { bytes += random.bytes(20) }
            #expect(negotiate(self.negotiation(), [bytes]) == negotiate(self.negotiation(), bytes.map { [$0] }))
        }
    }
}
