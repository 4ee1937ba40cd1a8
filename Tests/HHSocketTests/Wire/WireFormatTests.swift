// SPDX-License-Identifier: Apache-2.0
import HHSocketFormats
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// A layout that cannot work is rejected when it is created, and the error names the rule.
@Suite struct WireFormatRuleTests {
    typealias Layout = WireFormat.Layout
    typealias Field = WireFormat.Field

    /// A valid layout, in which tests break rules.
    static let sound = Layout(
        name: "sound",
        request: [.custom("token", bytes: 8), .type(), .serial(), .length()],
        response: [.type(), .serial(), .status(), .length()]
    )

    struct Nonsense: Sendable, CustomTestStringConvertible {
        var rule: WireFormatError.Rule
        var change: @Sendable (inout Layout) -> Void
        var testDescription: String { "\(self.rule)" }

        init(_ rule: WireFormatError.Rule, _ change: @escaping @Sendable (inout Layout) -> Void) {
            self.rule = rule
            self.change = change
        }
    }

    static let all: [Nonsense] = [
        Nonsense(.typeMissing) { $0.request = [.serial(), .length()] },
        Nonsense(.typeMissing) { $0.request = [] },
        Nonsense(.serialMissing) { $0.request = [.type(), .length()] },
        Nonsense(.serialMissing) { $0.response = [.type(), .status(), .length()] },
        Nonsense(.lengthMissing) { $0.request = [.type(), .serial()] },
        Nonsense(.lengthMissing) { $0.response = [.type(), .serial()] },
        Nonsense(.fieldTwice) { $0.request.append(.type(.little)) },
        Nonsense(.fieldTwice) { $0.request.append(.serial()) },
        Nonsense(.fieldTwice) { $0.response.append(.length()) },
        Nonsense(.fieldTwice) { $0.response.append(.status()) },
        Nonsense(.fieldTwice) { $0.request += [.headerLength(upTo: 100), .headerLength(upTo: 100)] },
        Nonsense(.statusInRequestsOnly) {
            $0.request.append(.status())
            $0.response = [.type(), .serial(), .length()]
        },
        Nonsense(.constantEmpty) { $0.request.append(.constant([])) },
        Nonsense(.customNameEmpty) { $0.request.append(.custom("", bytes: 1)) },
        Nonsense(.customNameTwice) { $0.request.append(.custom("token", bytes: 8)) },
        Nonsense(.customWidth) { $0.request.append(.custom("nothing", bytes: 0)) },
        Nonsense(.customWidth) { $0.request.append(.custom("less", bytes: .min)) },
        Nonsense(.customWidth) { $0.response.append(.custom("token", bytes: 7)) },
        Nonsense(.headerTooLong) { $0.request.append(.custom("much", bytes: 1_005)) },
        Nonsense(.headerTooLong) { $0.request.append(.custom("much", bytes: .max)) },
        Nonsense(.headerTooLong) { $0.response.append(.constant([UInt8](repeating: 1, count: 1_009))) },
        Nonsense(.headerLengthLimit) { $0.request.append(.headerLength(upTo: 23)) },
        Nonsense(.headerLengthLimit) { $0.request.append(.headerLength(upTo: 1_025)) },
        Nonsense(.headerLengthLimit) { $0.response.append(.headerLength(upTo: .min)) },
        Nonsense(.checksumTooWide) { $0.checksum = .init(.crc32, width: 2) },
        Nonsense(.checksumTooWide) { $0.checksum = .init(.adler32, width: 0) },
        Nonsense(.checksumTooWide) { $0.checksum = .init(.adler32, width: .min) },
        Nonsense(.checksumFieldWidth) { $0.checksum = .init(.crc32c, width: 6) },
        Nonsense(.checksumFieldWidth) { $0.checksum = .init(.crc32c, width: 16) },
        Nonsense(.tailWithoutType) {
            $0.tail = .big
            $0.response = [.serial(), .length()]
        },
        Nonsense(.serialZero) { $0.requestSerials = 0...UInt32.max },
        Nonsense(.noApplicationTypes) {
            $0.applicationTypes = 7...7
            $0.cancel = .init(type: 7)
        },
        Nonsense(.noApplicationTypes) {
            $0.applicationTypes = 7...8
            $0.cancel = .init(type: 7)
            $0.heartbeat = .init(type: 8, pingedBy: .client)
        },
        Nonsense(.okStatusWithoutStatus) {
            $0.okStatus = 0
            $0.response = [.type(), .serial(), .length()]
        },
        Nonsense(.bothPingWithoutStatus) {
            $0.heartbeat = .init(type: 0, pingedBy: .both)
            $0.response = [.type(), .serial(), .length()]
        },
        Nonsense(.pingResemblesAnswer) { $0.heartbeat = .init(type: 0, pingedBy: .both, pingStatus: .ok) },
        Nonsense(.pingResemblesAnswer) {
            $0.heartbeat = .init(type: 0, pingedBy: .both)
            $0.okStatus = 0
        },
        Nonsense(.heartbeatSerial) { $0.heartbeat = .init(type: 0, pingedBy: .client, clientSerial: 50) },
        Nonsense(.heartbeatSerial) { $0.heartbeat = .init(type: 0, pingedBy: .server, serverSerial: .max) },
        Nonsense(.heartbeatSerial) { $0.heartbeat = .init(type: 0, pingedBy: .both, serials: 0...4) },
        Nonsense(.heartbeatIsCancel) {
            $0.heartbeat = .init(type: 2, pingedBy: .client)
            $0.cancel = .init(type: 2)
        },
        Nonsense(.heartbeatIsCancel) {
            $0.heartbeat = .init(type: 3, answerType: 2, pingedBy: .client)
            $0.cancel = .init(type: 2)
        },
        Nonsense(.pushIsResponse) { $0.push = .init(serial: 50) },
        Nonsense(.pushIsResponse) { $0.push = .init(serials: 0...50) },
        Nonsense(.pushIsResponse) { $0.push = .init(serials: 60...70) },
        Nonsense(.pushIsResponse) {
            $0.response.append(.flags(0x82))
            $0.push = .init(flag: 0x02)
        },
        Nonsense(.pushIsResponse) {
            $0.response.append(.flags(0x80))
            $0.push = .init(flag: 0)
        },
        Nonsense(.pushWithoutType) {
            $0.response = [.serial(), .length()]
            $0.push = .init(serial: 1)
        },
        Nonsense(.pushWithoutType) {
            $0.response = [.serial(), .length()]
            $0.push = .init(types: 100...200)
        },
        Nonsense(.pushWithoutFlags) { $0.push = .init(flag: 2) },
        Nonsense(.pushWithoutFlags) {
            $0.request.append(.flags())
            $0.push = .init(flag: 2)
        },
        Nonsense(.pushTypes) { $0.push = .init(types: 1...20) },
        Nonsense(.pushTypes) { $0.push = .init(types: 20...UInt32.max) },
        Nonsense(.noApplicationTypes) { $0.push = .init(types: FrameType.application) },
        Nonsense(.noApplicationTypes) {
            $0.applicationTypes = 7...9
            $0.push = .init(types: 8...9)
            $0.cancel = .init(type: 7)
        },
        Nonsense(.numberWidth) { $0.request[1] = .type(bytes: 5) },
        Nonsense(.numberWidth) { $0.request[1] = .type(bytes: 0) },
        Nonsense(.numberWidth) { $0.request[1] = .type(bytes: .max) },
        Nonsense(.numberWidth) { $0.request[1] = .type(.decimal(digits: 0)) },
        Nonsense(.numberWidth) { $0.request[1] = .type(.hexadecimal(digits: 21)) },
        Nonsense(.numberWidth) { $0.request.append(.headerLength(upTo: 40, bytes: 7)) },
        Nonsense(.numberWidth) { $0.request.append(.flags(bytes: -1)) },
        Nonsense(.numberWithoutEnd) { $0.request[1] = .type(.decimal) },
        Nonsense(.numberWithoutEnd) { $0.request[3] = .length(.decimal) },
        Nonsense(.numberWithoutEnd) { $0.request[3...] = [.length(.decimal), .text("7;")] },
        Nonsense(.numberWithoutEnd) { $0.request[3...] = [.length(.hexadecimal), .text("e")] },
        Nonsense(.numberWithoutEnd) { $0.request[3...] = [.length(.decimal), .custom("x", bytes: 2)] },
        Nonsense(.lengthCountsItself) {
            $0.request[3...] = [.length(.decimal), .text(" ")]
            $0.lengthCounts = .frame
        },
        Nonsense(.headerLengthVariable) {
            $0.request[3...] = [.length(.decimal), .text(" "), .headerLength(upTo: 99)]
        },
        Nonsense(.headerLengthLimit) { $0.request.append(.headerLength(upTo: 300, bytes: 1)) },
        Nonsense(.bodyEndLength) { $0.bodyEnd = [] },
        Nonsense(.bodyEndLength) { $0.bodyEnd = [UInt8](repeating: 1, count: 65) },
        Nonsense(.valueTooLarge) {
            $0.request[1] = .type(bytes: 2)
            $0.applicationTypes = 1...65_536
        },
        Nonsense(.valueTooLarge) {
            $0.response[1] = .serial(bytes: 1)
            $0.requestSerials = 1...256
        },
        Nonsense(.valueTooLarge) {
            $0.response[2] = .status(.decimal(digits: 2))
            $0.okStatus = 100
        },
        Nonsense(.valueTooLarge) {
            $0.response[2] = .status(bytes: 1)
            $0.statuses = [256: .unknown]
        },
        Nonsense(.valueTooLarge) {
            $0.response[0] = .type(bytes: 1)
            $0.applicationTypes = 1...99
            $0.heartbeat = .init(type: 300, pingedBy: .client)
        },
        Nonsense(.valueTooLarge) {
            $0.response.append(.flags(0x80))
            $0.push = .init(flag: 0x102)
        },
        Nonsense(.okStatusWithoutStatus) {
            $0.statuses = [1: .unknown]
            $0.response = [.type(), .serial(), .length()]
        },
        Nonsense(.statusMeansTwo) { $0.statuses = [200: .unknown] },
    ]

