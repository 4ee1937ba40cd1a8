// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The bytes are from RFC 1928 and RFC 1929, written by hand.
@Suite struct SOCKS5NegotiationTests {
    struct Golden: CustomTestStringConvertible {
        var testDescription: String
        var server = Endpoint(host: "db.example", port: 7_000)
        var credentials: Proxy.Credentials?
        var received: [UInt8]
        var expected: Negotiated
    }

    private static let credentials = Proxy.Credentials(user: "me", password: "pä")
    private static let greeting: [UInt8] = [5, 1, 0]
    private static let greetingWithPassword: [UInt8] = [5, 2, 0, 2]
    private static let login: [UInt8] = [1, 2, 0x6D, 0x65, 3, 0x70, 0xC3, 0xA4]
    private static let request: [UInt8] = [5, 1, 0, 3, 10] + Array("db.example".utf8) + [0x1B, 0x58]
    private static let reply: [UInt8] = [5, 0, 0, 1, 10, 0, 0, 1, 0x1F, 0x90]

    static let goldens: [Golden] = [
        Golden(
            testDescription: "a name, no authentication",
            received: [5, 0] + Self.reply,
            expected: Negotiated(sent: Self.greeting + Self.request, end: .connected)
        ),
        Golden(
            testDescription: "a server that speaks first",
            received: [5, 0] + Self.reply + [5, 0, 1, 2, 3],
            expected: Negotiated(sent: Self.greeting + Self.request, end: .connected, rest: [5, 0, 1, 2, 3])
        ),
        Golden(
            testDescription: "an IPv4 address, answered with an IPv6 address",
            server: Endpoint(host: "10.1.2.3", port: 65_535),
            received: [5, 0] + [5, 0, 0, 4] + [UInt8](repeating: 5, count: 16) + [0, 0] + [9],
            expected: Negotiated(
                sent: Self.greeting + [5, 1, 0, 1, 10, 1, 2, 3, 0xFF, 0xFF],
                end: .connected,
                rest: [9]
            )
        ),
        Golden(
            testDescription: "an IPv6 address, answered with an empty name",
            server: Endpoint(host: "2001:db8::1", port: 1),
            received: [5, 0] + [5, 0, 0, 3, 0, 0, 0] + [9],
            expected: Negotiated(
                sent: Self.greeting + [5, 1, 0, 4] + [0x20, 1, 0x0D, 0xB8] + [UInt8](repeating: 0, count: 11) + [
                    1, 0, 1,
                ],
                end: .connected,
                rest: [9]
            )
        ),
        Golden(
            testDescription: "answered with a name of 255 bytes",
            received: [5, 0] + [5, 0, 0, 3, 255] + [UInt8](repeating: 0x61, count: 255) + [0, 80] + [9],
            expected: Negotiated(sent: Self.greeting + Self.request, end: .connected, rest: [9])
        ),
        Golden(
            testDescription: "credentials that are asked for",
            credentials: Self.credentials,
            received: [5, 2, 1, 0] + Self.reply,
            expected: Negotiated(sent: Self.greetingWithPassword + Self.login + Self.request, end: .connected)
        ),
        Golden(
            testDescription: "a verdict with SOCKS's version instead of its own",
            credentials: Self.credentials,
            received: [5, 2, 5, 0] + Self.reply,
            expected: Negotiated(sent: Self.greetingWithPassword + Self.login + Self.request, end: .connected)
        ),
        Golden(
            testDescription: "credentials that nobody asks for",
            credentials: Self.credentials,
            received: [5, 0] + Self.reply,
            expected: Negotiated(sent: Self.greetingWithPassword + Self.request, end: .connected)
        ),
        Golden(
            testDescription: "credentials that are not accepted",
            credentials: Self.credentials,
            received: [5, 2, 1, 1],
            expected: Negotiated(
                sent: Self.greetingWithPassword + Self.login,
                end: .failed(.authenticationFailed),
                text: "the proxy does not accept the user and the password"
            )
        ),
        Golden(
            testDescription: "credentials that are missing",
            received: [5, 0xFF],
            expected: Negotiated(
                sent: Self.greeting,
                end: .failed(.authenticationRequired),
                text: "the proxy asks for a user and a password; set Proxy.credentials"
            )
        ),
        Golden(
            testDescription: "credentials that are missing, and were not offered",
            received: [5, 2],
            expected: Negotiated(
                sent: Self.greeting,
                end: .failed(.authenticationRequired),
                text: "the proxy asks for a user and a password; set Proxy.credentials"
            )
        ),
        Golden(
            testDescription: "credentials of another kind",
            credentials: Self.credentials,
            received: [5, 0xFF],
            expected: Negotiated(
                sent: Self.greetingWithPassword,
                end: .failed(.authenticationRequired),
                text: "the proxy requires authentication other than by a user and a password"
            )
        ),
        Golden(
            testDescription: "GSSAPI, which was not offered",
            credentials: Self.credentials,
            received: [5, 1],
            expected: Negotiated(
                sent: Self.greetingWithPassword,
                end: .failed(.notAProxy),
                text: "the proxy chose method 1 of authentication, which was not offered"
            )
        ),
        Golden(
            testDescription: "an address of a kind that does not exist",
            received: [5, 0, 5, 0, 0, 2],
            expected: Negotiated(
                sent: Self.greeting + Self.request,
                end: .failed(.notAProxy),
                text: "the proxy's answer has an address of the unknown kind 2"
            )
        ),
    ]

