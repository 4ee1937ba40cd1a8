// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import Testing

/// Openings that are cut, mutated and generated.
@Suite struct OpeningStreamTests {
    static let responses = [
        OpeningSample.response("Sec-WebSocket-Protocol: a") + "\u{1}\u{2}HTTP/1.1 200 x\r\n\r\n",
        "HTTP/1.1 100\n\nHTTP/1.1 103 x\r\nA: b\r\n\r\n" + OpeningSample.response() + "\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: https://b/c\r\n\r\nbody",
        "HTTP/1.1 503 x\r\nRetry-After: 5\r\nContent-Length: 9\r\n\r\nbody body and more",
        "HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\nmore",
        "HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        "HTTP/1.1 500 x\r\n\r\nuntil the end", "HTTP/1.1 500 x\r\n", "HTTP/1.0 101 x\r\n\r\n", "SSH-2.0-x\r\n",
        "HTTP/1.1 101 x\r\nA: b\r\n c\r\n\r\nx", "HTTP/1.1 101 x\r\nA: \0\r\n\r\nx",
        OpeningSample.response(accept: "x"), "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\nabc",
    ]

    static let requests = [
        OpeningSample.opening("Origin: a") + "GET / HTTP/1.1\r\n\r\n", "\r\n\n" + OpeningSample.opening() + "\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\nrest", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\u{16}\u{3}",
        "GET / HTTP/1.1\r\nA: b\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET /\0 HTTP/1.1\r\n\r\n",
        "\r\r\n\r\n",
    ]

    @Test(arguments: Self.responses)
    func everySplitOfAResponseGivesOneResult(_ text: String) throws {
        let request = try OpeningSample.request(subprotocols: ["a"])
        let bytes = Array(text.utf8)
        let whole = ClientOutcome([bytes[...]], to: request, closes: true)
        #expect(ClientOutcome(Cuts.singly(bytes), to: request, closes: true) == whole)
        for pieces in Cuts.inTwo(bytes) + (bytes.count < 90 ? Cuts.inThree(bytes) : []) {
            let outcome = ClientOutcome(pieces, to: request, closes: true)
            guard outcome != whole else { continue }
            Issue.record("cut into \(pieces.map(\.count)): \(outcome), not \(whole)")
            return
        }
    }

    @Test(arguments: Self.requests)
    func everySplitOfARequestGivesOneHead(_ text: String) {
        let bytes = Array(text.utf8)
        let whole = ServerOutcome([bytes[...]])
        #expect(ServerOutcome(Cuts.singly(bytes)) == whole)
        for pieces in Cuts.inTwo(bytes) + (bytes.count < 90 ? Cuts.inThree(bytes) : []) {
            let outcome = ServerOutcome(pieces)
            guard outcome != whole else { continue }
            Issue.record("cut into \(pieces.map(\.count)): \(outcome), not \(whole)")
            return
        }
    }

    @Test func limitsDoNotDependOnSplits() throws {
        let request = try OpeningSample.request()
        var random = SplitMix(seed: 431)
        for length in 16_383...16_386 {
            let padding = length - OpeningSample.response("A: ").utf8.count
            let response = Array(OpeningSample.response("A: " + String(repeating: "x", count: padding)).utf8)
            let opening =
                Array("GET / HTTP/1.1\r\nHost: a\r\nA: ".utf8) + Array(repeating: 0x78, count: length - 32)
                + Array("\r\n\r\n".utf8)
            #expect(opening.count == length)
            let client = ClientOutcome([response[...]], to: request)
            let server = ServerOutcome([opening[...]])
            #expect((client.agreement != nil) == (length <= 16_384))
            #expect((server.head != nil) == (length <= 16_384))
            for _ in 0..<5 {
                #expect(ClientOutcome(Cuts.randomly(response, &random), to: request) == client)
                #expect(ServerOutcome(Cuts.randomly(opening, &random)) == server)
            }
            guard length == 16_385 else { continue }
            #expect(ClientOutcome(Cuts.singly(response), to: request) == client)
            #expect(ServerOutcome(Cuts.singly(opening)) == server)
        }
    }

    @Test func bodyDoesNotDependOnSplits() throws {
        let request = try OpeningSample.request()
        var random = SplitMix(seed: 8_192)
        for _ in 0..<40 {
            var text = "HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\n"
            var expected = ""
            for _ in 0..<Int.random(in: 0...12, using: &random) {
                let chunk = String(repeating: "abc", count: Int.random(in: 1...700, using: &random))
                text += String(chunk.utf8.count, radix: 16, uppercase: .random(using: &random)) + "\r\n\(chunk)\r\n"
                expected += chunk
            }
            let bytes = Array((text + "0\r\n\r\n").utf8)
            let whole = ClientOutcome([bytes[...]], to: request)
            #expect(whole.refusal.map { String(buffer: $0.body) } == String(expected.prefix(8_192)))
            #expect(ClientOutcome(Cuts.randomly(bytes, &random), to: request) == whole)
        }
    }

