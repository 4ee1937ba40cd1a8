// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

@Suite struct WebSocketTargetTests {
    struct Row: Sendable, CustomStringConvertible {
        var url: String
        var host: String
        var port: Int
        var line: String
        var field: String
        var description: String { self.url }
    }

    @Test(arguments: [
        Row(url: "ws://a.example", host: "a.example", port: 80, line: "/", field: "a.example"),
        Row(url: "wss://a.example", host: "a.example", port: 443, line: "/", field: "a.example"),
        Row(url: "WSS://A.example/", host: "A.example", port: 443, line: "/", field: "A.example"),
        Row(url: "ws://a.example:80/x", host: "a.example", port: 80, line: "/x", field: "a.example"),
        Row(url: "ws://a.example:443/x", host: "a.example", port: 443, line: "/x", field: "a.example:443"),
        Row(url: "wss://a.example:80/x", host: "a.example", port: 80, line: "/x", field: "a.example:80"),
        Row(url: "ws://a.example:/x", host: "a.example", port: 80, line: "/x", field: "a.example"),
        Row(url: "ws://127.0.0.1:7001", host: "127.0.0.1", port: 7_001, line: "/", field: "127.0.0.1:7001"),
        Row(url: "ws://[::1]:7001/", host: "::1", port: 7_001, line: "/", field: "[::1]:7001"),
        Row(url: "wss://[2001:db8::1]", host: "2001:db8::1", port: 443, line: "/", field: "[2001:db8::1]"),
        Row(url: "ws://a_b:0", host: "a_b", port: 0, line: "/", field: "a_b:0"),
        Row(url: "ws://a:65535", host: "a", port: 65_535, line: "/", field: "a:65535"),
        Row(url: "ws://a?q", host: "a", port: 80, line: "/?q", field: "a"),
        Row(url: "ws://a/?", host: "a", port: 80, line: "/?", field: "a"),
        Row(url: "ws://a/x?y?z=/:@", host: "a", port: 80, line: "/x?y?z=/:@", field: "a"),
        Row(url: "ws://a/ws/token=88888888", host: "a", port: 80, line: "/ws/token=88888888", field: "a"),
        Row(url: "ws://a/%7e/../b//c/%zz", host: "a", port: 80, line: "/%7e/../b//c/%zz", field: "a"),
    ])
    func urlIsReadAsItIsWritten(_ row: Row) throws {
        let target = try WebSocketTarget(row.url)
        #expect(target.host == row.host)
        #expect(target.port == row.port)
        #expect(target.requestTarget == row.line)
        #expect(target.hostField == row.field)
        #expect(target.isSecure == row.url.lowercased().hasPrefix("wss"))
        #expect(!target.sharesPort)
    }

    @Test(
        arguments: [
            ("", .noScheme), ("a", .noScheme), ("a:80", .noScheme), ("//a/", .noScheme), ("ws:/a", .noScheme),
            ("ws:a", .noScheme), ("://a", .noScheme), ("1ws://a", .noScheme), ("/ws://a", .noScheme),
            ("http://a", .unknownScheme), ("https://a", .unknownScheme), ("tcp+ws://a", .unknownScheme),
            ("tls://a", .unknownScheme), ("wsx://a", .unknownScheme),
            ("ws://a/b c", .illegalCharacter), (" ws://a", .illegalCharacter), ("ws://a\r\nX: y", .illegalCharacter),
            ("ws://a/\n", .illegalCharacter), ("ws://a/\0", .illegalCharacter), ("ws://a/\u{7F}", .illegalCharacter),
            ("ws://a/\t", .illegalCharacter), ("ws://ä/", .notASCII), ("ws://a/é", .notASCII),
            ("ws://\u{212A}/", .notASCII),
            ("ws://a/#", .fragment), ("ws://a/?b#c", .fragment), ("ws://a#c", .fragment),
            ("ws://u@a/", .userInformation), ("ws://u:p@a:80/", .userInformation), ("ws://@a", .userInformation),
            ("ws://", .host), ("ws:///x", .host), ("ws://:80/", .host), ("ws://a%41/", .host), ("ws://a\\b/", .host),
            ("ws://[::1/", .host), ("ws://[::1]x/", .host), ("ws://[a]/", .host), ("ws://[1.2.3.4]/", .host),
            ("ws://[]/", .host), ("ws://[fe80::1%25eth0]/", .host), ("ws://a,b/", .host),
            ("ws://" + String(repeating: "a", count: 256), .host),
            ("ws://::1/", .host), ("ws://a:b/", .port), ("ws://a:65536/", .port), ("ws://a:-1/", .port),
            ("ws://a:+1/", .port), ("ws://a:80:80/", .port), ("ws://a:000080/", .port),
            ("ws://a:99999999999999999999/", .port), ("ws://a::/", .port),
        ] as [(String, WebSocketURLFault)]
    )
    func faultyURLIsRefused(_ url: String, _ fault: WebSocketURLFault) {
        let error = #expect(throws: OpeningError.self) { try WebSocketTarget(url) }
        #expect(error == .invalidURL(fault))
        #expect(error?.isInvalidArgument == true)
    }