    @Test(arguments: all)
    func nonsenseIsRefusedByTheRuleItBreaks(_ nonsense: Nonsense) throws {
        #expect(throws: Never.self) { try WireFormat(Self.sound) }
        var layout = Self.sound
        nonsense.change(&layout)
        let error = #expect(throws: WireFormatError.self) { try WireFormat(layout) }
        #expect(error?.rule == nonsense.rule)
        #expect(error?.description.contains("\(nonsense.rule)") == true)
    }

    @Test func everyRuleIsTried() {
        let tried = Set(Self.all.map(\.rule))
        #expect(tried.count == 32)
    }

    /// Unusual layouts that are valid.
    @Test(
        arguments: [
            Nonsense(.malformed) { $0.checksum = .init(.crc32c, width: 8, .little) },
            Nonsense(.malformed) { $0.request.append(.custom("much", bytes: 1_004)) },
            Nonsense(.malformed) { $0.request.append(.headerLength(upTo: 24)) },
            Nonsense(.malformed) { $0.request.append(.headerLength(upTo: 1_024)) },
            Nonsense(.malformed) { $0.request.append(.status()) },
            Nonsense(.malformed) { $0.requestSerials = 1...1 },
            Nonsense(.malformed) { $0.applicationTypes = 7...7 },
            Nonsense(.malformed) {
                $0.heartbeat = .init(type: 100, pingedBy: .client, clientSerial: 70, serials: 70...70)
            },
            Nonsense(.malformed) { $0.heartbeat = .init(type: 0, pingedBy: .client, serverSerial: 99) },
            Nonsense(.malformed) { $0.response.append(.custom("token", bytes: 8)) },
            Nonsense(.malformed) { $0.response = [.serial(), .length()] },
            Nonsense(.malformed) { $0.push = .init(serials: 0...49) },
            Nonsense(.malformed) { $0.push = .init(types: 17...0x1FFF_FFFF) },
            Nonsense(.malformed) {
                $0.response.append(.flags(0x80))
                $0.push = .init(flag: 0, mask: 0x80)
            },
            Nonsense(.malformed) { $0.heartbeat = .init(type: 0, answerType: 1, pingedBy: .both, pingStatus: .ok) },
            Nonsense(.malformed) {
                $0.response = [.type(), .serial(), .length()]
                $0.heartbeat = .init(type: 0, answerType: 1, pingedBy: .both)
            },
            Nonsense(.malformed) {
                $0.request[1...] = [.type(bytes: 1), .serial(bytes: 8), .length(.little, bytes: 3)]
                $0.applicationTypes = 1...255
            },
            Nonsense(.malformed) { $0.statuses = [200: .ok, 201: .ok, 7: .unknown] },
            Nonsense(.malformed) {
                $0.request[3...] = [.length(.decimal(digits: 20))]
                $0.lengthCounts = .frame
            },
        ]
    )
    func layoutsOnTheEdgeAreAccepted(_ edge: Nonsense) throws {
        var layout = Self.sound
        edge.change(&layout)
        #expect(throws: Never.self) { try WireFormat(layout) }
    }
}

