// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import Testing

@Suite struct OpeningRequestTests {
    @Test func requestHasEveryField() throws {
        let request = try OpeningSample.request(
            "wss://example.com:8443/chat?room=1",
            headers: ["Cookie": "a=b", "X-Token": " t "],
            subprotocols: ["hhsocket.1", "chat"],
            origin: "https://example.com",
            deflate: DeflatePolicy()
        )
        let expected = [
            "GET /chat?room=1 HTTP/1.1", "Host: example.com:8443", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: hhsocket.1, chat",
            "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, "
                + "permessage-deflate; client_no_context_takeover; client_max_window_bits", "Cookie: a=b", "X-Token: t",
            "Origin: https://example.com", "", "",
        ]
        #expect(String(buffer: request.encode()) == expected.joined(separator: "\r\n"))
    }

    @Test func requestOmitsWhatIsNotOffered() throws {
        let text = String(buffer: try OpeningSample.request().encode())
        #expect(!text.contains("Protocol"))
        #expect(!text.contains("Extensions"))
        #expect(!text.contains("Origin"))
    }

    @Test(arguments: ["", "a b", "a:", "a\r\nb", "a\0", "ä", "a\u{7F}", "(a)", "a,b", " a"])
    func malformedNameIsRefused(_ name: String) {
        let error = #expect(throws: OpeningError.self) { try OpeningSample.request(headers: [name: "x"]) }
        guard case .invalidFieldName(let shown) = error else {
            Issue.record("\(error as Any)")
            return
        }
        #expect(shown.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F })
        #expect(error?.isInvalidArgument == true)
    }

    @Test(arguments: ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "\u{1}", "a\u{7F}", "a\r\n", "\u{8}"])
    func controlCharacterInValueIsRefused(_ value: String) {
        let error = #expect(throws: OpeningError.self) { try OpeningSample.request(headers: ["X-A": "s3cret" + value]) }
        #expect(error == .invalidFieldValue(of: "X-A"))
        #expect(error?.description.contains("s3cret") == false)
        #expect(error?.isInvalidArgument == true)
    }

    @Test func controlCharacterInOriginIsRefused() {
        #expect(throws: OpeningError.invalidFieldValue(of: "Origin")) {
            try OpeningSample.request(origin: "https://a\r\nX: y")
        }
    }

    @Test(arguments: [
        "Host", "host", "Upgrade", "CONNECTION", "Sec-WebSocket-Key", "sec-websocket-version", "Sec-WebSocket-Protocol",
        "Sec-WebSocket-Extensions", "Sec-WebSocket-Anything", "Content-Length", "transfer-encoding",
    ])
    func fieldOfTheHandshakeIsRefused(_ name: String) {
        let error = #expect(throws: OpeningError.self) { try OpeningSample.request(headers: [name: "x"]) }
        #expect(error == .ownedField(name))
        #expect(error?.isInvalidArgument == true)
    }

    @Test func otherFieldsMayBeRepeatedAndBeyondASCII() throws {
        let request = try OpeningSample.request(headers: ["X-A": "ä", "X-A": "a\tb", "Empty": ""])
        #expect(String(buffer: request.encode()).hasSuffix("X-A: ä\r\nX-A: a\tb\r\nEmpty: \r\n\r\n"))
    }

    @Test func originMayBeAmongTheHeadersOnce() throws {
        let request = try OpeningSample.request(headers: ["Origin": "https://a"])
        #expect(String(buffer: request.encode()).contains("Origin: https://a\r\n"))
        let error = #expect(throws: OpeningError.self) {
            try OpeningSample.request(headers: ["origin": "https://a"], origin: "https://b")
        }
        #expect(error == .repeatedField("Origin"))
        #expect(error?.isInvalidArgument == true)
    }

    @Test(arguments: ["", "a b", "a,b", "a/b", "\"a\"", "a\r\nX: y", "ä", "a;b"])
    func malformedSubprotocolIsRefused(_ name: String) throws {
        let error = #expect(throws: OpeningError.self) { try OpeningSample.request(subprotocols: ["x", name]) }
        #expect(error == .invalidSubprotocol(name))
        #expect(error?.description.contains("\r") == false)
        #expect(error?.isInvalidArgument == true)
        #expect(throws: OpeningError.invalidSubprotocol(name)) { try OpeningRules(subprotocols: [name]) }
    }

    @Test func repeatedSubprotocolIsRefused() throws {
        let error = #expect(throws: OpeningError.self) { try OpeningSample.request(subprotocols: ["a", "b", "a"]) }
        #expect(error == .repeatedSubprotocol("a"))
        #expect(error?.isInvalidArgument == true)
        // Names are compared with their case.
        #expect(try OpeningSample.request(subprotocols: ["a", "A"]).subprotocols == ["a", "A"])
    }
}

@Suite struct OpeningKeyTests {
    @Test func keyAnswersAsRFC6455Says() throws {
        let key = try #require(OpeningKey(Array("the sample nonce".utf8)))
        #expect(key.text == OpeningSample.key)
        #expect(key.accept == OpeningSample.accept)
        #expect(OpeningKey(text: key.text) == key)
    }

    @Test func keyHasSixteenBytes() {
        #expect(OpeningKey([]) == nil)
        #expect(OpeningKey(Array(repeating: 0, count: 15)) == nil)
        #expect(OpeningKey(Array(repeating: 0, count: 17)) == nil)
    }

    @Test func randomKeysAreReadBack() {
        var random = SplitMix(seed: 1)
        var keys: Set<OpeningKey> = []
        for _ in 0..<1_000 {
            let key = OpeningKey(using: &random)
            #expect(OpeningKey(text: key.text) == key)
            keys.insert(key)
        }
        #expect(keys.count == 1_000)
    }

    @Test(arguments: [
        "", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZ===",
        "dGhlIHNhbXBsZSBub25jZQ==a",
        "dGhlIHNhbXBsZSBub25jZQA=", "dGhlIHNhbXBsZSBub25jZQAA", "dGhlIHNhbXBsZSBub25j-Q==", "dGhlIHNhbXBsZSBub25j Q==",
        "YWJj", "YWJj==", "dGhlIHNhbXBsZSBub25jZQx==", "dGhlIHNhbXBsZSBub25jZQxx==", "dGhlIHNhbXBsZSBub25j\u{300}==",
    ])
    func textThatIsNoKeyIsRefused(_ text: String) {
        #expect(OpeningKey(text: text) == nil)
    }

    /// RFC 4648, section 10.
    @Test(arguments: [
        ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
        ("foobar", "Zm9vYmFy"),
    ])
    func base64IsRFC4648s(_ text: String, _ encoded: String) {
        #expect(Base64.encode(Array(text.utf8)) == encoded)
    }

    @Test func base64HasAllDigits() {
        let bytes = stride(from: 0, to: 64, by: 4).flatMap { digit -> [UInt8] in
            let word = digit << 18 | (digit + 1) << 12 | (digit + 2) << 6 | (digit + 3)
            return [UInt8(word >> 16), UInt8(word >> 8 & 255), UInt8(word & 255)]
        }
        #expect(Base64.encode(bytes) == "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    }
}
