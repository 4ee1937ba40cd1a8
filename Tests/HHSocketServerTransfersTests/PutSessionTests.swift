// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// The order of items in a put.
@Suite struct PutSessionTests {
    private static func begin(
        id: String = "a",
        size: UInt64 = 1_000_000,
        digestLength: Int = 32,
        writer: UInt64 = 5,
        hasFile: Bool = true
    ) throws -> ByteBuffer {
        var begin = Hhsocket_PutBegin()
        begin.id = id
        begin.writer = writer
        if hasFile {
            var file = Hhsocket_TransferFile()
            file.size = size
            file.sha256 = .init([UInt8](repeating: 1, count: digestLength))
            begin.file = file
        }
        var request = Hhsocket_PutRequest()
        request.kind = .begin(begin)
        return try ByteBuffer(message: request)
    }

    private static func part(_ offset: UInt64, _ count: Int) -> ByteBuffer {
        TransferPart(offset: offset, bytes: ByteBuffer(repeating: 7, count: count)).item
    }

    /// A session that has begun.
    private static func receiving(size: UInt64 = 1_000_000, from offset: UInt64 = 0) throws -> PutSession {
        var session = PutSession()
        guard case .begin = session.receivedItem(try Self.begin(size: size)) else {
            throw Unexpected(description: "it did not begin")
        }
        _ = session.begun(at: offset, isChanged: false)
        return session
    }

    private static func describe(_ step: PutSession.Step) -> String {
        switch step {
        case .ignore: "ignore"
        case .begin(let beginning): "begin \(beginning.id) \(beginning.size) \(beginning.writer)"
        case .identify(let sha256): "identify \(sha256.bytes[0])"
        case .take(let bytes): "take \(bytes.readableBytes)"
        case .report(let report): "report \(report.offset)"
        case .fail(let error): "fail \(error.code)"
        }
    }

    @Test func aPutInOrder() throws {
        var session = PutSession()
        #expect(Self.describe(session.receivedItem(try Self.begin())) == "begin a 1000000 5")
        #expect(session.begun(at: 400_000, isChanged: true) == .init(offset: 400_000, isChanged: true))
        #expect(Self.describe(session.receivedItem(Self.part(400_000, 100_000))) == "take 100000")
        #expect(session.wrote() == nil)
        #expect(Self.describe(session.receivedItem(Self.part(500_000, 100_000))) == "take 100000")
        #expect(session.wrote() == .init(offset: 600_000))
        #expect(!session.isWhole)
        #expect(Self.describe(session.receivedItem(Self.part(600_000, 400_000))) == "take 400000")
        #expect(session.isWhole)
        #expect(session.complete() == .init(offset: 1_000_000, isComplete: true))
    }

    @Test func anEmptyFileIsWholeAtOnce() throws {
        #expect(try Self.receiving(size: 0).isWhole)
    }

    @Test func beginningsThatBreakTheRules() throws {
        let items: [(ByteBuffer, String)] = [
            (try Self.begin(id: ""), "fail invalidID"),
            (try Self.begin(id: "a/b"), "fail invalidID"),
            (try Self.begin(id: ".."), "fail invalidID"),
            (try Self.begin(id: "a\u{0}"), "fail invalidID"),
            (try Self.begin(id: "ä"), "fail invalidID"),
            (try Self.begin(id: String(repeating: "a", count: 129)), "fail invalidID"),
            (try Self.begin(id: String(repeating: "/", count: 1_000_000)), "fail invalidID"),
            (try Self.begin(digestLength: 31), "fail invalidRequest"),
            (try Self.begin(hasFile: false), "fail invalidRequest"),
            (try Self.begin(writer: 0), "fail invalidRequest"),
            (try Self.begin(size: UInt64(Int64.max) + 1), "fail invalidRequest"),
            (Self.part(0, 10), "fail invalidRequest"),
            (ByteBuffer(), "fail invalidRequest"),
            (ByteBuffer(string: "nonsense"), "fail invalidRequest"),
        ]
        for (item, expected) in items {
            var session = PutSession()
            #expect(Self.describe(session.receivedItem(item)) == expected)
        }
        var session = PutSession()
        guard case .fail(let error) = session.receivedItem(try Self.begin(id: String(repeating: "/", count: 100_000)))
        else {
            return
        }
        #expect(error.message.count < 500)
    }