    @Test func longestHostIsRead() throws {
        let host = String(repeating: "a", count: 255)
        #expect(try WebSocketTarget("ws://\(host)").host == host)
    }

    @Test func listenerMayShareItsPort() throws {
        let shared = try WebSocketTarget("tcp+ws://0.0.0.0:7000/chat", for: .listener)
        #expect(shared.sharesPort && !shared.isSecure)
        #expect(shared.description == "tcp+ws://0.0.0.0:7000/chat")
        let secure = try WebSocketTarget("tcp+wss://[::]:7000", for: .listener)
        #expect(secure.sharesPort && secure.isSecure)
        #expect(secure.description == "tcp+wss://[::]:7000/")
        #expect(try !WebSocketTarget("ws://0.0.0.0:0", for: .listener).sharesPort)
        #expect(throws: OpeningError.invalidURL(.unknownScheme)) { try WebSocketTarget("http://a", for: .listener) }
        #expect(throws: OpeningError.invalidURL(.queryOfListener)) { try WebSocketTarget("ws://a/?b", for: .listener) }
    }

    @Test func queryIsInNoDescription() throws {
        let target = try WebSocketTarget("wss://example.com/chat?token=secret")
        #expect(target.description == "wss://example.com:443/chat")
        #expect("\(target)".contains("secret") == false)
        #expect(String(reflecting: target).contains("secret") == false)
        #expect("\([target])".contains("secret") == false)
        var dumped = ""
        dump(target, to: &dumped)
        #expect(dumped.contains("secret") == false)
        let error = #expect(throws: OpeningError.self) { try WebSocketTarget("wss://u:secret@a/?secret#secret") }
        #expect(error?.description.contains("secret") == false)
    }

    @Test(arguments: [
        ("ws://b/y", "ws://b:80/y"), ("wss://b", "wss://b:443/"), ("http://b/y?z", "ws://b:80/y?z"),
        ("https://b:1/y", "wss://b:1/y"), ("HTTPS://b", "wss://b:443/"), ("//b:2/y", "wss://b:2/y"),
        ("/y", "wss://a:443/y"), ("y", "wss://a:443/p/y"), ("./y", "wss://a:443/p/y"), ("../y", "wss://a:443/y"),
        ("../../../y", "wss://a:443/y"), ("y/./z/..", "wss://a:443/p/y/"), (".", "wss://a:443/p/"),
        ("..", "wss://a:443/"), ("?z", "wss://a:443/p/q?z"), ("", "wss://a:443/p/q?r"), ("#f", "wss://a:443/p/q?r"),
        ("/y#f", "wss://a:443/y"), ("y?z#f?", "wss://a:443/p/y?z"), ("/y/..", "wss://a:443/"),
        ("https://b/x/../y", "wss://b:443/y"), ("/y:z", "wss://a:443/y:z"), ("y/z:1", "wss://a:443/p/y/z:1"),
        ("/a.b/.c/..d/...", "wss://a:443/a.b/.c/..d/..."), ("/", "wss://a:443/"), ("//b", "wss://b:443/"),
    ])
    func locationIsResolved(_ location: String, _ expected: String) throws {
        let target = try WebSocketTarget("wss://a/p/q?r").resolving(location)
        #expect(target.description.dropLast(target.path.utf8.count) + target.requestTarget == expected)
    }

