// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct OpeningResponseTests {
    private func outcome(_ text: String, closes: Bool = false) throws -> ClientOutcome {
        ClientOutcome(text, to: try OpeningSample.request(subprotocols: ["a", "b"]), closes: closes)
    }

    // MARK: 101

    @Test func acceptedResponseHasWhatWasAgreed() throws {
        let text = OpeningSample.response("Sec-WebSocket-Protocol: b", "X-A: 1") + "\u{1}\u{2}"
        guard case .result(.accepted(let agreement, let rest)) = try self.outcome(text) else {
            Issue.record("not accepted")
            return
        }
        #expect(agreement.subprotocol == "b")
        #expect(agreement.deflate == nil)
        #expect(agreement.headers.values("x-a") == ["1"])
        #expect(Array(buffer: rest) == [1, 2])
    }

    @Test(arguments: [
        "HTTP/1.1 101\r\nupgrade: WebSocket\r\nconnection: upgrade\r\nsec-websocket-accept:%\r\n\r\n",
        "HTTP/1.1 101 \r\nUPGRADE:\twebsocket\t \r\nCONNECTION: UPGRADE\r\nSEC-WEBSOCKET-ACCEPT: %  \r\n\r\n",
        "HTTP/1.1 101 OK then\nUpgrade: WEBSOCKET\nConnection: keep-alive,Upgrade\nSec-WebSocket-Accept: %\n\n",
        "HTTP/1.1 101 x\r\nUpgrade: h2c, websocket\nConnection: a\r\nConnection: Upgrade\nSec-Websocket-Accept: %\n\r\n",
        "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: , ,upgrade,\r\nSec-WebSocket-Accept: %\r\nA:\r\n\r\n",
    ])
    func proxiesMayChangeCaseBlanksAndLineEnds(_ text: String) throws {
        let text = text.split(separator: "%").joined(separator: OpeningSample.accept)
        #expect(try self.outcome(text).agreement != nil)
    }

    @Test(
        arguments: [
            ("Upgrade: websocket", "X: y", .upgradeMissing), ("Upgrade: websocket", "Upgrade: h2c", .upgradeMissing),
            ("Upgrade: websocket", "Upgrade: websocket/13", .upgradeMissing),
            ("Upgrade: websocket", "Upgrade: web socket", .upgradeMissing),
            ("Connection: Upgrade", "X: y", .connectionMissing),
            ("Connection: Upgrade", "Connection: close", .connectionMissing),
            ("Connection: Upgrade", "Connection: upgraded", .connectionMissing),
            ("Sec-WebSocket-Accept: %", "X: y", .acceptMissing),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOO=", .acceptWrong),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept: S3PPLMBITXAQ9KYGZZHZRBK+XOO=", .acceptWrong),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept:", .acceptWrong),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept: \"%\"", .acceptWrong),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept: %, %", .acceptWrong),
            ("Sec-WebSocket-Accept: %", "Sec-WebSocket-Accept: %\r\nSec-WebSocket-Accept: %", .acceptRepeated),
            ("Sec-WebSocket-Accept: %", "sec-websocket-accept: %\r\nSec-WebSocket-Accept: x", .acceptRepeated),
        ] as [(String, String, OpeningError)]
    )
    func faulty101IsRefused(_ line: String, _ other: String, _ expected: OpeningError) throws {
        func filled(_ text: String) -> String { text.replacing("%", with: OpeningSample.accept) }
        let text = OpeningSample.response().replacing(filled(line), with: filled(other))
        #expect(text != OpeningSample.response())
        #expect(try self.outcome(text).failure == expected)
        #expect(!expected.isInvalidArgument)
    }

    @Test(
        arguments: [
            (["Sec-WebSocket-Protocol: c"], .subprotocolNotOffered("c")),
            (["Sec-WebSocket-Protocol: A"], .subprotocolNotOffered("A")),
            (["Sec-WebSocket-Protocol: a, b"], .subprotocolNotOffered("a, b")),
            (["Sec-WebSocket-Protocol:"], .subprotocolNotOffered("")),
            (["Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: a"], .subprotocolSelectedTwice),
            (["Sec-WebSocket-Protocol: a", "sec-websocket-protocol: b"], .subprotocolSelectedTwice),
        ] as [([String], OpeningError)]
    )
    func faultySubprotocolIsRefused(_ lines: [String], _ expected: OpeningError) throws {
        let text = OpeningSample.response().dropLast() + lines.joined(separator: "\r\n") + "\r\n\r\n"
        #expect(try self.outcome(String(text)).failure == expected)
    }

    @Test func serverMaySelectNoSubprotocolButNoneUnasked() throws {
        #expect(
            try self.outcome(OpeningSample.response()).agreement
                == OpeningAgreement(headers: [
                    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": OpeningSample.accept,
                ])
        )
        let unasked = ClientOutcome(
            OpeningSample.response("Sec-WebSocket-Protocol: a"),
            to: try OpeningSample.request()
        )
        #expect(unasked.failure == .subprotocolNotOffered("a"))
    }

    @Test func interimResponsesAreSkipped() throws {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102\r\n\r\n"
        let outcome = try self.outcome(interim + OpeningSample.response())
        #expect(outcome.agreement?.headers.contains("Link") == false)
        #expect(try self.outcome(interim) == .waiting)
        #expect(try self.outcome(interim, closes: true).failure == .closedEarly)
        #expect(try self.outcome(interim + "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n").refusal?.status == 500)
    }

    // MARK: Heads

    @Test(
        arguments: [
            ("SSH-2.0-OpenSSH_9.2\r\n", .notHTTP), ("\u{16}\u{3}\u{1}", .notHTTP), ("\r\n", .notHTTP), ("h", .notHTTP),
            ("HTTQ", .notHTTP), (" HTTP/1.1 101 x\r\n\r\n", .notHTTP), ("\0", .notHTTP),
            ("HTTP/1.0 101 x\r\n\r\n", .unsupportedVersion), ("HTTP/2 200\r\n\r\n", .unsupportedVersion),
            ("HTTP/1.10 101 x\r\n\r\n", .unsupportedVersion), ("HTTP/1.1\t101 x\r\n\r\n", .unsupportedVersion),
            ("HTTP/1.1\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1  101 x\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 1x1 x\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 1010 x\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 10\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 099 x\r\n\r\n", .malformedHead(.startLine)), ("HTTP/1.1 \r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 -01 x\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 101x\r\n\r\n", .malformedHead(.startLine)),
            ("HTTP/1.1 101 x\0\r\n\r\n", .malformedHead(.controlCharacter)),
            ("HTTP/1.1 101 x\r\nA: b\r\n c\r\n\r\n", .malformedHead(.foldedLine)),
            ("HTTP/1.1 101 x\r\n A: b\r\n\r\n", .malformedHead(.foldedLine)),
            ("HTTP/1.1 101 x\r\nA: b\r\n\tc\r\n\r\n", .malformedHead(.foldedLine)),
            ("HTTP/1.1 101 x\r\n \r\n\r\n", .malformedHead(.foldedLine)),
            ("HTTP/1.1 101 x\r\nA : b\r\n\r\n", .malformedHead(.fieldName)),
            ("HTTP/1.1 101 x\r\nA b: c\r\n\r\n", .malformedHead(.fieldName)),
            ("HTTP/1.1 101 x\r\n: b\r\n\r\n", .malformedHead(.fieldName)),
            ("HTTP/1.1 101 x\r\nÄ: b\r\n\r\n", .malformedHead(.fieldName)),
            ("HTTP/1.1 101 x\r\nA\r\n\r\n", .malformedHead(.missingColon)),
            ("HTTP/1.1 101 x\r\nA: b\0c\r\n\r\n", .malformedHead(.controlCharacter)),
            ("HTTP/1.1 101 x\r\nA: b\rc\r\n\r\n", .malformedHead(.controlCharacter)),
            ("HTTP/1.1 101 x\r\nA: b\r\r\n\r\n", .malformedHead(.controlCharacter)),
            ("HTTP/1.1 101 x\r\nA: \u{7F}\r\n\r\n", .malformedHead(.controlCharacter)),
            ("HTTP/1.1 101 x\r\nA: \u{1}\r\n\r\n", .malformedHead(.controlCharacter)),
        ] as [(String, OpeningError)]
    )
    func malformedHeadIsRefused(_ text: String, _ expected: OpeningError) throws {
        #expect(try self.outcome(text).failure == expected)
    }

    @Test func headHasLimit() throws {
        let base = OpeningSample.response("A: ").utf8.count
        let longest = OpeningSample.response("A: " + String(repeating: "x", count: 16_384 - base))
        #expect(longest.utf8.count == 16_384)
        #expect(try self.outcome(longest + "more").agreement != nil)
        let longer = OpeningSample.response("A: " + String(repeating: "x", count: 16_385 - base))
        #expect(try self.outcome(longer).failure == .headTooLong)
        #expect(try self.outcome("HTTP/1.1 101 " + String(repeating: "x", count: 16_370)) == .waiting)
        #expect(try self.outcome("HTTP/1.1 101 " + String(repeating: "x", count: 16_371)).failure == .headTooLong)
        // All heads share the limit, so that the number of interim ones is bounded.
        let interim = String(repeating: "HTTP/1.1 100 x\r\n\r\n", count: 911)
        #expect(try self.outcome(interim).failure == .headTooLong)
        let many = OpeningSample.response(String(repeating: "A:\n", count: 5_300) + "B: ")
        #expect(try self.outcome(many).agreement?.headers.all.count == 5_304)
    }

    @Test func closeBeforeTheEndOfTheHeadIsAnError() throws {
        let text = OpeningSample.response()
        for length in [0, 1, 20, text.utf8.count - 1] {
            let cut = String(decoding: text.utf8.prefix(length), as: UTF8.self)
            #expect(try self.outcome(cut, closes: true).failure == .closedEarly)
        }
    }

    // MARK: Redirects

    @Test(arguments: [301, 302, 303, 307, 308])
    func redirectHasItsLocation(_ status: Int) throws {
        let text = "HTTP/1.1 \(status) Moved\r\nLocation: https://b/c?d\r\nContent-Length: 5\r\n\r\n"
        let expected = OpeningResult.redirect(status: status, location: try WebSocketTarget("wss://b/c?d"))
        #expect(try self.outcome(text) == .result(expected))
    }

    @Test func redirectMayBeRelative() throws {
        let outcome = try self.outcome("HTTP/1.1 302 x\r\nLocation: /other\r\n\r\n")
        let location = try WebSocketTarget("ws://example.com/other")
        #expect(outcome == .result(.redirect(status: 302, location: location)))
    }

    @Test(arguments: [300, 304, 305, 306, 309])
    func otherStatusesOf3xxAreRefusals(_ status: Int) throws {
        let text = "HTTP/1.1 \(status) x\r\nLocation: https://b/\r\nContent-Length: 0\r\n\r\n"
        #expect(try self.outcome(text).refusal?.status == status)
    }

    @Test func redirectWithoutLocationIsARefusal() throws {
        #expect(try self.outcome("HTTP/1.1 302 x\r\nContent-Length: 0\r\n\r\n").refusal?.status == 302)
    }

    @Test func faultyLocationIsAnError() throws {
        let twice = "HTTP/1.1 302 x\r\nLocation: /a\r\nLocation: /a\r\n\r\n"
        #expect(try self.outcome(twice).failure == .repeatedLocation)
        let other = "HTTP/1.1 302 x\r\nLocation: ftp://a?secret\r\n\r\n"
        #expect(try self.outcome(other).failure == .invalidLocation(.unknownScheme))
        #expect(try self.outcome(other).failure?.description.contains("secret") == false)
    }

    // MARK: Refusals

    @Test(arguments: [200, 204, 400, 401, 403, 404, 407, 426, 429, 500, 503, 999])
    func otherStatusIsARefusal(_ status: Int) throws {
        let text = "HTTP/1.1 \(status) Not \u{1F600}now\r\nX-A: b\r\nContent-Length: 4\r\n\r\ntextmore"
        let refusal = try #require(try self.outcome(text).refusal)
        #expect(refusal.status == status)
        #expect(refusal.reason == "Not ????now")
        #expect(refusal.headers.first("x-a") == "b")
        #expect(String(buffer: refusal.body) == (status == 204 ? "" : "text"))
        #expect(refusal.retryAfter == nil)
    }

    @Test func reasonIsShortAndMayBeMissing() throws {
        let long = "HTTP/1.1 500 \(String(repeating: "x", count: 1_000))\r\nContent-Length: 0\r\n\r\n"
        #expect(try self.outcome(long).refusal?.reason.utf8.count == 80)
        #expect(try self.outcome("HTTP/1.1 500\r\nContent-Length: 0\r\n\r\n").refusal?.reason == "")
    }

    @Test(arguments: [
        ("Content-Length: 3", "abcdef", "abc"), ("Content-Length: 3, 3", "abcdef", "abc"),
        ("Content-Length: 3\r\nContent-Length: 3", "abcdef", "abc"), ("Content-Length: 0", "abc", ""),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n", "abcde"),
        ("transfer-encoding: gzip, Chunked", "3\nabc\n0\n", "abc"), ("Transfer-Encoding: chunked", "0\r\n\r\n", ""),
        ("Transfer-Encoding: chunked\r\nContent-Length: 1", "A \r\n0123456789\r\n0\r\n", "0123456789"),
        // If the framing is faulty, the bytes before the fault are the body.
        ("Transfer-Encoding: chunked", "3\r\nabcd\r\n", "abc"), ("Transfer-Encoding: chunked", "x\r\nabc", ""),
        ("Transfer-Encoding: chunked", "-3\r\nabc", ""), ("Transfer-Encoding: chunked", "\r\nabc", ""),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\nFFFFFFFFF\r\n", "abc"),
        ("Transfer-Encoding: chunked", "7FFFFFFFFFFFFFFF\r\nabc", ""),
        ("Transfer-Encoding: chunked", "1;" + String(repeating: "x", count: 1_100), ""),
    ])
    func bodyEndsWhereItIsFramed(_ fields: String, _ body: String, _ expected: String) throws {
        let refusal = try self.outcome("HTTP/1.1 500 x\r\n\(fields)\r\n\r\n\(body)").refusal
        #expect(refusal.map { String(buffer: $0.body) } == expected)
    }

    @Test(arguments: [
        "X: y", "Content-Length: 3, 4", "Content-Length: 3\r\nContent-Length: 4", "Content-Length: x",
        "Content-Length: -3", "Content-Length: 99999999999999999999", "Content-Length: 10", "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
    ])
    func bodyOtherwiseEndsWithTheConnection(_ fields: String) throws {
        let text = "HTTP/1.1 500 x\r\n\(fields)\r\n\r\nabcde"
        #expect(try self.outcome(text) == .waiting)
        #expect(try self.outcome(text, closes: true).refusal.map { String(buffer: $0.body) } == "abcde")
    }

    @Test(arguments: ["Content-Length: 100000", "X: y", "Transfer-Encoding: chunked"])
    func bodyHasLimit(_ field: String) throws {
        let size = field.hasPrefix("T") ? "186A0\r\n" : ""
        let head = "HTTP/1.1 500 x\r\n\(field)\r\n\r\n\(size)"
        #expect(try self.outcome(head + String(repeating: "x", count: 8_191)) == .waiting)
        for more in [0, 1, 10_000] {
            let outcome = try self.outcome(head + String(repeating: "x", count: 8_192 + more))
            #expect(outcome.refusal?.body.readableBytes == 8_192)
        }
    }

    @Test(
        arguments: [
            ("120", 120), ("0", 0), ("600", 600), ("601", 600), ("99999999999999999999999", 600),
            ("Sun, 06 Nov 1994 08:50:37 GMT", 60), ("Sunday, 06-Nov-94 08:49:47 GMT", 10),
            ("Sun Nov  6 08:49:38 1994", 1),
            ("Sun, 06 Nov 1994 08:00:00 GMT", 0), ("Fri, 31 Dec 9999 23:59:59 GMT", 600), ("-1", nil), ("1.5", nil),
            ("soon", nil), ("", nil), ("+5", nil), ("Sun, 06 Nov 1994 08:50:37 CET", nil),
        ] as [(String, Int?)]
    )
    func retryAfterIsReadUpToTenMinutes(_ text: String, _ seconds: Int?) throws {
        let head = "HTTP/1.1 503 x\r\nRetry-After: \(text)\r\nContent-Length: 0\r\n\r\n"
        let refusal = try #require(try self.outcome(head).refusal)
        #expect(refusal.retryAfter == seconds)
    }

    @Test func retryAfterDoesNotOverflow() throws {
        let text = "HTTP/1.1 503 x\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\nContent-Length: 0\r\n\r\n"
        for (now, expected) in [(Int64.min, 600), (.max, 0)] {
            var reader = OpeningResponseReader(for: try OpeningSample.request())
            reader.append(ByteBuffer(string: text))
            guard case .refused(let refusal) = try reader.next(now: now) else {
                Issue.record("not refused")
                return
            }
            #expect(refusal.retryAfter == expected)
        }
    }

    @Test func resultComesOnce() throws {
        for text in [OpeningSample.response(), "HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"] {
            var reader = OpeningResponseReader(for: try OpeningSample.request())
            reader.append(ByteBuffer(string: text))
            #expect(try reader.next(now: 0) != nil)
            #expect(try reader.next(now: 0) == nil)
            #expect(try reader.finish() == nil)
        }
    }

    @Test func restIsASliceOfWhatCame() throws {
        let text = ByteBuffer(string: OpeningSample.response() + "frames")
        var reader = OpeningResponseReader(for: try OpeningSample.request())
        reader.append(text)
        guard case .accepted(_, let rest) = try reader.next(now: 0) else {
            Issue.record("not accepted")
            return
        }
        let start = text.withUnsafeReadableBytes { $0.baseAddress }
        let restStart = rest.withUnsafeReadableBytes { $0.baseAddress }
        #expect(restStart == start?.advanced(by: text.readableBytes - 6))
    }
}

