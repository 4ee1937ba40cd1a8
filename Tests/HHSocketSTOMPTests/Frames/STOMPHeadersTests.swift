// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketSTOMP

/// Headers are ordered, repeated, case-sensitive, and never trimmed.
@Suite struct STOMPHeadersTests {
    /// Headers as created, and as received.
    static let both: [STOMPHeaders] = {
        let stream = DecodedFrames("MESSAGE\na:1\nb: 2 \na:3\nA:4\n\n\0")
        return [["a": "1", "b": " 2 ", "a": "3", "A": "4"], stream.frames.first?.headers ?? [:]]
    }()

    @Test(arguments: both) func areACollectionInOrder(headers: STOMPHeaders) {
        #expect(headers.map { "\($0.name)=\($0.value)" } == ["a=1", "b= 2 ", "a=3", "A=4"])
        #expect(headers.count == 4 && headers.startIndex == 0 && headers.endIndex == 4)
        #expect(headers[1] == ("b", " 2 "))
        #expect(headers.last?.value == "4" && headers.reversed().first?.name == "A")
        #expect(STOMPHeaders().isEmpty && STOMPHeaders(headers) == headers)
    }

    @Test(arguments: both) func firstCounts(headers: STOMPHeaders) {
        #expect(headers["a"] == "1" && headers["A"] == "4" && headers["b"] == " 2 ")
        #expect(headers["c"] == nil && headers[""] == nil && headers["aa"] == nil)
        #expect(headers.values(of: "a") == ["1", "3"] && headers.values(of: "c") == [])
        #expect(headers.contains(name: "A") && !headers.contains(name: "B"))
        #expect(headers.bytes(of: "b").map { Array($0) } == [0x20, 0x32, 0x20])
        #expect(headers.bytes(of: "c") == nil)
    }

    @Test(arguments: both) func settingReplacesAllByOneAtThePositionOfTheFirst(headers: STOMPHeaders) {
        var changed = headers
        changed["a"] = "5"
        #expect(changed == ["a": "5", "b": " 2 ", "A": "4"])
        changed["c"] = ""
        #expect(changed == ["a": "5", "b": " 2 ", "A": "4", "c": ""])
        changed["b"] = nil
        #expect(changed == ["a": "5", "A": "4", "c": ""])
        changed["none"] = nil
        #expect(changed.count == 3)
        changed.add(name: "a", value: "6")
        changed["a"] = nil
        #expect(changed == ["A": "4", "c": ""])
        #expect(headers.count == 4)
    }

    @Test(arguments: both) func areEqualByNamesValuesAndOrder(headers: STOMPHeaders) {
        #expect(Set(Self.both + [headers]).count == 1)
        #expect(headers != ["b": " 2 ", "a": "1", "a": "3", "A": "4"])
        #expect(headers != ["a": "1", "b": "2", "a": "3", "A": "4"])
        #expect(headers != ["a": "1", "b": " 2 ", "a": "3"])
        #expect(["a": "bc"] as STOMPHeaders != ["ab": "c"])
    }

    @Test func descriptionHasNoSecretsAndNoBody() {
        let frame = STOMPFrame(
            .connect,
            ["host": "/", "login": "guest", "passcode": "open sesame", "x": "a\nb\u{1B}", "passcode": "again"],
            text: "body secret"
        )
        for text in ["\(frame)", String(reflecting: frame), "\(frame.headers)", String(reflecting: [frame.headers])] {
            for secret in ["guest", "sesame", "again", "secret"] { #expect(!text.contains(secret)) }
        }
        #expect("\(frame)" == "CONNECT host:/ login:… passcode:… x:a\\nb\\u{1B} passcode:…, body of 11 B")
        #expect("\(STOMPFrame(.receipt))" == "RECEIPT")
        #expect("\(STOMPFrame(.init(rawValue: "A\n\u{202E}")))" == "A\\n\\u{202E}")
        let long: STOMPHeaders = ["a": String(repeating: "b", count: 81)]
        #expect("\(long)" == "a:" + String(repeating: "b", count: 80) + "…")
    }

    @Test func versionsAreOrderedAndHaveNamesOverWebSocket() {
        #expect(STOMPVersion.allCases == [.v1_0, .v1_1, .v1_2] && STOMPVersion.v1_0 < .v1_1)
        #expect(STOMPVersion.allCases.map(\.webSocketSubprotocol) == ["v10.stomp", "v11.stomp", "v12.stomp"])
        for version in STOMPVersion.allCases {
            #expect(STOMPVersion(webSocketSubprotocol: version.webSocketSubprotocol) == version)
            #expect(STOMPVersion(rawValue: "\(version)") == version)
        }
        #expect(STOMPVersion(webSocketSubprotocol: "V12.STOMP") == nil)
    }

    @Test func highestCommonVersionIsChosen() {
        let all = STOMPVersion.allCases
        #expect(STOMPVersion.highest(of: all, accepted: "1.0,1.1,1.2") == .v1_2)
        #expect(STOMPVersion.highest(of: all, accepted: "1.1,1.0") == .v1_1)
        #expect(STOMPVersion.highest(of: [.v1_0, .v1_1], accepted: "1.2, 1.1") == .v1_1)
        #expect(STOMPVersion.highest(of: all, accepted: "2.0,1.25,11") == nil)
        #expect(STOMPVersion.highest(of: all, accepted: "") == nil)
        #expect(STOMPVersion.highest(of: all, accepted: nil) == .v1_0)
        #expect(STOMPVersion.highest(of: [.v1_2], accepted: nil) == nil)
    }

    @Test func heartBeatsAreAgreedOnByTheFormula() throws {
        let client = try #require(STOMPHeartBeat("10000,5000"))
        #expect(client == STOMPHeartBeat(sends: 10_000, receives: 5_000) && "\(client)" == "10000,5000")
        let server = STOMPHeartBeat(sends: 0, receives: 20_000)
        #expect(client.interval(to: server) == 20_000)
        #expect(server.interval(to: client) == nil)
        #expect(STOMPHeartBeat(sends: 1, receives: 0).interval(to: client) == 5_000)
        #expect(client.interval(to: STOMPHeartBeat(sends: 1, receives: 0)) == nil)
        #expect(STOMPHeartBeat(nil) == STOMPHeartBeat(sends: 0, receives: 0))
        for wrong in ["", "1", "1,", ",1", "1,2,3", "-1,2", "1, 2", "a,b"] { #expect(STOMPHeartBeat(wrong) == nil) }
        let huge = STOMPHeartBeat("99999999999999999999999,1")
        #expect(huge == STOMPHeartBeat(sends: 999_999_999, receives: 1))
    }
}
