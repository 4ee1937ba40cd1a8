// SPDX-License-Identifier: Apache-2.0
import HHSocketFormats
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Public protocols, described in JSON. The bytes were made by hand from their specifications.
@Suite struct PublicProtocolTests {
    /// SMPP 3.4: four words, of which the first counts the frame. Unsolicited frames of the server have a type without
    /// the response bit, and the server's own counter.
    static let smpp = """
        {
          "name": "smpp",
          "request":  ["length", "type", "status", "serial"],
          "response": ["length", "type", "status", "serial"],
          "lengthCounts": "frame",
          "applicationTypes": [1, "0x800001FF"],
          "requestSerials": [1, "0x7FFFFFFE"],
          "okStatus": 0,
          "statuses": {"1": "illegalLength", "3": "undefinedType", "8": "unknown", "0x58": "overloaded"},
          "heartbeat": {"type": "0x15", "answerType": "0x80000015", "pingedBy": "both",
                        "clientSerial": "0x7FFFFFFF", "serverSerial": 1, "serials": [1, "0x7FFFFFFF"]},
          "push": {"types": [5, 5]}
        }
        """

    /// SOME/IP: the length counts the bytes after itself; the message type distinguishes a notification from a
    /// response.
    static let someip = """
        {
          "name": "someip",
          "request":  ["type", "length", "serial", {"constant": "01"}, {"custom": "interface", "bytes": 1},
                       {"flags": 0}, {"field": "status", "bytes": 1}],
          "response": ["type", "length", "serial", {"constant": "01"}, {"custom": "interface", "bytes": 1},
                       {"flags": "0x80"}, {"field": "status", "bytes": 1}],
          "lengthCounts": "rest",
          "applicationTypes": [1, "0xFFFFFFFF"],
          "requestSerials": [1, "0xFFFFFFFF"],
          "okStatus": 0,
          "statuses": {"1": "unknown", "2": 401, "3": "undefinedType", "9": "illegalFormat"},
          "push": {"flag": "0x02", "mask": "0xFF"}
        }
        """

    /// The binary protocol of memcached: another magic number in each direction, fields of one and two bytes.
    static let memcached = """
        {
          "name": "memcached",
          "request":  [{"constant": "80"}, {"field": "type", "bytes": 1}, {"custom": "keyLength", "bytes": 2},
                       {"custom": "extrasLength", "bytes": 1}, {"constant": "00"}, {"custom": "bucket", "bytes": 2},
                       "length", "serial", {"custom": "cas", "bytes": 8}],
          "response": [{"constant": "81"}, {"field": "type", "bytes": 1}, {"custom": "keyLength", "bytes": 2},
                       {"custom": "extrasLength", "bytes": 1}, {"constant": "00"}, {"field": "status", "bytes": 2},
                       "length", "serial", {"custom": "cas", "bytes": 8}],
          "applicationTypes": [0, 255],
          "requestSerials": [1, 4294967295],
          "okStatus": 0,
          "statuses": {"0x81": "undefinedType", "0x82": "overloaded", "0x85": "overloaded"},
          "heartbeat": {"type": 10, "pingedBy": "client", "clientSerial": 0}
        }
        """

    /// Kafka: a length of the bytes after it, and responses without a type.
    static let kafka = """
        {
          "name": "kafka",
          "request":  ["length", {"field": "type", "bytes": 2}, {"custom": "version", "bytes": 2}, "serial"],
          "response": ["length", "serial"],
          "lengthCounts": "rest",
          "applicationTypes": [0, 65535],
          "requestSerials": [1, 2147483647]
        }
        """

    struct Example: Sendable, CustomTestStringConvertible {
        var json: String
        var direction: FrameDirection
        var frame: Frame
        var hex: String
        var isPush = false
        var testDescription: String { "\(self.hex) \(self.direction)" }
    }