@Suite struct HTTPDateTests {
    @Test(
        arguments: [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400), ("Thu, 29 Feb 2024 12:00:00 GMT", 1_709_208_000),
            ("Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648), ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1), ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            // Two digits: 44 is 50 years after 1994, and 45 is in the previous century.
            ("Sunday, 06-Nov-44 00:00:00 GMT", -793_756_800), ("Sunday, 06-Nov-00 00:00:00 GMT", -2_182_291_200),
        ] as [(String, Int64)]
    )
    func dateIsRead(_ text: String, _ seconds: Int64) {
        #expect(HTTPDate.seconds(text, now: OpeningSample.now) == seconds)
    }

    @Test func yearOfTwoDigitsIsNearToNow() {
        // 2026-01-01.
        let now: Int64 = 1_767_225_600
        #expect(HTTPDate.seconds("Thursday, 01-Jan-26 00:00:00 GMT", now: now) == now)
        #expect(HTTPDate.seconds("Wednesday, 01-Jan-76 00:00:00 GMT", now: now) == 3_345_062_400)
        #expect(HTTPDate.seconds("Friday, 01-Jan-77 00:00:00 GMT", now: now) == 220_924_800)
        for now in [Int64.min, -1, .max] {
            #expect(HTTPDate.seconds("Friday, 01-Jan-77 00:00:00 GMT", now: now) != nil)
        }
    }

    @Test(arguments: [
        "", "Sun", "Sun, 06 Nov 1994", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 nov 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 1900 08:49:37 GMT", "Sun, 29 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT", "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 1994 8:49:37 GMT",
        "Sun, 06 Nov 1994 08:49 GMT", "Sun, 06 Nov 19944 08:49:37 GMT", "Sun, 06 Nov 199 08:49:37 GMT",
        "Sun, 006 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT x", "Sun, -6 Nov 1994 08:49:37 +000",
        "99999999999999999999 Nov 1 1 1 GMT", "Sun, 06 Nov 1994 ::: GMT", "Sun Nov 6 1994 08:49:37",
    ])
    func textThatIsNoDateIsRefused(_ text: String) {
        #expect(HTTPDate.seconds(text, now: OpeningSample.now) == nil)
    }
}