    @Test func aSecondBeginningBreaksTheRules() throws {
        var session = try Self.receiving()
        #expect(Self.describe(session.receivedItem(try Self.begin())) == "fail invalidRequest")
        session = PutSession()
        _ = session.receivedItem(try Self.begin())
        #expect(Self.describe(session.receivedItem(try Self.begin())) == "fail invalidRequest")
        #expect(Self.describe(session.receivedItem(Self.part(0, 1))) == "fail invalidRequest")
    }

    @Test func contentBeyondTheSizeBreaksTheRules() throws {
        for (offset, count) in [(0, 1_001), (1_001, 0), (1_000, 1), (.max, 0), (.max, 1), (999, 2)] as [(UInt64, Int)] {
            var session = try Self.receiving(size: 1_000)
            #expect(Self.describe(session.receivedItem(Self.part(offset, count))) == "fail invalidRequest")
        }
    }

    @Test func longPartsBreakTheRules() throws {
        var session = try Self.receiving(size: 10 << 20)
        #expect(Self.describe(session.receivedItem(Self.part(0, 1 << 20))) == "take 1048576")
        #expect(Self.describe(session.receivedItem(Self.part(1 << 20, (1 << 20) + 1))) == "fail invalidRequest")
    }

    @Test func aPartAtTheWrongOffsetIsAnsweredOnce() throws {
        var session = try Self.receiving()
        #expect(Self.describe(session.receivedItem(Self.part(0, 1_000))) == "take 1000")
        #expect(Self.describe(session.receivedItem(Self.part(5_000, 1_000))) == "report 1000")
        // These items were in transit after it.
        #expect(Self.describe(session.receivedItem(Self.part(6_000, 1_000))) == "ignore")
        #expect(Self.describe(session.receivedItem(Self.part(7_000, 1_000))) == "ignore")
        // This is another error.
        #expect(Self.describe(session.receivedItem(Self.part(0, 1_000))) == "report 1000")
        #expect(Self.describe(session.receivedItem(Self.part(1_000, 1_000))) == "take 1000")
        #expect(Self.describe(session.receivedItem(Self.part(1_000, 1_000))) == "report 2000")
    }

    @Test func emptyPartsAreIgnored() throws {
        var session = try Self.receiving()
        #expect(Self.describe(session.receivedItem(Self.part(0, 0))) == "ignore")
        #expect(Self.describe(session.receivedItem(Self.part(0, 5))) == "take 5")
    }

    @Test func contentThatAnotherEncoderHasWritten() throws {
        var content = Hhsocket_TransferContent()
        content.offset = 0
        content.bytes = .init([1, 2, 3])
        var request = Hhsocket_PutRequest()
        request.kind = .content(content)
        var session = try Self.receiving()
        // With an unknown field.
        var item = try ByteBuffer(message: request)
        item.writeBytes([0x78, 1])
        guard case .take(let bytes) = session.receivedItem(item) else {
            Issue.record("it was not taken")
            return
        }
        #expect(Array(buffer: bytes) == [1, 2, 3])
    }

    @Test func endsThatComeTooEarly() throws {
        #expect(PutSession().endedEarly().code == .invalidRequest)
        #expect(try Self.receiving().endedEarly().message.contains("0 of 1000000"))
    }