    /// Random changes of openings: nothing traps, and no split changes the outcome.
    @Test func mutatedOpeningsNeitherTrapNorDependOnSplits() throws {
        let request = try OpeningSample.request(subprotocols: ["a"], deflate: DeflatePolicy())
        let rules = try OpeningRules(subprotocols: ["a"], deflate: DeflatePolicy())
        let alphabet = Array("\r\n\t \0:;,=\"\\/?#[]@%019aZ\u{7F}\u{E9}".utf8)
        let responses =
            Self.responses + [
                OpeningSample.response("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits=\"9\"")
            ]
        let requests =
            Self.requests + [
                OpeningSample.opening(
                    "Sec-WebSocket-Protocol: a, b",
                    "Sec-WebSocket-Extensions: x;y=\"z\", permessage-deflate; server_max_window_bits=9"
                )
            ]
        for seed in 1...1_500 as ClosedRange<UInt64> {
            var random = SplitMix(seed: seed)
            func mutated(_ texts: [String]) -> [UInt8] {
                var bytes = Array(texts[Int.random(in: 0..<texts.count, using: &random)].utf8)
                for _ in 0..<Int.random(in: 1...4, using: &random) {
                    let position = Int.random(in: 0..<bytes.count, using: &random)
                    switch Int.random(in: 0...3, using: &random) {
                    case 0: bytes[position] = alphabet.randomElement(using: &random) ?? 0
                    case 1: bytes.insert(alphabet.randomElement(using: &random) ?? 0, at: position)
                    case 2: bytes[position] = UInt8.random(in: 0...255, using: &random)
                    default: if bytes.count > 1 { bytes.remove(at: position) }
                    }
                }
                return bytes
            }
            let response = mutated(responses)
            let client = ClientOutcome([response[...]], to: request, closes: true)
            #expect(ClientOutcome(Cuts.randomly(response, &random), to: request, closes: true) == client)
            let opening = mutated(requests)
            let server = ServerOutcome([opening[...]])
            #expect(ServerOutcome(Cuts.randomly(opening, &random)) == server)
            if let head = server.head { _ = rules.decide(head) }
            #expect(client.failure?.description.isEmpty != true)
            #expect(server.rejection?.encode().readableBytes != 0)
        }
    }

    @Test func randomOpeningsSucceed() throws {
        for seed in 1...500 as ClosedRange<UInt64> {
            var random = SplitMix(seed: seed)
            let offered = ["a", "b", "c", "d"].shuffled(using: &random).prefix(Int.random(in: 0...4, using: &random))
            let known = ["b", "c"].prefix(Int.random(in: 0...2, using: &random))
            let port = [80, 443, Int.random(in: 0...65_535, using: &random)].randomElement(using: &random) ?? 0
            let scheme = Bool.random(using: &random) ? "ws" : "wss"
            let host = ["a.example", "[::1]", "127.0.0.1"].randomElement(using: &random) ?? ""
            let request = try OpeningRequest(
                target: WebSocketTarget("\(scheme)://\(host):\(port)/p/q%20?r=\(seed)"),
                key: OpeningKey(using: &random),
                headers: ["Cookie": "s=\(seed)"],
                subprotocols: Array(offered),
                origin: Bool.random(using: &random) ? "https://a" : nil,
                deflate: Bool.random(using: &random) ? DeflatePolicy(clientWindowBits: 12) : nil
            )
            let rules = try OpeningRules(
                path: "/p/q%20",
                subprotocols: Array(known),
                deflate: Bool.random(using: &random) ? DeflatePolicy(serverWindowBits: 10) : nil
            )
            let sent = Array(buffer: request.encode())
            let server = ServerOutcome(Cuts.randomly(sent, &random))
            let head = try #require(server.head)
            #expect(head.host == request.target.host)
            #expect(head.port ?? (scheme == "ws" ? 80 : 443) == port)
            #expect(head.query == "r=\(seed)")
            let decision = rules.decide(head)
            let agreement = try #require(decision.agreement)
            let answer = Array(try #require(decision.response).utf8)
            let client = try #require(ClientOutcome(Cuts.randomly(answer, &random), to: request).agreement)
            #expect(client.subprotocol == offered.first { known.contains($0) })
            #expect(client.subprotocol == agreement.subprotocol)
            #expect(client.deflate == agreement.deflate)
            #expect((client.deflate != nil) == (request.deflate != nil && rules.deflate != nil))
        }
    }

    @Test func queriesAndValuesAreInNoDescription() throws {
        let request = try OpeningSample.request("ws://example.com/chat?secret", headers: ["Cookie": "secret"])
        let head = try #require(ServerOutcome(String(buffer: request.encode())).head)
        let result = ClientOutcome(OpeningSample.response("Set-Cookie: secret"), to: request)
        let redirect = ClientOutcome("HTTP/1.1 302 x\r\nLocation: /?secret\r\n\r\n", to: request)
        for text in ["\(request)", "\(head)", "\(result)", "\(redirect)", "\([head.headers])"] {
            #expect(!text.contains("secret"), "\(text)")
        }
    }

    @Test func garbageIsNotHTTP() throws {
        let request = try OpeningSample.request()
        var random = SplitMix(seed: 0)
        for number in 0..<500 {
            let bytes = (0..<Int.random(in: 1...(number % 50 == 0 ? 40_000 : 100), using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            #expect(ClientOutcome([bytes[...]], to: request, closes: true).failure != nil)
            if bytes.count > 16_384 { #expect(ServerOutcome([bytes[...]]).rejection != nil) }
        }
    }
}
