// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct OpeningRequestReaderTests {
    private func decide(_ text: String) throws -> OpeningDecision {
        try ServerOutcome(text).decision(OpeningRules())
    }

    @Test func headHasItsParts() throws {
        let text = OpeningSample.opening(
            "Origin: https://a",
            "Sec-WebSocket-Protocol: b, c",
            "Sec-WebSocket-Protocol: d",
            "Sec-WebSocket-Extensions: x, permessage-deflate; y, permessage-deflate",
            line: "GET /chat?room=1?2 HTTP/1.1"
        )
        guard case .head(let head, let rest) = ServerOutcome(text + "frames") else {
            Issue.record("no head")
            return
        }
        #expect(head.method == "GET")
        #expect(head.target == "/chat?room=1?2")
        #expect(head.path == "/chat")
        #expect(head.query == "room=1?2")
        #expect(head.host == "example.com")
        #expect(head.port == nil)
        #expect(head.origin == "https://a")
        #expect(head.subprotocols == ["b", "c", "d"])
        #expect(try head.deflateOffers() == [DeflateParameters()])
        #expect(head.key?.text == OpeningSample.key)
        #expect(head.headers.first("upgrade") == "websocket")
        #expect(String(buffer: rest) == "frames")
    }

    @Test(
        arguments: [
            ("/", "/", nil), ("/?", "/", ""), ("/a%20b?c/d", "/a%20b", "c/d"), ("//a", "//a", nil),
            ("http://other:81/a?b", "/a", "b"), ("wss://other:81", "/", nil), ("ws://other:81?q", "/", "q"),
        ] as [(String, String, String?)]
    )
    func targetIsAPathOrAURL(_ target: String, _ path: String, _ query: String?) throws {
        let outcome = ServerOutcome(OpeningSample.opening("", line: "GET \(target) HTTP/1.1"))
        let head = try #require(outcome.head)
        #expect(head.path == path)
        #expect(head.query == query)
        #expect(head.host == (target.first == "/" ? "example.com" : "other"))
        #expect(head.port == (target.first == "/" ? nil : 81))
    }

    @Test(
        arguments: [
            ("example.com", "example.com", nil), ("example.com:8080", "example.com", 8_080), ("[::1]:80", "::1", 80),
            ("127.0.0.1", "127.0.0.1", nil),
        ] as [(String, String, Int?)]
    )
    func hostIsRead(_ field: String, _ host: String, _ port: Int?) throws {
        let head = try #require(ServerOutcome(OpeningSample.opening("Host: \(field)", without: ["Host"])).head)
        #expect(head.host == host)
        #expect(head.port == port)
    }

    @Test func portOfAURLOverridesHosts() throws {
        let text = OpeningSample.opening("Host: a:81", line: "GET http://b/ HTTP/1.1", without: ["Host"])
        let head = try #require(ServerOutcome(text).head)
        #expect(head.host == "b")
        #expect(head.port == 80)
    }

    @Test func emptyLinesBeforeTheRequestAreSkipped() throws {
        #expect(ServerOutcome("\r\n\n\r\n" + OpeningSample.opening()).head != nil)
        #expect(ServerOutcome(String(repeating: "\r\n", count: 8_191)) == .waiting)
        #expect(ServerOutcome(String(repeating: "\r\n", count: 8_192)).rejection == .headTooLong)
        #expect(ServerOutcome("\r\n\u{16}").rejection == .notHTTP)
    }

    @Test(
        arguments: [
            ("\u{16}\u{3}\u{1}", .notHTTP), ("\0", .notHTTP), (" GET / HTTP/1.1\r\n\r\n", .notHTTP), ("ä", .notHTTP),
            ("POST /chat HTTP/1.1", .method), ("HEAD /chat HTTP/1.1", .method), ("get /chat HTTP/1.1", .method),
            ("CONNECT a:80 HTTP/1.1", .method), ("GETX / HTTP/1.1", .method),
            ("GET /chat HTTP/1.0", .version), ("GET /chat HTTP/2.0", .version), ("GET /chat HTTP/1.10", .version),
            ("GET /chat http/1.1", .version), ("GET /chat RTSP/1.1", .version), ("PRI * HTTP/2.0", .version),
            ("POST /chat HTTP/1.0", .version), ("GET /chat", .requestLine), ("GET", .requestLine),
            ("GET  /chat HTTP/1.1", .requestLine), ("GET /chat  HTTP/1.1", .requestLine),
            ("GET /a b HTTP/1.1", .requestLine), ("GET /chat HTTP/1.1 ", .requestLine),
            ("G:T /chat HTTP/1.1", .requestLine),
            ("GET\t/chat\tHTTP/1.1", .requestLine), ("GET  HTTP/1.1", .requestTarget),
            ("GET chat HTTP/1.1", .requestTarget), ("GET * HTTP/1.1", .requestTarget),
            ("GET a:80 HTTP/1.1", .requestTarget),
            ("GET /a#b HTTP/1.1", .requestTarget), ("GET /ä HTTP/1.1", .requestTarget),
            ("GET /a\tb HTTP/1.1", .requestTarget), ("GET ftp://a/ HTTP/1.1", .requestTarget),
            ("GET http://u@a/ HTTP/1.1", .requestTarget), ("GET http:///a HTTP/1.1", .requestTarget),
            ("GET /\0 HTTP/1.1", .malformedHead(.controlCharacter)),
            ("GET /\r HTTP/1.1", .malformedHead(.controlCharacter)),
        ] as [(String, OpeningRejection)]
    )
    func requestThatIsNotAGETOfHTTP11Is400(_ line: String, _ expected: OpeningRejection) throws {
        let rejection = try self.decide(OpeningSample.opening("", line: line)).rejection
        #expect(rejection == expected)
        #expect(rejection?.status == 400)
    }

    @Test(
        arguments: [
            ("Host: a", .host), ("host: example.com", .host), ("A: b\r\n c", .malformedHead(.foldedLine)),
            ("A: b\r\n\tc", .malformedHead(.foldedLine)), ("A : b", .malformedHead(.fieldName)),
            ("Content-Length : 0", .malformedHead(.fieldName)), (": b", .malformedHead(.fieldName)),
            ("A", .malformedHead(.missingColon)), ("A: \0", .malformedHead(.controlCharacter)),
            ("A: b\rC: d", .malformedHead(.controlCharacter)), ("A: b\u{B}", .malformedHead(.controlCharacter)),
            ("Content-Length: 1", .body), ("Content-Length: 00000001", .body), ("Content-Length: +0", .body),
            ("Content-Length: -1", .body), ("Content-Length: 0, 0", .body), ("Content-Length: 0x0", .body),
            ("Content-Length:", .body), ("Content-Length: 99999999999999999999", .body),
            ("Content-Length: 0\r\nContent-Length: 0", .body), ("content-length: 0\r\nContent-Length: 5", .body),
            ("Transfer-Encoding: chunked", .body), ("transfer-encoding: identity", .body),
            ("Transfer-Encoding:", .body),
            ("Transfer-Encoding: xchunked\r\nContent-Length: 0", .body),
            ("Transfer-Encoding:\u{B}chunked", .malformedHead(.controlCharacter)),
        ] as [(String, OpeningRejection)]
    )
    func malformedHeadAndBodyAre400(_ line: String, _ expected: OpeningRejection) throws {
        let rejection = try self.decide(OpeningSample.opening(line)).rejection
        #expect(rejection == expected)
        #expect(rejection?.status == 400)
    }

    @Test(arguments: [
        "", "a b", "u@a", "a/b", "a:x", "a:65536", "[::1", "::1", "a,b", "http://a", "ä", ":80",
    ])
    func missingOrMalformedHostIs400(_ host: String) throws {
        #expect(try self.decide(OpeningSample.opening("Host: \(host)", without: ["Host"])).rejection == .host)
        #expect(try self.decide(OpeningSample.opening("", without: ["Host"])).rejection == .host)
    }

    @Test func emptyBodyIsNoBody() throws {
        #expect(try self.decide(OpeningSample.opening("Content-Length: 0")).agreement != nil)
    }

    @Test func headOver16KiBIs431() throws {
        let base = OpeningSample.opening("A: ").utf8.count
        let longest = OpeningSample.opening("A: " + String(repeating: "x", count: 16_384 - base))
        #expect(longest.utf8.count == 16_384)
        #expect(try self.decide(longest + "frames").agreement != nil)
        let longer = OpeningSample.opening("A: " + String(repeating: "x", count: 16_385 - base))
        #expect(ServerOutcome(longer).rejection == .headTooLong)
        #expect(OpeningRejection.headTooLong.status == 431)
        #expect(ServerOutcome("GET /" + String(repeating: "x", count: 16_378)) == .waiting)
        #expect(ServerOutcome("GET /" + String(repeating: "x", count: 16_379)).rejection == .headTooLong)
        #expect(ServerOutcome("GET / HTTP/1.1\r\n" + String(repeating: "A:\n", count: 6_000)).rejection == .headTooLong)
    }
}
