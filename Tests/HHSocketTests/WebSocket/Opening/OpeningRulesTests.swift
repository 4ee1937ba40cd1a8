// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct OpeningRulesTests {
    private func decide(_ text: String, _ rules: OpeningRules? = nil) throws -> OpeningDecision {
        try ServerOutcome(text).decision(rules ?? OpeningRules())
    }

    @Test func upgradeHasTheResponse() throws {
        var rules = try OpeningRules(path: "/chat", subprotocols: ["x", "b"], deflate: DeflatePolicy())
        rules.permission = { _ in .allow(headers: ["Set-Cookie": "a=b"]) }
        let text = OpeningSample.opening("Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: permessage-deflate")
        let decision = try self.decide(text, rules)
        let expected = OpeningSample.response(
            "Sec-WebSocket-Protocol: b",
            "Sec-WebSocket-Extensions: permessage-deflate",
            "Set-Cookie: a=b"
        )
        #expect(decision.response == expected)
        #expect(decision.agreement?.subprotocol == "b")
        #expect(decision.agreement?.deflate == DeflateAgreement())
        #expect(decision.agreement?.headers.first("host") == "example.com")
        #expect(try self.decide(OpeningSample.opening()).response == OpeningSample.response())
    }

    @Test(arguments: [
        "GET /chat HTTP/1.1\nhost: a\nupgrade: WebSocket\nconnection: keep-alive, Upgrade\n"
            + "sec-websocket-key: %\nsec-websocket-version: 13\n\n",
        "GET /chat HTTP/1.1\r\nHOST:a\r\nUPGRADE:WEBSOCKET\r\nCONNECTION:UPGRADE\r\nSEC-WEBSOCKET-KEY:%\r\n"
            + "SEC-WEBSOCKET-VERSION:13\r\n\r\n",
        "GET /chat HTTP/1.1\r\nHost: a\t\r\nUpgrade: h2c\r\nUpgrade: ,websocket\r\nConnection: a\r\nConnection: upgrade\r\n"
            + "Sec-Websocket-Key: \t % \r\nSec-Websocket-Version:  13 \r\n\r\n",
    ])
    func proxiesMayChangeCaseBlanksAndLineEnds(_ text: String) throws {
        let text = text.replacing("%", with: OpeningSample.key)
        #expect(try self.decide(text, OpeningRules(path: "/chat")).response == OpeningSample.response())
    }

    @Test(arguments: ["/", "/Chat", "/chat/", "//chat", "/chat%20", "/%63hat", "/chat2", "/a/../chat"])
    func pathIsComparedExactly(_ path: String) throws {
        let rules = try OpeningRules(path: "/chat")
        let text = OpeningSample.opening("", line: "GET \(path)?/chat HTTP/1.1")
        #expect(try self.decide(text, rules).rejection == .path)
        #expect(OpeningRejection.path.status == 404)
        #expect(try self.decide(text).agreement != nil)
        #expect(try self.decide(OpeningSample.opening("", line: "GET /chat?a HTTP/1.1"), rules).agreement != nil)
    }

    @Test(
        arguments: [
            (["Upgrade"], "X: y", .upgrade), (["Connection"], "X: y", .upgrade),
            (["Upgrade", "Connection"], "X: y", .upgrade),
            (["Upgrade"], "Upgrade: h2c", .upgrade), (["Connection"], "Connection: keep-alive", .upgrade),
            (["Sec-WebSocket-Version"], "X: y", .webSocketVersion),
            (["Sec-WebSocket-Version"], "Sec-WebSocket-Version: 8", .webSocketVersion),
            (["Sec-WebSocket-Version"], "Sec-WebSocket-Version: 13, 8", .webSocketVersion),
            (["Sec-WebSocket-Version"], "Sec-WebSocket-Version: 013", .webSocketVersion),
            ([], "Sec-WebSocket-Version: 13", .webSocketVersion),
            (["Sec-WebSocket-Key"], "X: y", .key), ([], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", .key),
            (["Sec-WebSocket-Key"], "Sec-WebSocket-Key: x", .key), (["Sec-WebSocket-Key"], "Sec-WebSocket-Key:", .key),
            (["Sec-WebSocket-Key"], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQAA", .key),
            ([], "Sec-WebSocket-Protocol: a b", .malformedSubprotocols),
            ([], "Sec-WebSocket-Protocol: a, a", .malformedSubprotocols),
            ([], "Sec-WebSocket-Protocol: \"a\"", .malformedSubprotocols),
        ] as [([String], String, OpeningRejection)]
    )
    func requestThatIsNoOpeningIsRejected(_ without: [String], _ line: String, _ expected: OpeningRejection) throws {
        #expect(try self.decide(OpeningSample.opening(line, without: without)).rejection == expected)
    }

    @Test func statusesAreThoseOfTheDesign() {
        #expect(OpeningRejection.upgrade.status == 426)
        #expect(OpeningRejection.webSocketVersion.status == 426)
        for rejection in [.key, .malformedSubprotocols, .subprotocol, .malformedExtensions] as [OpeningRejection] {
            #expect(rejection.status == 400)
        }
        #expect(OpeningRejection.origin.status == 403)
    }

    @Test func subprotocolIsTheFirstOfTheClientsThatIsKnown() throws {
        let optional = try OpeningRules(subprotocols: ["a", "b"])
        let required = try OpeningRules(subprotocols: ["a", "b"], requiresSubprotocol: true)
        let none = OpeningSample.opening()
        let unknown = OpeningSample.opening("Sec-WebSocket-Protocol: c, A")
        let known = OpeningSample.opening("Sec-WebSocket-Protocol: ,c, ,, b ,", "Sec-WebSocket-Protocol: a")
        #expect(try self.decide(known, optional).agreement?.subprotocol == "b")
        #expect(try self.decide(known, required).agreement?.subprotocol == "b")
        for text in [none, unknown] {
            let decision = try self.decide(text, optional)
            #expect(decision.agreement != nil)
            #expect(decision.agreement?.subprotocol == nil)
            #expect(decision.response?.contains("Protocol:") == false)
            #expect(try self.decide(text, required).rejection == .subprotocol)
        }
    }

    @Test func originIsCheckedWhereItIs() throws {
        var rules = try OpeningRules()
        let mine = OpeningSample.opening("Origin: https://Example.com")
        let other = OpeningSample.opening("Origin: https://evil.example")
        let twice = OpeningSample.opening("Origin: https://example.com", "Origin: https://evil.example")
        for text in [mine, other, twice] { #expect(try self.decide(text, rules).agreement != nil) }
        for origins in [
            OpeningRules.Origins.list(["https://a.example", "https://example.com"]),
            .closure { $0 == "https://Example.com" },
        ] {
            rules.origins = origins
            #expect(try self.decide(mine, rules).agreement != nil)
            #expect(try self.decide(OpeningSample.opening(), rules).agreement != nil)
            for origin in ["https://evil.example", "null", "", "https://example.com.evil.example", "example.com"] {
                #expect(try self.decide(OpeningSample.opening("Origin: \(origin)"), rules).rejection == .origin)
            }
            #expect(try self.decide(twice, rules).rejection == .origin)
        }
    }

    @Test func applicationMayRefuse() throws {
        var rules = try OpeningRules()
        rules.permission = { head in
            head.headers.first("Authorization") == "Bearer 1" && head.query == "a"
                ? .allow(headers: [:])
                : .refuse(status: 401, headers: ["WWW-Authenticate": "Bearer"], text: "Who are you?")
        }
        let line = "GET /chat?a HTTP/1.1"
        let allowed = OpeningSample.opening("Authorization: Bearer 1", line: line)
        #expect(try self.decide(allowed, rules).agreement != nil)
        let rejection = try #require(try self.decide(OpeningSample.opening("", line: line), rules).rejection)
        #expect(rejection.status == 401)
        let answer = String(buffer: rejection.encode())
        #expect(answer.hasPrefix("HTTP/1.1 401 Unauthorized\r\n"))
        #expect(answer.contains("\r\nWWW-Authenticate: Bearer\r\n"))
        #expect(answer.hasSuffix("\r\n\r\nWho are you?\n"))
    }

    @Test(
        arguments: [
            .allow(headers: ["A": "b\r\nC: d"]), .allow(headers: ["Upgrade": "x"]),
            .allow(headers: ["Content-Length": "5"]),
            .allow(headers: ["Sec-WebSocket-Protocol": "x"]), .refuse(status: 200, headers: [:], text: ""),
            .refuse(status: 101, headers: [:], text: ""), .refuse(status: 600, headers: [:], text: ""),
            .refuse(status: 403, headers: ["A\r\n": "b"], text: ""),
            .refuse(status: 403, headers: ["Transfer-Encoding": "chunked"], text: ""),
        ] as [OpeningPermission]
    )
    func faultyAnswerOfTheApplicationIs500(_ permission: OpeningPermission) throws {
        var rules = try OpeningRules()
        rules.permission = { _ in permission }
        let rejection = try #require(try self.decide(OpeningSample.opening(), rules).rejection)
        #expect(rejection.status == 500)
        #expect(!String(buffer: rejection.encode()).contains("C: d"))
    }

    @Test func applicationIsAskedLast() throws {
        var rules = try OpeningRules(path: "/chat")
        rules.origins = .list([])
        rules.permission = { _ in
            Issue.record("asked about a request that is rejected")
            return .allow(headers: [:])
        }
        #expect(try self.decide(OpeningSample.opening("Origin: a"), rules).rejection == .origin)
    }

    @Test func compressionMayBeDeclinedForSomeClients() throws {
        var rules = try OpeningRules(deflate: DeflatePolicy())
        rules.mayCompress = { $0.headers.first("User-Agent")?.contains("Safari") != true }
        let offer = "Sec-WebSocket-Extensions: permessage-deflate"
        let decision = try self.decide(OpeningSample.opening(offer, "User-Agent: Safari"), rules)
        #expect(decision.agreement != nil && decision.agreement?.deflate == nil)
        #expect(decision.response?.contains("Extensions") == false)
        #expect(try self.decide(OpeningSample.opening(offer), rules).agreement?.deflate != nil)
    }

    /// DESIGN 9.1: 431, 400 (not HTTP/1.1 GET), 404, 426, 400 (key, subprotocol), 403.
    @Test func firstFaultInOrderDecides() throws {
        var rules = try OpeningRules(path: "/chat", subprotocols: ["a"], requiresSubprotocol: true)
        rules.origins = .list([])
        var line = "POST /other HTTP/1.1"
        var without = ["Upgrade", "Sec-WebSocket-Key"]
        var more = ["A: " + String(repeating: "x", count: 17_000), "Origin: https://evil.example"]
        func status() throws -> Int? {
            let text = OpeningSample.opening(more.joined(separator: "\r\n"), line: line, without: without)
            return try self.decide(text, rules).rejection?.status
        }
        #expect(try status() == 431)
        more.removeFirst()
        #expect(try status() == 400)
        line = "GET /other HTTP/1.1"
        #expect(try status() == 404)
        line = "GET /chat HTTP/1.1"
        #expect(try status() == 426)
        without.removeFirst()
        #expect(try status() == 400)
        without.removeFirst()
        #expect(try status() == 400)
        more.append("Sec-WebSocket-Protocol: a")
        #expect(try status() == 403)
        more.removeFirst()
        #expect(try status() == nil)
    }

    // MARK: The answer

    static let rejections: [OpeningRejection] = [
        .headTooLong, .notHTTP, .malformedHead(.startLine), .requestLine, .version, .method, .requestTarget, .host,
        .body,
        .path, .upgrade, .webSocketVersion, .key, .malformedSubprotocols, .subprotocol, .malformedExtensions, .origin,
        .application(status: 503, headers: ["Retry-After": "5", "Content-Type": "text/html"], text: "später"),
    ]

    @Test(arguments: Self.rejections)
    func answerSaysWhatWasWrong(_ rejection: OpeningRejection) throws {
        let text = String(buffer: rejection.encode())
        #expect(text.hasPrefix("HTTP/1.1 \(rejection.status) "))
        let refusal = try #require(ClientOutcome(text + "x", to: try OpeningSample.request()).refusal)
        #expect(refusal.status == rejection.status)
        #expect(String(buffer: refusal.body) == rejection.description + "\n")
        #expect(refusal.headers.values("Connection").joined(separator: ",").hasPrefix("close"))
        #expect(refusal.headers.values("Content-Type").count == 1)
        #expect(refusal.headers.first("Upgrade") == (rejection.status == 426 ? "websocket" : nil))
        #expect(refusal.headers.first("Sec-WebSocket-Version") == (rejection.status == 426 ? "13" : nil))
        #expect(refusal.retryAfter == (rejection.status == 503 ? 5 : nil))
        #expect(!refusal.reason.isEmpty)
    }
}