    @Test(arguments: goldens) func everySplitMeansTheSame(_ golden: Golden) throws {
        let negotiation = try #require(SOCKS5Negotiation(to: golden.server, credentials: golden.credentials))
        for pieces in splits(of: golden.received) {
            #expect(negotiate(negotiation, pieces) == golden.expected)
        }
    }

    @Test(arguments: goldens) func prefixOfAnAnswerIsWaitedFor(_ golden: Golden) throws {
        let negotiation = try #require(SOCKS5Negotiation(to: golden.server, credentials: golden.credentials))
        let needed = golden.received.count - golden.expected.rest.count
        for length in 0..<needed {
            let part = golden.received.prefix(length)
            #expect(negotiate(negotiation, [part]).end == .waiting)
            #expect(negotiate(negotiation, [part], closes: true).end == .failed(.closed))
        }
    }

    @Test(
        arguments: [
            (1, .refused(1), "it failed"), (2, .refused(2), "rules"), (3, .serverUnreachable, "no network"),
            (4, .serverUnreachable, "host"), (5, .serverUnreachable, "refused"), (6, .serverUnreachable, "too far"),
            (7, .refused(7), "CONNECT"), (8, .refused(8), "kind of address"), (9, .refused(9), "does not define"),
            (255, .refused(255), "does not define"),
        ] as [(UInt8, ProxyFailure.Reason, String)]
    )
    func replyIsReportedInWords(code: UInt8, reason: ProxyFailure.Reason, words: String) throws {
        let negotiation = try #require(SOCKS5Negotiation(to: Endpoint(host: "a", port: 1), credentials: nil))
        // Without the address, since some proxies close after the code.
        let result = negotiate(negotiation, [[5, 0, 5, code]])
        #expect(result.end == .failed(reason))
        #expect(result.text.contains("answered \(code): ") && result.text.contains(words), "\(result.text)")
    }

    @Test(arguments: ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH", "\u{4}", "\0"])
    func otherProtocolsThanSOCKS5AreRecognisedByTheFirstByte(text: String) throws {
        let negotiation = try #require(SOCKS5Negotiation(to: Endpoint(host: "a", port: 1), credentials: nil))
        for pieces in splits(of: Array(text.utf8)) {
            #expect(negotiate(negotiation, pieces).end == .failed(.notAProxy))
        }
        #expect(negotiate(negotiation, [[5, 0], Array(text.utf8)]).end == .failed(.notAProxy))
    }

    @Test func tooLongValuesAreRefused() throws {
        let longest = String(repeating: "a", count: 255)
        func makes(_ host: String, _ user: String, _ password: String) -> Bool {
            let credentials = Proxy.Credentials(user: user, password: password)
            return SOCKS5Negotiation(to: Endpoint(host: host, port: 1), credentials: credentials) != nil
        }
        #expect(makes(longest, longest, longest))
        #expect(makes("a", "", ""))
        #expect(!makes(longest + "a", "", ""))
        #expect(!makes("a", longest + "a", ""))
        #expect(!makes("a", "", longest + "a"))
        #expect(!makes("", "", ""))
    }

    @Test(arguments: 0..<20 as Range<UInt64>) func randomBytesNeverTrapAndNothingIsHoarded(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var ends: Set<String> = []
        for _ in 0..<50 {
            let credentials = Bool.random(using: &random) ? Self.credentials : nil
            let negotiation = try #require(
                SOCKS5Negotiation(to: Endpoint(host: "a", port: 1), credentials: credentials)
            )
            // Small and plausible values; otherwise the first byte would end the negotiation.
            let bytes = (0..<600).map { index -> UInt8 in
                let byte = random.bytes(1)[0]
                return Int.random(in: 0..<20, using: &random) == 0 ? byte : [5, 0, 2, 1, 3, 4][Int(byte) % 6]
            }
            var garbage = bytes
            if Bool.random(using: &random) { garbage.replaceSubrange(0..<2, with: [5, 0]) }
            if Bool.random(using: &random) { garbage.replaceSubrange(2..<4, with: [5, 0]) }
            let whole = negotiate(negotiation, [garbage])
            #expect(negotiate(negotiation, garbage.map { [$0] }) == whole)
            // No answer is longer.
            #expect(whole.end != .waiting)
            ends.insert(whole.end == .connected ? "connected" : "failed")
        }
        #expect(ends == ["connected", "failed"])
    }
}