@Suite struct WireFormatTests {
    @Test func aLayoutLikeTheStandardOneIsDecodedAsFast() throws {
        var layout = WireFormat.standard.layout
        layout.name = "ours"
        let format = try WireFormat(layout)
        #expect(format.storage.isStandard)
        #expect(format != .standard)
        for format in [WireFormat.tgcd, .plain, .mars] { #expect(!format.storage.isStandard) }
    }

    // MARK: Custom fields

    static let fields = WireFormat.Layout(
        name: "fields",
        request: [.custom("a", bytes: 2), .type(), .serial(), .length(), .custom("b", bytes: 3)],
        response: [
            .custom("b", bytes: 3), .type(), .serial(), .length(), .custom("c", bytes: 1), .custom("a", bytes: 2),
        ]
    )

    @Test func fieldsAreFilledInByName() throws {
        let format = try WireFormat(Self.fields)
        #expect(try format.customFields([:]) == nil)
        #expect(try format.customFields(["b": [1, 2, 3]]) == [0, 0, 1, 2, 3])
        #expect(try format.customFields(["a": [8, 9]], over: [7, 7, 1, 2, 3]) == [8, 9, 1, 2, 3])
        #expect(try format.customFields(["a": [8, 9]], in: .response) == [0, 0, 0, 0, 8, 9])
        #expect(format.customFieldLength(in: .request) == 5)
        #expect(format.customFieldWidths(in: .response).map(\.name) == ["b", "c", "a"])
        #expect(WireFormat.standard.customFieldLength(in: .request) == 0)

        let frame = Frame(type: 1, serial: 2, customFields: [0, 0, 1, 2, 3])
        #expect(format.header(of: frame, in: .request) == ["a": [0, 0], "b": [1, 2, 3]])
        #expect(format.header(of: Frame(type: 1, serial: 2), in: .request) == ["a": [0, 0], "b": [0, 0, 0]])
        #expect(WireFormat.standard.header(of: frame, in: .request).isEmpty)
    }

    @Test func aFrameWithoutFieldsHasTheEncodersOrZeros() throws {
        let format = try WireFormat(Self.fields)
        let frame = Frame(type: 1, serial: 2)
        var other = frame
        other.customFields = [9, 9, 9, 9, 9]
        #expect(
            FrameEncoder(direction: .request, format: format).encode([frame, other])
                == bytes(
                    hex: "0000 00000001 00000002 00000000 000000 0909 00000001 00000002 00000000 090909"
                )
        )
        #expect(
            FrameEncoder(direction: .request, format: format, customFields: [1, 2, 3, 4, 5]).encode([frame, other])
                == bytes(
                    hex: "0102 00000001 00000002 00000000 030405 0909 00000001 00000002 00000000 090909"
                )
        )
    }

    @Test func fieldsThatAreTooShortAreFilledUpWithZeros() throws {
        let format = try WireFormat(Self.fields)
        let encoder = FrameEncoder(direction: .request, format: format)
        #expect(
            encoder.encode([Frame(type: 1, serial: 2, customFields: [7, 7, 7])])
                == bytes(hex: "0707 00000001 00000002 00000000 000000")
        )
    }

    @Test func anAnswerRepeatsTheFieldsOfTheSameName() throws {
        let format = try WireFormat(Self.fields)
        #expect(format.responseFields(answering: [1, 2, 3, 4, 5]) == [3, 4, 5, 0, 1, 2])
        #expect(format.responseFields(answering: [1, 2, 3, 4, 5], over: [9, 9, 9, 9, 9, 9]) == [3, 4, 5, 9, 1, 2])
        #expect(format.responseFields(answering: nil, over: [9, 9, 9, 9, 9, 9]) == [9, 9, 9, 9, 9, 9])
        #expect(format.responseFields(answering: [1]) == nil)
        #expect(WireFormat.standard.responseFields(answering: nil) == nil)
    }

    @Test(
        arguments: [
            (WireFormat.mars, "version", 4, ["clientVersion"]), (.mars, "clientVersion", 3, ["4 bytes", "3 were"]),
            (.mars, "clientVersion", 5, ["4 bytes"]), (.standard, "sessionID", 4, ["sessionID", "none"]),
        ] as [(WireFormat, String, Int, [String])]
    )
    func wrongNamesAndWidthsAreDistinguished(format: WireFormat, name: String, width: Int, texts: [String]) {
        let error = #expect(throws: SocketError.self) {
            try format.customFields([name: [UInt8](repeating: 1, count: width)])
        }
        #expect(error?.code == .invalidArgument)
        for text in texts { #expect(error?.message.contains(text) == true, "\(error?.message ?? "")") }
    }

    // MARK: JSON

    @Test func presetsSurviveJSON() throws {
        for format in WireFormat.presets.values {
            #expect(try WireFormat(json: format.json.utf8) == format)
        }
    }

    @Test func aDescriptionIsRead() throws {
        let json = """
            {
              "name": "example", "order": "little",
              "request": [{"constant": "CA FE 01"}, {"custom": "token", "bytes": 8}, "type", {"field": "serial", "order": "big"},
                          "length", {"headerLength": 64}],
              "response": [{"constant": "cafe01"}, "type", "serial", "status", "length"],
              "lengthCounts": "frame",
              "checksum": {"algorithm": "crc32c", "bytes": 8, "order": "big"},
              "tail": true,
              "applicationTypes": [1, "0x7FFFFFFF"],
              "requestSerials": ["0x10", 4294967295],
              "okStatus": 0,
              "heartbeat": {"type": 0, "pingedBy": "client", "clientSerial": 3, "serials": [3, 4]},
              "push": {"serial": 0},
              "cancel": {"type": 2147483648}
            }
            """
        let expected = WireFormat.Layout(
            name: "example",
            request: [
                .constant([0xCA, 0xFE, 0x01]), .custom("token", bytes: 8), .type(.little), .serial(.big),
                .length(.little), .headerLength(upTo: 64, .little),
            ],
            response: [
                .constant([0xCA, 0xFE, 0x01]), .type(.little), .serial(.little), .status(.little), .length(.little),
            ],
            lengthCounts: .frame,
            checksum: .init(.crc32c, width: 8, .big),
            tail: .little,
            applicationTypes: 1...0x7FFF_FFFF,
            requestSerials: 16...UInt32.max,
            okStatus: 0,
            heartbeat: .init(type: 0, pingedBy: .client, clientSerial: 3, serials: 3...4),
            push: .init(serial: 0),
            cancel: .init(type: 0x8000_0000)
        )
        #expect(try WireFormat(json: json.utf8).layout == expected)
        #expect(try WireFormat(json: WireFormat(expected).json.utf8).layout == expected)
        #expect(try FormatSchema.complaints(about: json) == [])
    }

    @Test func omittedPartsAreAsInTheStandardFormatOrAbsent() throws {
        let json = """
            {"request": ["type", "serial", "length"], "response": ["type", "serial", "length"], "checksum": "adler32"}
            """
        let expected = WireFormat.Layout(
            name: "custom",
            request: [.type(), .serial(), .length()],
            response: [.type(), .serial(), .length()],
            checksum: .init(.adler32)
        )
        #expect(try WireFormat(json: json.utf8).layout == expected)
    }

    @Test(
        arguments: [
            ("", "description"), ("[]", "description"), ("{", "description"),
            (#"{"response": ["type", "serial", "length"]}"#, "request"),
            (#"{"request": ["typo"], "response": []}"#, "typo"),
            (#"{"request": [{"length": 4}], "response": []}"#, "headerLength"),
            (#"{"request": [{"constant": "ABC"}], "response": []}"#, "hexadecimal"),
            (#"{"request": [{"constant": "ü"}], "response": []}"#, "hexadecimal"),
            (#"{"request": [{"custom": "x"}], "response": []}"#, "bytes"),
            (#"{"request": [{"custom": "x", "bytes": 4, "order": "big"}], "response": []}"#, "order"),
            (#"{"request": [{"field": "type", "order": "middle"}], "response": []}"#, "middle"),
            (#"{"request": [], "response": [], "crc": true}"#, "crc"),
            (#"{"request": [], "response": [], "checksum": "md5"}"#, "md5"),
            (#"{"request": [], "response": [], "applicationTypes": [1]}"#, "first"),
            (#"{"request": [], "response": [], "applicationTypes": [2, 1]}"#, "first"),
            (#"{"request": [], "response": [], "requestSerials": [1, 4294967296]}"#, "4294967295"),
            (#"{"request": [], "response": [], "okStatus": "0xG"}"#, "0xG"),
            (#"{"request": [], "response": [], "okStatus": -1}"#, "4294967295"),
            (#"{"request": [], "response": [], "heartbeat": {"pingedBy": "client"}}"#, "type"),
            (#"{"request": [], "response": [], "heartbeat": {"type": 1, "pingedBy": "nobody"}}"#, "nobody"),
            (#"{"request": [], "response": [], "push": {"type": 1}}"#, "types"),
            (
                #"{"request": [{"field": "type", "digits": "decimal", "bytes": 2}], "response": []}"#,
                "at request.0.bytes: digits have none; their number is the width"
            ),
            (
                #"{"request": [{"field": "type", "width": 2}], "response": []}"#,
                "at request.0.width: a width is one of digits; the width of an integer is its bytes"
            ),
            (
                #"{"request": [{"field": "type", "digits": "octal"}], "response": []}"#,
                #"at request.0.digits: "octal" is unknown; the values are "decimal", "hexadecimal""#
            ),
            (
                #"{"request": [], "response": [], "lengthCounts": "all"}"#,
                #"at lengthCounts: "all" is unknown; the values are "payload", "frame", "rest""#
            ),
            (#"{"request": [], "response": [], "bodyEnd": "2D0D0A"}"#, "at bodyEnd: expected an object"),
            (#"{"request": [], "response": [], "bodyEnd": {"constant": "2"}}"#, "hexadecimal"),
            (#"{"request": [], "response": [], "statuses": {"x": 1}}"#, "at statuses.x: a status on the wire"),
            (#"{"request": [], "response": [], "statuses": {"1": "sad"}}"#, #"at statuses.1: "sad" is not a status"#),
            (#"{"request": [], "response": [], "statuses": {"1": 5, "0x1": 6}}"#, "the status 1 is given twice"),
            (#"{"request": [], "response": [], "push": {}}"#, "one of the keys serial, serials, types, flag"),
            (#"{"request": [], "response": [], "push": {"types": [1, 2], "mask": 1}}"#, "mask"),
            (#"{"request": [], "response": [], "order": "BIG"}"#, #"at order: "BIG" is unknown; the values are "big""#),
            (#"{"request": 5, "response": []}"#, "at request: expected a list"),
            (#"{"request": [5], "response": []}"#, "at request.0: expected an object"),
            (#"{"request": [], "response": [], "name": 5}"#, "at name: expected a text"),
            (#"{"request": [{"custom": "x", "bytes": 1e99}], "response": []}"#, "expected a number of bytes"),
            (#"{"request": [{"custom": "x", "bytes": "4"}], "response": []}"#, "expected a number of bytes"),
            (#"{"request": [], "response": [], "tail": "middle"}"#, "at tail: expected true, false"),
            (#"{"request": [], "response": [], "push": []}"#, "at push: expected an object"),
            (
                #"{"request": [], "response": [], "checksum": {"algorithm": "md5"}}"#,
                #"at checksum.algorithm: "md5" is unknown"#
            ),
            (#"{"request": [], "response": [], "checksum": {}}"#, "has no algorithm at checksum"),
        ]
    )
    func aDescriptionThatIsWrongIsRefusedWithWhatIsWrong(json: String, text: String) {
        let error = #expect(throws: WireFormatError.self) { try WireFormat(json: json.utf8) }
        #expect(error?.rule == .malformed)
        #expect(error?.message.contains(text) == true, "\(error?.message ?? "")")
        #expect(FormatSchema.refuses(json) != FormatSchema.cannotRefuse.contains(json))
        // Errors for an operator who edits JSON must not name Swift types.
        for name in ["Swift", "Array", "Dictionary", "LengthScope", "ByteOrder", "String", "Int", "initialize"] {
            #expect(error?.message.contains(name) == false, "\(error?.message ?? "")")
        }
    }

    @Test func aDescriptionThatBreaksARuleIsRefusedByThatRule() {
        let error = #expect(throws: WireFormatError.self) {
            try WireFormat(json: #"{"request": ["type", "serial"], "response": ["type", "serial", "length"]}"#.utf8)
        }
        #expect(error?.rule == .lengthMissing)
    }
}
