// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocketMessage

@Suite struct JSONParserTests {
    @Test func valuesOfEveryKind() throws {
        let value = try JSONParser.parse(#" [null, true, false, -0.5e+3, "a\n", {"b": [], "a": {}}] "#)
        #expect(
            value
                == .array([
                    .null, .bool(true), .bool(false), .number("-0.5e+3"), .string("a\n"),
                    .object([
                        .init(name: "b", value: .array([])), .init(name: "a", value: .object([JSONValue.Member]())),
                    ]),
                ])
        )
        #expect(value.text() == #"[null,true,false,-0.5e+3,"a\n",{"b":[],"a":{}}]"#)
    }

    @Test func indentedText() throws {
        let text = try JSONParser.parse(#"{"a":[1,{"b":null}],"c":{},"d":[]}"#).text(isIndented: true)
        #expect(
            text == """
                {
                  "a": [
                    1,
                    {
                      "b": null
                    }
                  ],
                  "c": {},
                  "d": []
                }
                """
        )
    }

    @Test(arguments: [
        ("", "line 1, column 1 of the JSON: it ends where a value is expected"),
        ("{\"a\":1,}", #"line 1, column 8 of the JSON: expected a name in quotation marks, found "}""#),
        ("[1,]", #"line 1, column 4 of the JSON: expected a value, found "]""#),
        ("[\n 1 2]", "line 2, column 4 of the JSON: expected a comma or the end of the array"),
        ("{\"a\" 1}", "line 1, column 6 of the JSON: expected a colon"), ("{a:1}", "line 1, column 2"),
        ("1 2", "line 1, column 3 of the JSON: expected the end, found \"2\""),
        ("yes", "line 1, column 1 of the JSON: yes is no value"), ("'a'", "line 1, column 1"),
        ("01", "line 1, column 1 of the JSON: 01 is no number"), ("1.", "line 1, column 1"), (".5", "line 1, column 1"),
        ("+1", "line 1, column 1"), ("1e", "line 1, column 1"), ("-", "line 1, column 1"), ("0x10", "line 1, column 1"),
        ("NaN", "line 1, column 1"), ("\"a", "line 1, column 1 of the JSON: a string that does not end"),
        ("\"\n\"", "line 1, column 2 of the JSON: a control character in a string"),
        (#""\x""#, "line 1, column 3 of the JSON: there is no such escape"), (#""\u12"#, "line 1, column 4"),
        (#""\u+123""#, "line 1, column 4"), (#""\ud800""#, "line 1, column 8 of the JSON: half of a surrogate pair"),
        (#""\udc00""#, "line 1, column 8 of the JSON: half of a surrogate pair"),
        (#""\ud800\u0041""#, "line 1, column 14"),
        (#"{"a":1,"\u0061":2}"#, #"line 1, column 8 of the JSON: the name "a" comes twice"#),
        ("\"\\", "line 1, column 3"),
        ("[1", "line 1, column 3"), ("{", "line 1, column 2"), ("// a\n1", "line 1, column 1"), ("\u{FEFF}1", "line 1"),
    ])
    func invalidJSONIsAnErrorWithItsPosition(text: String, error: String) {
        let found = #expect(throws: JSONSyntaxError.self) { try JSONParser.parse(text) }
        #expect(found?.description.hasPrefix(error) == true, "\(String(describing: found))")
    }

    @Test(arguments: [
        "2026-02-30T00:00:00Z", "2025-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:60Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-01-01t00:00:00z",
        "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.0000000001Z", "2026-01-01T00:00:00+0100", "26-01-01T00:00:00Z",
        "0000-12-31T23:59:59Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z",
        "2026-01-01T00:00:00Zx", "",
    ])
    func noTimestamps(text: String) {
        #expect(CivilTime(timestamp: text) == nil)
    }

    @Test(arguments: [
        "", "s", "1", "1.s", ".5s", "+1s", "--1s", "1.0000000001s", "315576000001s", "1e3s", " 1s", "1s ",
    ])
    func noDurations(text: String) {
        #expect(CivilTime(duration: text) == nil)
    }

    @Test func daysOfFiveCenturiesComeBack() throws {
        for day in stride(from: Int64(-100_000), through: 100_000, by: effort < 10 ? 7 : 1) {
            let time = CivilTime(seconds: day * 86_400 + 86_399, nanos: 0)
            let text = try #require(time.timestamp)
            guard CivilTime(timestamp: text) != time else { continue }
            Issue.record("\(text)")
        }
        #expect(CivilTime(seconds: 1_709_164_800, nanos: 0).timestamp == "2024-02-29T00:00:00Z")
        #expect(CivilTime(seconds: 0, nanos: -1).timestamp == nil)
        #expect(CivilTime(seconds: 1, nanos: -1).duration == nil)
        #expect(CivilTime(seconds: -315_576_000_000, nanos: -999_999_999).duration == "-315576000000.999999999s")
        #expect(CivilTime(duration: "315576000000.999999999s")?.nanos == 999_999_999)
        #expect(CivilTime(seconds: .min, nanos: .min).duration == nil)
    }
}
