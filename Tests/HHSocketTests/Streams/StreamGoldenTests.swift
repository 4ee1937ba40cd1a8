// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOCore
import TestSupport
import Testing

/// The frames of streams from Docs/Protocol.md.
enum GoldenStream {
    static let hello =
        "00000003 00000003 0000001B 080112086D65746164617461120773747265616D73280130808040 671C0816"
    static let reply =
        "00000003 00000003 000000C8 0000001D 080112086D65746164617461120773747265616D73288080800430E807 7C580948"
    static let opening = "000003E8 00000032 00000000 00000001"
    static let item = "00000008 00000032 00000005 68656C6C6F 062C0215"
    static let emptyItem = "00000008 00000032 00000000 00000001"
    static let firstPiece = "20000008 00000032 00000006 68656C6C6F20 08610235"
    static let lastPiece = "00000008 00000032 00000005 776F726C64 06A60229"
    static let end = "00000007 00000032 00000000 00000001"
    static let serversItem = "000003E8 00000032 000000CE 00000002 6869 013B00D2"
    static let answer = "000003E8 00000032 000000C8 00000000 00000001"
    static let credit = "00000006 00000032 00000008 0000000000060000 001A0007"
    static let connectionCredit = "00000006 00000000 000000C8 00000008 0000000000600000 01280061"

    static let all = [
        hello, reply, opening, item, emptyItem, firstPiece, lastPiece, end, serversItem, answer, credit,
        connectionCredit,
    ]
}

@Suite struct StreamGoldenTests {
    private let start = NIODeadline.uptimeNanoseconds(0)

    private func encoded(_ frame: Frame?, _ direction: FrameDirection) -> [UInt8] {
        var buffer = ByteBuffer()
        if let frame { FrameEncoder(direction: direction).encode(frame, into: &buffer) }
        return Array(buffer.readableBytesView)
    }

    @Test func theFramesAreThoseOfTheProtocolsDescription() throws {
        let lines = try DocumentationPage("Docs/Protocol.md").text.components(separatedBy: "\n")
        for frame in GoldenStream.all { #expect(lines.contains(frame)) }
    }

    @Test func controlFramesAreTheseBytes() {
        #expect(
            self.encoded(StreamFrames.credit(serial: 50, 393_216), .request) == bytes(hex: GoldenStream.credit)
        )
        #expect(
            self.encoded(StreamFrames.credit(serial: FrameSerial.connectionCredit, 6_291_456), .response)
                == bytes(hex: GoldenStream.connectionCredit)
        )
        #expect(self.encoded(StreamFrames.end(serial: 50), .request) == bytes(hex: GoldenStream.end))
    }

    @Test func aStreamIsTheseBytes() throws {
        // The server takes 22 at first: "hello" as a whole would be 21, and "hello world" is 27.
        let terms = StreamTerms(server: StreamWindows(stream: 22))
        var client = ClientStreams(StreamSettings(terms: terms))
        let id = client.open(type: 1_000, serial: 50, kind: .bidirectional, now: self.start)
        #expect(client.send(id, ByteBuffer(string: "hello world")) == .wait)
        client.finish(id)
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.opening))
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.firstPiece))
        #expect(client.next(now: self.start) == nil)
        _ = client.receive(ArrivedFrame(StreamFrames.credit(serial: 50, 44)), isAwaited: false, now: self.start)
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.lastPiece))
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.end))

        var server = ServerStreams()
        guard
            case .opened(let opened) = server.open(
                type: 1_000,
                serial: 50,
                kind: .bidirectional,
                hasBody: false,
                now: self.start
            )
        else { throw Broken("not opened") }
        _ = server.send(opened, ByteBuffer(string: "hi"))
        server.answer(opened)
        #expect(self.encoded(server.next(now: self.start), .response) == bytes(hex: GoldenStream.serversItem))
        #expect(self.encoded(server.next(now: self.start), .response) == bytes(hex: GoldenStream.answer))
    }

    @Test func itemsAreTheseBytes() {
        var client = ClientStreams()
        let id = client.open(type: 1_000, serial: 50, kind: .clientStreaming, now: self.start)
        #expect(client.send(id, ByteBuffer(string: "hello")) == .proceed)
        #expect(client.send(id, ByteBuffer()) == .proceed)
        _ = client.next(now: self.start)
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.item))
        #expect(self.encoded(client.next(now: self.start), .request) == bytes(hex: GoldenStream.emptyItem))
    }

    @Test func aCreditIsOfEightBytes() {
        #expect(StreamFrames.credit(in: ByteBuffer(integer: UInt64.max)) == .max)
        #expect(StreamFrames.credit(in: ByteBuffer(integer: UInt32.max)) == nil)
        #expect(StreamFrames.credit(in: ByteBuffer(repeating: 0, count: 9)) == nil)
        #expect(StreamFrames.credit(in: ByteBuffer()) == nil)
    }
}
