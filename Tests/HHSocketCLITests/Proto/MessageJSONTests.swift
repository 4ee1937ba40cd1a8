// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

@Suite(.timeLimit(.minutes(30))) struct MessageJSONTests {
    @Test(arguments: [
        #"{}"#,
        #"{"aInt32":-2147483648,"aSint32":2147483647,"aSfixed32":-1}"#,
        #"{"aInt64":"-9223372036854775808","aSint64":"9223372036854775807","aSfixed64":"9007199254740993"}"#,
        #"{"aUint32":4294967295,"aFixed32":1,"aUint64":"18446744073709551615","aFixed64":"9007199254740993"}"#,
        #"{"aFloat":1.5,"aDouble":1e+100}"#,
        #"{"aFloat":0.1,"aDouble":0.1}"#,
        #"{"aFloat":-0.0,"aDouble":-0.0}"#,
        #"{"aFloat":"NaN","aDouble":"-Infinity"}"#,
        #"{"aFloat":"Infinity","aDouble":5e-324}"#,
        #"{"aBool":true,"aString":"ü \"\\\n\u0000\u2028😀","aBytes":"AAH//g=="}"#,
        #"{"aMood":"MOOD_BAD","aLeaf":{}}"#,
        #"{"aMood":7,"aLeaf":{"text":"x","tags":["","y"]}}"#,
        #"{"maybeInt32":0,"maybeString":"","maybeMood":"MOOD_UNSPECIFIED"}"#,
        #"{"someInt32":[0,1,-1],"someInt64":["0","1"],"someString":["","a"],"someBytes":["","AA=="]}"#,
        #"{"someMood":["MOOD_UNSPECIFIED",5],"someLeaf":[{},{"text":"x"}],"someBool":[true,false]}"#,
        #"{"someDouble":[0,1.5,"NaN"]}"#,
        #"{"byString":{"":0,"a\"b":1},"byInt32":{"-1":"x","0":""}}"#,
        #"{"byBool":{"true":{},"false":{"text":"x"}},"byUint64":{"18446744073709551615":"MOOD_GOOD"}}"#,
        #"{"oneInt32":0}"#, #"{"oneString":""}"#, #"{"oneLeaf":{}}"#, #"{"oneMood":"MOOD_UNSPECIFIED"}"#,
        #"{"at":"1970-01-01T00:00:00Z","lasts":"0s","nothing":{}}"#,
        #"{"at":"0001-01-01T00:00:00Z","lasts":"-315576000000s"}"#,
        #"{"lasts":"315576000000.999999999s"}"#, #"{"lasts":"-315576000000.999999999s"}"#,
        #"{"at":"9999-12-31T23:59:59.999999999Z","lasts":"-0.000000001s"}"#,
        #"{"wrappedString":"","wrappedInt64":"0","wrappedBytes":"AA==","wrappedBool":false,"wrappedDouble":"NaN"}"#,
        #"{"inner":{"inner":{"aInt32":1}},"called":"x","nested":{"depth":3}}"#,
        #"{"any":{}}"#, #"{"any":{"@type":"type.googleapis.com/test.Leaf","text":"x","tags":["y"]}}"#,
        #"{"any":{"@type":"a/b/google.protobuf.Timestamp","value":"1970-01-01T00:00:00Z"}}"#,
        #"{"any":{"@type":"x/google.protobuf.Any","value":{"@type":"x/google.protobuf.Struct","value":{"a":1}}}}"#,
        #"{"any":{"@type":"type.googleapis.com/nobody.Knows","value":"AP8="}}"#,
        #"{"struct":{}}"#, #"{"struct":{"a":null,"b":-1.5,"c":"x","d":true,"e":{"f":{}},"g":[[],[null,"",0,false]]}}"#,
        #"{"mask":""}"#, #"{"mask":"a,fooBar.bazQux,x1"}"#,
        #"{"value":null}"#, #"{"value":false}"#, #"{"value":{"a":[1]}}"#, #"{"value":[null]}"#, #"{"value":""}"#,
        #"{"list":[]}"#, #"{"list":[1,"x",null,{"a":[]}]}"#, #"{"values":[null,1,"x"]}"#,
    ])
    func comesBackAsItWas(json: String) throws {
        #expect(try TestProtos.roundTrip(json) == json)
    }

    @Test(arguments: [
        // Names as in the .proto, numbers as strings and the other way round.
        (#"{"a_int32":"5","a_int64":5,"renamed":"x"}"#, #"{"aInt32":5,"aInt64":"5","called":"x"}"#),
        (#"{"aInt32":1e3,"aInt64":1.0,"aUint32":10.50e1}"#, #"{"aInt32":1000,"aInt64":"1","aUint32":105}"#),
        (
            #"{"aUint64":18446744073709551615,"aInt64":-9223372036854775808}"#,
            #"{"aInt64":"-9223372036854775808","aUint64":"18446744073709551615"}"#
        ),
        (#"{"aInt64":9007199254740993}"#, #"{"aInt64":"9007199254740993"}"#),
        (#"{"aFloat":"1.5","aDouble":"-1e2"}"#, #"{"aFloat":1.5,"aDouble":-100}"#),
        // Both alphabets, padded or not.
        (#"{"aBytes":"-_8"}"#, #"{"aBytes":"+/8="}"#), (#"{"aBytes":"+/8"}"#, #"{"aBytes":"+/8="}"#),
        (#"{"aMood":1}"#, #"{"aMood":"MOOD_GOOD"}"#), (#"{"aMood":0}"#, "{}"),
        // All fields absent; and fields that are zero without having been sent.
        (#"{"aInt32":null,"aLeaf":null,"someInt32":null,"byString":null,"oneInt32":null,"at":null}"#, "{}"),
        (#"{"oneInt32":null,"oneString":"x"}"#, #"{"oneString":"x"}"#),
        (#"{"aInt32":0,"aString":"","aBool":false,"someInt32":[],"byString":{},"aDouble":0}"#, "{}"),
        // In the order of the numbers, and the map's entries in that of the bytes.
        (
            #"{"called":"x","aInt32":1,"byString":{"b":1,"a":2}}"#,
            #"{"aInt32":1,"byString":{"b":1,"a":2},"called":"x"}"#
        ),
        (#"{"at":"2026-02-03T04:05:06.5+01:00"}"#, #"{"at":"2026-02-03T03:05:06.500Z"}"#),
        (#"{"at":"2024-02-29T23:59:59.000001-00:30"}"#, #"{"at":"2024-03-01T00:29:59.000001Z"}"#),
        (#"{"lasts":"-1.5s"}"#, #"{"lasts":"-1.500s"}"#), (#"{"lasts":"1.000000001s"}"#, #"{"lasts":"1.000000001s"}"#),
        (#"{"wrappedInt64":7}"#, #"{"wrappedInt64":"7"}"#),
        // null is a value of these two.
        (#"{"null":null,"any":null,"struct":null,"list":null,"mask":null}"#, "{}"),
        (#"{"null":"NULL_VALUE"}"#, "{}"),
        (#"{"any":{"a_int32":1,"@type":"x/test.Everything"}}"#, #"{"any":{"@type":"x/test.Everything","aInt32":1}}"#),
        ("\t{ \"aString\" :\r\n\"\\u00fc\\ud83d\\ude00\\/\\b\" } ", #"{"aString":"ü😀/\u0008"}"#),
    ])
    func severalSpellings(json: String, printed: String) throws {
        #expect(try TestProtos.roundTrip(json) == printed)
    }

    @Test(arguments: [
        ("google.protobuf.Timestamp", #""2026-02-03T04:05:06Z""#), ("google.protobuf.Duration", #""3s""#),
        ("google.protobuf.StringValue", #""x""#), ("google.protobuf.UInt64Value", #""18446744073709551615""#),
        ("google.protobuf.BoolValue", "true"), ("google.protobuf.Empty", "{}"),
        ("test.Old", #"{"id":0,"name":"","shade":"DARK","loose":[1,2],"packed":[3],"inner":{"id":1}}"#),
    ])
    func otherMessages(name: String, json: String) throws {
        #expect(try TestProtos.roundTrip(json, as: name) == json)
    }

    @Test(arguments: [
        (#"{"aInt33":1}"#, "$.aInt33: test.Everything has no such field (did you mean aInt32, aInt64 or aSint32?)"),
        (#"{"aLeaf":{"xyzzyx":1}}"#, "$.aLeaf.xyzzyx: test.Leaf has no such field (there is text and tags)"),
        (#"{"a b":1}"#, #"$["a b"]: test.Everything has no such field"#),
        (#"{"aLeaf":{"tags":["a","b",3]}}"#, "$.aLeaf.tags[2]: expected a string, found a number"),
        (#"{"someLeaf":[{},{"text":[]}]}"#, "$.someLeaf[1].text: expected a string, found an array"),
        (#"{"byBool":{"true":{"text":1}}}"#, #"$.byBool["true"].text: expected a string, found a number"#),
        ("[]", "$: expected an object, for test.Everything, found an array"), ("null", "$: expected an object"),
        (#"{"aInt32":2147483648}"#, "$.aInt32: 2147483648 is out of the range of a 32-bit integer"),
        (#"{"aInt64":"9223372036854775808"}"#, "$.aInt64: 9223372036854775808 is out of the range"),
        (#"{"aUint32":-1}"#, "$.aUint32: -1 is out of the range of an unsigned 32-bit integer"),
        (#"{"aUint64":18446744073709551616}"#, "$.aUint64: 18446744073709551616 is out of the range"),
        (#"{"aInt32":1e999999999999999999999}"#, "$.aInt32: 1e999999999999999999999 is out of the range"),
        (#"{"aInt32":1.5}"#, "$.aInt32: expected a 32-bit integer, found 1.5"),
        (#"{"aInt32":1e-999999999999999999999}"#, "$.aInt32: expected a 32-bit integer, found 1e-9999"),
        (#"{"aInt32":"five"}"#, "$.aInt32: expected a 32-bit integer, found five"),
        (#"{"aInt32":" 5"}"#, "$.aInt32: expected"), (#"{"aInt32":"05"}"#, "$.aInt32: expected"),
        (#"{"aInt32":""}"#, "$.aInt32: expected"),
        (#"{"aInt32":true}"#, "$.aInt32: expected a 32-bit integer, found a bo"),
        (#"{"aFloat":1e39}"#, "$.aFloat: 1e39 is out of the range of a float"),
        (#"{"aDouble":-1e400}"#, "$.aDouble: -1e400 is out of the range of a double"),
        (#"{"aDouble":"inf"}"#, "$.aDouble: expected a number"),
        (#"{"aDouble":"0x1p3"}"#, "$.aDouble: expected a number"),
        (#"{"aBool":"true"}"#, "$.aBool: expected true or false, found a string"),
        (#"{"aBytes":"*"}"#, "$.aBytes: expected Base64, found *"),
        (#"{"aBytes":"AAAAA"}"#, "$.aBytes: expected Base64"),
        (#"{"aBytes":5}"#, "$.aBytes: expected a string of Base64, found a number"),
        (#"{"aMood":"MOOD_GODO"}"#, #"$.aMood: test.Mood has no value "MOOD_GODO" (did you mean MOOD_GOOD"#),
        (#"{"aMood":1.5}"#, "$.aMood: expected a 32-bit integer, for test.Mood"),
        (#"{"aMood":[]}"#, "$.aMood: expected a value of test.Mood, by name or number, found an array"),
        (#"{"someInt32":1}"#, "$.someInt32: expected an array, found a number"),
        (#"{"someInt32":[null]}"#, "$.someInt32[0]: expected a 32-bit integer, found null"),
        (#"{"byString":[]}"#, "$.byString: expected an object, for a map, found an array"),
        (#"{"byString":{"a":null}}"#, #"$.byString["a"]: expected a 32-bit integer, found null"#),
        (#"{"byInt32":{"x":""}}"#, #"$.byInt32["x"]: expected a 32-bit integer, found x"#),
        (#"{"byInt32":{"1":"","1.0":""}}"#, #"$.byInt32["1.0"]: this key comes twice"#),
        (#"{"byBool":{"yes":{}}}"#, #"$.byBool["yes"]: expected the key true or false, found yes"#),
        (
            #"{"oneInt32":1,"oneString":"x"}"#,
            "$.oneString: oneInt32 and oneString exclude each other, as members of the"
        ),
        (#"{"aInt32":1,"a_int32":1}"#, "$.a_int32: the same field as aInt32"),
        (#"{"at":5}"#, "$.at: expected a timestamp such as 2026-02-03T04:05:06Z, found a number"),
        (#"{"at":"yesterday"}"#, "$.at: expected a timestamp such as 2026-02-03T04:05:06Z, found yesterday"),
        (#"{"lasts":"5"}"#, "$.lasts: expected a duration such as 1.5s, found 5"),
        (#"{"nothing":{"a":1}}"#, "$.nothing.a: google.protobuf.Empty has no such field"),
        (#"{"any":5}"#, "$.any: expected an object with @type, found a number"),
        (#"{"any":{"text":"x"}}"#, "$.any: @type, such as type.googleapis.com/chat.Note, is needed once"),
        (#"{"any":{"@type":1}}"#, "$.any: @type"),
        (#"{"any":{"@type":"x/no.Such","a":1}}"#, #"$.any: the type of "x/no.Such" is not declared; give"#),
        (#"{"any":{"@type":"x/no.Such","value":"*"}}"#, "$.any.value: expected Base64, found *"),
        (#"{"any":{"@type":"x/test.Leaf","text":1}}"#, "$.any.text: expected a string, found a number"),
        (#"{"any":{"@type":"x/test.Leaf","value":""}}"#, "$.any.value: test.Leaf has no such field"),
        (#"{"any":{"@type":"x/test.Old","name":""}}"#, "$.any: the required field id is missing"),
        (#"{"any":{"@type":"x/google.protobuf.Duration","value":"5"}}"#, "$.any.value: expected a duration"),
        (#"{"any":{"@type":"x/google.protobuf.Duration"}}"#, "$.any: a google.protobuf.Duration is needed as value"),
        (#"{"struct":[]}"#, "$.struct: expected an object, for a map, found an array"),
        (#"{"struct":{"a":[0,1e400]}}"#, #"$.struct["a"][1]: 1e400 is out of the range of a double"#),
        (#"{"list":{}}"#, "$.list: expected an array, found an object"),
        (#"{"mask":5}"#, "$.mask: expected paths such as name,address.zipCode, found a number"),
        (#"{"mask":"a_b"}"#, "$.mask: expected paths in lower camel case with commas between them, found a_b"),
        (#"{"mask":"a,"}"#, "$.mask: expected paths"), (#"{"null":1.5}"#, "$.null: expected a 32-bit integer"),
    ])
    func whatIsWrongIsReportedWithItsPosition(json: String, reason: String) throws {
        let found = try #require(try TestProtos.reason(json))
        #expect(found.hasPrefix(reason), "\(found)")
    }

    @Test(arguments: [
        ("{}", "$: the required field id is missing"), (#"{"id":1,"inner":{}}"#, "$.inner: the required field id is"),
        (#"{"id":1,"shade":0}"#, "$.shade: test.Old.Shade has no value 0"),
    ])
    func proto2IsStricter(json: String, reason: String) throws {
        let found = try #require(try TestProtos.reason(json, as: "test.Old"))
        #expect(found.hasPrefix(reason), "\(found)")
    }

    @Test func defaultsAreEmittedWhereAskedFor() throws {
        let text = try TestProtos.roundTrip("{}", as: "test.Leaf", emitsDefaults: true)
        #expect(text == #"{"text":"","tags":[]}"#)
        let everything = try TestProtos.roundTrip("{}", emitsDefaults: true)
        #expect(everything.contains(#""aInt64":"0""#))
        #expect(everything.contains(#""aMood":"MOOD_UNSPECIFIED""#))
        #expect(everything.contains(#""byString":{}"#))
        // Fields that can be absent are absent.
        for name in ["aLeaf", "maybeInt32", "oneInt32", "at", "wrappedInt64"] {
            #expect(!everything.contains("\"\(name)\""))
        }
    }

    @Test func goldenBytes() throws {
        let codec = PayloadJSON(try TestProtos.schema())
        let leaf = try codec.payload(#"{"text":"hi","tags":["a",""]}"#, message: "test.Leaf")
        #expect(leaf == ByteBuffer(bytes: [0x0A, 2, 0x68, 0x69, 0x12, 1, 0x61, 0x12, 0]))
        // Packed by default, and separate if the .proto specifies that.
        let packed = try codec.payload(#"{"someInt32":[1,2],"someInt64":[1,2]}"#, message: "test.Everything")
        #expect(packed == ByteBuffer(bytes: [0xF2, 1, 2, 1, 2, 0xF8, 1, 1, 0xF8, 1, 2]))
        let old = try codec.payload(#"{"id":1,"loose":[1,2],"packed":[1]}"#, message: "test.Old")
        #expect(old == ByteBuffer(bytes: [8, 1, 0x20, 1, 0x20, 2, 0x2A, 1, 1]))
    }

    @Test func depthIsBounded() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: #"{"inner":"#, count: depth) + "{}" + String(repeating: "}", count: depth)
        }
        #expect(try TestProtos.roundTrip(nested(99)) == nested(99))
        #expect(try TestProtos.reason(nested(100))?.contains("more than 100 deep") == true)
        #expect(try TestProtos.reason(nested(100_000))?.contains("more than 256 deep") == true)
        let arrays = String(repeating: "[", count: 1_000_000)
        #expect(try TestProtos.reason(arrays)?.contains("more than 256 deep") == true)
    }

    @Test func bytesThatAreNoMessageAreAnError() throws {
        let codec = PayloadJSON(try TestProtos.schema())
        for bytes: [UInt8] in [[0xFF], [0x0A, 5, 1], [0x0B, 1], [0x0A, 1, 0xFF]] {
            #expect(throws: PayloadJSON.Unsuitable.self) {
                try codec.json(ByteBuffer(bytes: bytes), message: "test.Leaf")
            }
        }
    }

    /// A message without a JSON form, and its output.
    struct Oddity: Sendable {
        var bytes: [UInt8]
        var message = "test.Everything"
        var json: String
        var reason: String
    }

    private static let oddities = [
        // Seconds beyond the year 9999, alone and next to another field.
        Oddity(
            bytes: [8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
            message: "google.protobuf.Timestamp",
            json: #"{"seconds":"4398046511103"}"#,
            reason: "$: 4398046511103 s and 0 ns are out of the range of google.protobuf.Timestamp"
        ),
        Oddity(
            bytes: [8, 1, 0xE2, 3, 7, 8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
            json: #"{"aInt32":1,"at":{"seconds":"4398046511103"}}"#,
            reason: "$.at: 4398046511103 s and 0 ns are out of the range"
        ),
        // An Any of a known type whose bytes are not such a message.
        Oddity(
            bytes: [8, 1, 0xA2, 4, 16, 0x0A, 11] + Array("x/test.Leaf".utf8) + [0x12, 1, 0xFF],
            json: #"{"aInt32":1,"any":{"@type":"x/test.Leaf","value":"/w=="}}"#,
            reason: "$.any: the value cannot be read as test.Leaf: "
        ),
        // A Value that is not a number.
        Oddity(
            bytes: [0xBA, 4, 9, 0x11, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F],
            json: #"{"value":"NaN"}"#,
            reason: "$.value: nan cannot be a google.protobuf.Value in JSON"
        ),
        // A path in capital letters.
        Oddity(
            bytes: [0xB2, 4, 3, 0x0A, 1, 0x41],
            json: #"{"mask":{"paths":["A"]}}"#,
            reason: "$.mask: a path would not be the same"
        ),
    ]

    @Test(arguments: Self.oddities) func partsWithoutAFormInJSONAreReportedAndTheRestIsPrinted(oddity: Oddity) throws {
        let codec = PayloadJSON(try TestProtos.schema())
        let printed = try codec.json(ByteBuffer(bytes: oddity.bytes), message: oddity.message)
        #expect(printed.json.text() == oddity.json)
        #expect(printed.faults.count == 1)
        #expect(printed.faults.first?.hasPrefix(oddity.reason) == true, "\(printed.faults)")
    }

    @Test func complaintsAreBounded() throws {
        let notANumber: [UInt8] = [0xD2, 4, 9, 0x11, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F]
        let bytes = (0..<12).flatMap { _ in notANumber }
        let printed = try PayloadJSON(TestProtos.schema()).json(ByteBuffer(bytes: bytes), message: "test.Everything")
        #expect(printed.faults.count == 11)
        #expect(printed.faults[9].hasPrefix("$.values[9]: "))
        #expect(printed.faults.last == "and 2 more parts")
    }

    /// Nested bytes have no bound by themselves.
    @Test func anysInAnysAreDecodedToABoundedDepth() throws {
        let url = Array("x/google.protobuf.Any".utf8)
        var bytes: [UInt8] = []
        for _ in 0..<2_000 {
            var length = UInt32(bytes.count)
            var header = [0x0A, UInt8(url.count)] + url + [0x12]
            repeat {
                header.append(UInt8(length & 0x7F) | (length > 0x7F ? 0x80 : 0))
                length >>= 7
            } while length > 0
            bytes = header + bytes
        }
        let printed = try PayloadJSON(TestProtos.schema()).json(
            ByteBuffer(bytes: bytes),
            message: "google.protobuf.Any"
        )
        #expect(printed.faults.count == 1)
        #expect(printed.faults.first?.contains("too deep") == true)
        #expect(printed.json.text().components(separatedBy: "@type").count == 102)
    }

    @Test func lastEntryOfAKeyCounts() throws {
        let codec = PayloadJSON(try TestProtos.schema())
        // Number 40: a to 1, nothing at all, a to 2.
        let bytes: [UInt8] = [0xC2, 2, 5, 0x0A, 1, 0x61, 0x10, 1, 0xC2, 2, 0, 0xC2, 2, 5, 0x0A, 1, 0x61, 0x10, 2]
        let json = try codec.json(ByteBuffer(bytes: bytes), message: "test.Everything")
        #expect(json.json.text() == #"{"byString":{"a":2,"":0}}"#)
    }

    /// JSON with some bytes changed, removed or duplicated: an error, or a message that can be read back.
    @Test func noJSONTraps() throws {
        var random = SeededGenerator(seed: 8)
        let seed =
            #"{"aInt64":"-92","aDouble":1e9,"someLeaf":[{"text":"x\ud83d\ude00"}],"byInt32":{"1":""},"#
            + #""at":"2026-02-03T04:05:06.5+01:00","lasts":"-1.5s","aBytes":"AA==","aMood":"MOOD_GOOD","#
            + #""oneLeaf":{"tags":[]}}"#
        let codec = PayloadJSON(try TestProtos.schema())
        var messages = 0
        for _ in 0..<5_000 {
            var bytes = Array(seed.utf8)
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let position = Int.random(in: 0..<bytes.count, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes[position] = Array(#"0129.-+eE"{}[]:,\ "#.utf8).randomElement(using: &random) ?? 0
                case 1: bytes.remove(at: position)
                default: bytes.insert(contentsOf: bytes[position...].prefix(8), at: position)
                }
            }
            let text = String(decoding: bytes, as: UTF8.self)
            guard let payload = try? codec.payload(text, message: "test.Everything") else { continue }
            let json = try codec.json(payload, message: "test.Everything").json.text()
            #expect(try TestProtos.roundTrip(json) == json)
            messages += 1
        }
        #expect(messages > 30)
    }
}
