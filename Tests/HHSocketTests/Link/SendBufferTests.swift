// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The order of sending, without a channel.
@Suite struct SendBufferTests {
    private var language = NoteLanguage()
    private var buffer = SendBuffer<NoteLanguage>(maximumBytes: 10_000)

    private mutating func append(
        _ note: Note,
        _ priority: FramePriority = .default,
        isOpen: Bool = false
    ) -> SendBuffer<NoteLanguage>.Taken {
        self.buffer.append(note, priority, isOpen: isOpen, in: &self.language)
    }

    /// Takes all bytes to send, piece by piece.
    private mutating func pullAll() -> [String] {
        var steps: [String] = []
        while true {
            switch self.buffer.pull(&self.language, limit: 64 << 10) {
            case .nothing: return steps
            case .unit(let note, let priority):
                steps.append("\(note)")
                self.buffer.begin(note, priority, in: &self.language)
            case .piece(let outgoing):
                steps.append("\(outgoing.unit.lane): \(outgoing.sent)")
            }
        }
    }

    private mutating func bytes() -> ByteBuffer {
        var all = ByteBuffer()
        for var next in self.buffer.bytes.takeAll() { all.writeBuffer(&next) }
        return all
    }

    @Test func largeBufferIsReleasedWhileNothingIsToBeWritten() {
        var bytes = SendBytes()
        bytes.gathered.writeRepeatingByte(7, count: 60_000)
        #expect(!bytes.keepsMuch)
        bytes.releaseRest()
        #expect(bytes.count == 60_000)
        #expect(bytes.takeGathered()?.readableBytes == 60_000)
        bytes.recycle()
        #expect(bytes.keepsMuch)
        bytes.releaseRest()
        #expect(!bytes.keepsMuch && bytes.gathered.capacity == 0)
        // Sending continues as before.
        bytes.prepare()
        bytes.gathered.writeRepeatingByte(8, count: 10)
        #expect(bytes.takeGathered()?.readableBytes == 10)
        #expect(!bytes.keepsMuch)
    }

    /// Every way by which a waiting unit leaves ends the charge for its read.
    @Test(arguments: ["sent", "taken", "dropped"]) mutating func readsOfWaitingUnitsAreChargedWhileTheyWait(
        end: String
    ) throws {
        self.buffer = SendBuffer(maximumBytes: 10 << 20)
        self.buffer.detachesWaiting = true
        let read = ByteBuffer(repeating: 7, count: 256 << 10)
        for index in 0..<3 {
            let body = try #require(read.getSlice(at: index * (64 << 10), length: 64 << 10))
            #expect(self.append(Note(kind: .text, body: body)) == .queued)
        }
        let small = try #require(read.getSlice(at: 0, length: 1_000))
        #expect(self.append(Note(kind: .text, body: small)) == .queued)
        #expect(self.buffer.sharedBytes == read.storageCapacity)
        switch end {
        case "sent":
            while case .unit(let note, let priority) = self.buffer.pull(&self.language, limit: 64 << 10) {
                #expect(note.body.readableBytes > 1_000 || note.body.storageCapacity <= 2_000)
                self.buffer.begin(note, priority, in: &self.language)
            }
        case "taken":
            #expect(self.buffer.takeWaitingUnits().count == 4)
        default:
            self.buffer.removeAll()
        }
        #expect(self.buffer.sharedBytes == 0)
    }

    @Test mutating func unitIsSentAtOnceWhereNothingWaits() {
        #expect(self.append(.text("one"), isOpen: true) == .sent)
        #expect(self.buffer.isEmpty)
        #expect(self.buffer.bytes.count == 9)
        #expect(self.append(.text("two")) == .queued)
        #expect(!self.buffer.isEmpty)
        // It is queued after the waiting one, whether or not the channel takes more.
        #expect(self.append(.text("three"), isOpen: true) == .queued)
        #expect(self.buffer.waitingBytes == 9 + 11)
        #expect(self.pullAll() == ["text two", "text three"])
        #expect(self.buffer.waitingBytes == 0)
    }

    @Test mutating func waitingUnitsAreBoundedAndOneOfAnySizeMayWait() {
        #expect(self.append(.blob(1 << 20, lane: 1)) == .queued)
        #expect(self.append(.text("x")) == .refused)
        _ = self.pullAll()
        #expect(self.append(.text("x")) == .queued)
        #expect(self.append(.blob(10_000, lane: 1)) == .refused)
        #expect(self.append(.blob(9_000, lane: 1)) == .queued)
    }