    @Test(
        arguments: [
            ("ftp://b", .unknownScheme), ("mailto:x", .noScheme), ("https:/b", .noScheme), ("//", .host),
            ("/a b", .illegalCharacter), ("/ä", .notASCII), ("//u@b", .userInformation), ("https://b:x", .port),
            ("tcp+ws://b", .unknownScheme),
        ] as [(String, WebSocketURLFault)]
    )
    func faultyLocationIsRefused(_ location: String, _ fault: WebSocketURLFault) throws {
        let target = try WebSocketTarget("wss://a/p/q?r")
        let error = #expect(throws: OpeningError.self) { try target.resolving(location) }
        #expect(error == .invalidLocation(fault))
        #expect(error?.isInvalidArgument == false)
    }

    @Test func originIsSchemeHostAndPort() throws {
        let target = try WebSocketTarget("wss://a.example/x")
        #expect(try target.hasOrigin(of: WebSocketTarget("wss://A.EXAMPLE:443/y?z")))
        #expect(try !target.hasOrigin(of: WebSocketTarget("ws://a.example:443/x")))
        #expect(try !target.hasOrigin(of: WebSocketTarget("wss://a.example:444/x")))
        #expect(try !target.hasOrigin(of: WebSocketTarget("wss://b.example/x")))
    }
}

@Suite struct RedirectRulesTests {
    @Test func fiveRedirectsAreFollowed() throws {
        var rules = try RedirectRules(from: WebSocketTarget("ws://a/0"))
        for number in 1...5 {
            try rules.follow(to: WebSocketTarget("ws://a/\(number)"))
            #expect(rules.target.path == "/\(number)")
            #expect(rules.count == number)
        }
        #expect(throws: OpeningError.tooManyRedirects) { try rules.follow(to: WebSocketTarget("ws://a/6")) }
        #expect(rules.target.path == "/5")
    }

    @Test func redirectFromTLSToPlainIsRefused() throws {
        var rules = try RedirectRules(from: WebSocketTarget("ws://a/"))
        try rules.follow(to: WebSocketTarget("wss://a/"))
        #expect(throws: OpeningError.redirectToPlain) { try rules.follow(to: WebSocketTarget("ws://a/")) }
        #expect(rules.target.isSecure)
        #expect(rules.count == 1)
    }

    @Test func fixedHeadersDoNotCrossOriginsNorComeBack() throws {
        var rules = try RedirectRules(from: WebSocketTarget("wss://a/"))
        #expect(rules.isOfOneOrigin)
        try rules.follow(to: WebSocketTarget("wss://A:443/x"))
        #expect(rules.isOfOneOrigin)
        for path in ["", "again"] {
            try rules.follow(to: WebSocketTarget("wss://b/\(path)"))
            #expect(!rules.isOfOneOrigin)
        }
        try rules.follow(to: WebSocketTarget("wss://a/chosen-by-b"))
        #expect(!rules.isOfOneOrigin)
    }

    @Test(arguments: ["wss://a:444/", "wss://b/", "wss://a/"])
    func eachPartOfAnOriginCounts(_ location: String) throws {
        var rules = try RedirectRules(from: WebSocketTarget(location == "wss://a/" ? "ws://a/" : "wss://a/"))
        try rules.follow(to: WebSocketTarget(location))
        #expect(!rules.isOfOneOrigin)
    }
}