    /// A client that makes errors of all kinds, and continues where the reports tell it: the content arrives complete
    /// and in order, and there is a report at least every 128 KiB.
    @Test func randomHistories() throws {
        for seed in 0..<historyCount {
            var random = SeededGenerator(seed: UInt64(seed))
            let size = UInt64.random(in: 1...1_500_000, using: &random)
            let start = UInt64.random(in: 0...size, using: &random)
            var session = try Self.receiving(size: size, from: start)
            var (position, taken, reported) = (start, start, start)
            var steps = 0
            while !session.isWhole {
                steps += 1
                #expect(steps < 10_000, "seed \(seed)")
                if Int.random(in: 0..<8, using: &random) == 0 { position = .random(in: 0...size, using: &random) }
                let count = min(UInt64.random(in: 0...200_000, using: &random), size - position)
                switch session.receivedItem(Self.part(position, Int(count))) {
                case .take(let bytes):
                    #expect(position == taken, "seed \(seed)")
                    taken += UInt64(bytes.readableBytes)
                    position += count
                    if let report = session.wrote() {
                        #expect(report.offset == taken, "seed \(seed)")
                        reported = taken
                    }
                    #expect(taken - reported < 128 << 10, "seed \(seed)")
                case .report(let report):
                    #expect(report.offset == taken, "seed \(seed)")
                    position = report.offset
                case .ignore: position = count == 0 ? position : position + count
                case .begin, .identify, .fail: Issue.record("seed \(seed)")
                }
                // A client without an answer restarts at the server's position by itself.
                if position >= size, !session.isWhole { position = taken }
            }
            #expect(taken == size, "seed \(seed)")
        }
    }

    // MARK: Content before the hash

    private static func item(_ change: (inout Hhsocket_PutBegin) -> Void) throws -> ByteBuffer {
        var request = Hhsocket_PutRequest()
        request.begin.id = "a"
        request.begin.file.size = 100
        request.begin.writer = 5
        change(&request.begin)
        return try ByteBuffer(message: request)
    }

    private static func hash(_ bytes: [UInt8]) throws -> ByteBuffer {
        var request = Hhsocket_PutRequest()
        request.sha256 = Data(bytes)
        return try ByteBuffer(message: request)
    }

    @Test func hashMayFollow() throws {
        let digest = [UInt8](repeating: 9, count: 32)
        var session = PutSession()
        let begin = try Self.item { $0.source = Data(digest) }
        guard case .begin(let beginning) = session.receivedItem(begin) else { return #expect(Bool(false)) }
        #expect(beginning.sha256 == nil && beginning.source?.bytes == digest)
        _ = session.begun(at: 0, isChanged: false)
        #expect(Self.describe(session.receivedItem(Self.part(0, 100))) == "take 100")
        #expect(!session.isWhole)
        #expect(session.endedEarly().message.contains("without its SHA-256"))
        #expect(Self.describe(session.receivedItem(try Self.hash(digest))) == "identify 9")
        #expect(session.isWhole)
        // Only once.
        #expect(Self.describe(session.receivedItem(try Self.hash(digest))) == "fail invalidRequest")
    }

    @Test func invalidBeginningsWithoutAHash() throws {
        let short = Data(repeating: 1, count: 31)
        let whole = Data(repeating: 1, count: 32)
        for (sha256, source) in [(Data(), Data()), (Data(), short), (short, Data()), (short, whole), (whole, short)] {
            var session = PutSession()
            let item = try Self.item { ($0.file.sha256, $0.source) = (sha256, source) }
            #expect(Self.describe(session.receivedItem(item)) == "fail invalidRequest")
        }
        var session = try Self.receiving()
        #expect(Self.describe(session.receivedItem(try Self.hash([UInt8](short)))) == "fail invalidRequest")
        var early = PutSession()
        _ = early.receivedItem(try Self.item { $0.source = Data(repeating: 1, count: 32) })
        _ = early.begun(at: 0, isChanged: false)
        #expect(Self.describe(early.receivedItem(try Self.hash([UInt8](short)))) == "fail invalidRequest")
    }
}