    static let examples: [Example] = [
        // SMPP: bind_transceiver, its answer, a refusal, a delivery of the server, and pings of both sides.
        Example(
            json: smpp,
            direction: .request,
            frame: Frame(type: 9, serial: 1, payload: ByteBuffer(bytes: bytes(hex: "41 00 42 00 00 34 00 00 00"))),
            hex: "00000019 00000009 00000000 00000001 41004200 00340000 00"
        ),
        Example(
            json: smpp,
            direction: .response,
            frame: Frame(type: 0x8000_0009, serial: 1, payload: ByteBuffer(bytes: [0x53, 0x00])),
            hex: "00000012 80000009 00000000 00000001 5300"
        ),
        Example(
            json: smpp,
            direction: .response,
            frame: Frame(type: 0x8000_0004, serial: 2, status: .overloaded),
            hex: "00000010 80000004 00000058 00000002"
        ),
        Example(
            json: smpp,
            direction: .response,
            frame: Frame(type: 5, serial: 2, payload: ByteBuffer(bytes: [0x00])),
            hex: "00000011 00000005 00000000 00000002 00",
            isPush: true
        ),
        Example(
            json: smpp,
            direction: .response,
            frame: Frame(type: 0x15, serial: 7),
            hex: "00000010 00000015 00000000 00000007"
        ),
        // SOME/IP: service 0x1234, method 0x0421; a request, its answer, a refusal, an event.
        Example(
            json: someip,
            direction: .request,
            frame: Frame(
                type: 0x1234_0421,
                serial: 0x0001_0001,
                payload: ByteBuffer(bytes: [0xAA]),
                customFields: [0x05]
            ),
            hex: "12340421 00000009 00010001 01 05 00 00 AA"
        ),
        Example(
            json: someip,
            direction: .response,
            frame: Frame(type: 0x1234_0421, serial: 0x0001_0001, customFields: [0x05]),
            hex: "12340421 00000008 00010001 01 05 80 00"
        ),
        Example(
            json: someip,
            direction: .response,
            frame: Frame(type: 0x1234_0421, serial: 0x0001_0001, status: .illegalFormat, customFields: [0x05]),
            hex: "12340421 00000008 00010001 01 05 80 09"
        ),
        Example(
            json: someip,
            direction: .response,
            frame: {
                var event = Frame(
                    type: 0x1234_8001,
                    serial: 0x0001_0001,
                    payload: ByteBuffer(bytes: [1, 2]),
                    customFields: [0x05]
                )
                event.isMarkedAsPush = true
                return event
            }(),
            hex: "12348001 0000000A 00010001 01 05 02 00 0102",
            isPush: true
        ),
        // memcached: GET "Hello" and its answer, a miss, a no-op.
        Example(
            json: memcached,
            direction: .request,
            frame: Frame(
                type: 0,
                serial: 0xDEAD_BEEF,
                payload: ByteBuffer(string: "Hello"),
                customFields: [0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            ),
            hex: "80 00 0005 00 00 0000 00000005 DEADBEEF 0000000000000000 48656C6C6F"
        ),
        Example(
            json: memcached,
            direction: .response,
            frame: Frame(
                type: 0,
                serial: 0xDEAD_BEEF,
                payload: ByteBuffer(bytes: bytes(hex: "DEADBEEF 576F726C64")),
                customFields: [0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1]
            ),
            hex: "81 00 0000 04 00 0000 00000009 DEADBEEF 0000000000000001 DEADBEEF 576F726C64"
        ),
        Example(
            json: memcached,
            direction: .response,
            frame: Frame(
                type: 0,
                serial: 2,
                status: Status(rawValue: 1),
                payload: ByteBuffer(string: "Not found"),
                customFields: [UInt8](repeating: 0, count: 11)
            ),
            hex: "81 00 0000 00 00 0001 00000009 00000002 0000000000000000 4E6F7420666F756E64"
        ),
        // Kafka: ApiVersions 0 and its answer.
        Example(
            json: kafka,
            direction: .request,
            frame: Frame(
                type: 18,
                serial: 1,
                payload: ByteBuffer(bytes: [0x00, 0x01, 0x63]),
                customFields: [0, 0]
            ),
            hex: "0000000B 0012 0000 00000001 000163"
        ),
        Example(
            json: kafka,
            direction: .response,
            frame: Frame(type: 0, serial: 1, payload: ByteBuffer(bytes: [0, 0, 0, 0, 0, 0])),
            hex: "0000000A 00000001 000000000000"
        ),
    ]

    @Test(arguments: examples)
    func framesAreTheseBytes(_ example: Example) throws {
        let format = try WireFormat(json: example.json.utf8)
        let stream = bytes(hex: example.hex)
        #expect(FrameEncoder(direction: example.direction, format: format).encode([example.frame]) == stream)
        for setup in DecoderSetup.all(format, example.direction) {
            let expected = Decoded(outputs: [.frame(example.frame), .frame(example.frame)])
            #expect(setup.decode([(stream + stream)[...]]) == expected)
            for cut in 0...stream.count {
                #expect(setup.decode([stream[..<cut], stream[cut...]]).frames == [example.frame], "cut at \(cut)")
            }
        }
        #expect(format.isPush(example.frame) == example.isPush)
        #expect(try WireFormat(json: format.json.utf8) == format)
    }

    @Test func pingsOfSMPPAreDistinguishedFromTheirAnswers() throws {
        let format = try WireFormat(json: Self.smpp.utf8)
        let ping = Frame(type: 0x15, serial: 7)
        #expect(format.isServerPing(ping))
        #expect(format.heartbeatAnswer(to: ping) == Frame(type: 0x8000_0015, serial: 7))
        #expect(!format.isServerPing(Frame(type: 0x8000_0015, serial: 0x7FFF_FFFF)))
        #expect(format.isControlType(0x8000_0015))
        #expect(format.clientPing == Frame(type: 0x15, serial: 0x7FFF_FFFF))
        #expect(!format.isCallType(5) && format.isCallType(4))
    }
}