    @Test mutating func blobsOfOnePriorityAlternateAndAHigherOneGoesFirst() {
        _ = self.append(.blob(3_000, lane: 1))
        _ = self.append(.blob(2_000, lane: 2))
        _ = self.append(.text("low"), .low)
        guard case .unit(let first, let priority) = self.buffer.pull(&self.language, limit: 64 << 10) else {
            Issue.record("nothing is to be begun")
            return
        }
        self.buffer.begin(first, priority, in: &self.language)
        _ = self.append(.text("high"), .high)
        #expect(
            self.pullAll() == [
                "1: 1024", "text high", "blob of 2000", "2: 1024", "1: 2048", "2: 2000", "1: 3000", "text low",
            ]
        )
        var reader = NoteLanguage()
        reader.append(self.bytes())
        var received: [String] = []
        while let note = try? reader.next() { received.append("\(note)") }
        #expect(received == ["text high", "blob of 2000", "blob of 3000", "text low"])
    }

    @Test mutating func unsentUnitsAreReturnedInOrder() {
        _ = self.append(.blob(3_000, lane: 1), isOpen: true)
        _ = self.append(.text("two"))
        _ = self.append(.text("one"), .high)
        #expect(self.buffer.removeAll().map(\.text) == ["one", "two"])
        #expect(self.buffer.isEmpty)
        #expect(self.buffer.waitingBytes == 0)
        #expect(self.buffer.bytes.count == 0)
    }

    @Test func largeBuffersAreSentInOrderAlsoIfOthersAreAddedWhileTheyAreTaken() {
        var bytes = SendBytes()
        var parts: [String] = []
        for number in 1...3 { bytes.append(ByteBuffer(string: "\(number)")) }
        if let part = bytes.popFirst() { parts.append(String(buffer: part)) }
        bytes.append(ByteBuffer(string: "4"))
        #expect(bytes.count == 3)
        parts += bytes.takeAll().map { String(buffer: $0) }
        #expect(parts == ["1", "2", "3", "4"])
        #expect(bytes.count == 0)
    }

    /// Large buffers are passed on unchanged, between the gathered bytes.
    @Test func bytesAreSentInTheOrderInWhichTheyWereGiven() {
        var bytes = SendBytes()
        bytes.gathered.writeString("a")
        let large = ByteBuffer(string: "large")
        bytes.append(large)
        bytes.prepare()
        bytes.gathered.writeString("b")
        #expect(bytes.count == 7)
        let parts = bytes.takeAll().map { String(buffer: $0) }
        #expect(parts == ["a", "large", "b"])
        #expect(bytes.count == 0)
        bytes.prepare()
        bytes.gathered.writeString("c")
        #expect(bytes.takeAll().map { String(buffer: $0) } == ["c"])
        // Passed buffers are not overwritten.
        #expect(parts == ["a", "large", "b"])
    }
}

extension SendBytes {
    /// Takes all bytes, like a link that writes.
    fileprivate mutating func takeAll() -> [ByteBuffer] {
        var all: [ByteBuffer] = []
        while let next = self.popFirst() { all.append(next) }
        if let gathered = self.takeGathered() { all.append(gathered) }
        return all
    }
}

/// Handlers that run at the end of a batch.
@Suite struct HandlerBufferTests {
    private final class Record {
        var order: [Int] = []
    }

    private struct Small: TurnHandler {
        let number: Int
        let record: Record
        static func run(at pointer: UnsafeMutableRawPointer) { pointer.takeHandler(Self.self).run() }
        func run() { self.record.order.append(self.number) }
    }

    private struct Large: TurnHandler {
        let small: Small
        let padding: (UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0)
        static func run(at pointer: UnsafeMutableRawPointer) { pointer.takeHandler(Self.self).small.run() }
    }

    @Test func handlersOfAnySizeRunInOrderAndAreReleased() {
        let record = Record()
        var buffer = HandlerBuffer()
        for round in 0..<3 {
            for number in 0..<1_000 {
                let small = Small(number: round * 1_000 + number, record: record)
                if number % 3 == 0 { buffer.append(Large(small: small)) } else { buffer.append(small) }
            }
            while let handler = buffer.takeFirst() { handler.run() }
            let isEmpty = buffer.isEmpty
            #expect(isEmpty)
        }
        #expect(record.order == Array(0..<3_000))
    }

    @Test func handlerThatHasRunIsGone() {
        var buffer = HandlerBuffer()
        weak var trace: Record?
        do {
            let record = Record()
            trace = record
            buffer.append(Small(number: 1, record: record))
        }
        #expect(trace != nil)
        buffer.takeFirst()?.run()
        #expect(trace == nil)
    }
}
