// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

@Suite struct WriterQueueTests {
    /// A queue, and how each write ended, by its serial.
    private final class Line {
        private var queue = WriterQueue()
        private let ends = NIOLockedValueBox<[UInt32: [Result<Void, SocketError>]]>([:])

        var bytes: Int { self.queue.bytes }
        var isEmpty: Bool { self.queue.isEmpty }

        func write(_ serial: UInt32, _ priority: FramePriority = .default) -> PendingWrite {
            let write = PendingWrite(Frame(type: 16, serial: serial), priority)
            _ = write.begin { [ends] end in ends.withLockedValue { $0[serial, default: []].append(end) } }
            return write
        }

        func append(_ write: PendingWrite, length: Int = 10, limit: Int = 100) -> Bool {
            self.queue.append(write, length: length, limit: limit)
        }

        func append(_ serial: UInt32, _ priority: FramePriority = .default, length: Int = 10, limit: Int = 100) -> Bool
        {
            self.append(self.write(serial, priority), length: length, limit: limit)
        }

        func cancel(_ write: PendingWrite) { self.queue.cancel(write) }

        func failAll(_ error: SocketError) { self.queue.failAll(error) }

        /// Sends all frames that have room, and returns their serials.
        func sendAll(upTo count: Int = .max) -> [UInt32] {
            var serials: [UInt32] = []
            while let write = self.queue.popFirst(where: { _ in serials.count < count }) {
                serials.append(write.frame.serial)
                write.complete(.success(()))
            }
            return serials
        }

        /// The code of a write's error; nil if it did not fail, or ended more than once.
        func code(_ serial: UInt32) -> SocketError.Code? {
            let ends = self.ends.withLockedValue { $0[serial] ?? [] }
            guard ends.count == 1, case .failure(let error) = ends[0] else { return nil }
            #expect(error.delivery == .notSent)
            #expect(error.serial == serial)
            return error.code
        }

        var count: Int { self.ends.withLockedValue { $0.values.reduce(0) { $0 + $1.count } } }
    }

    @Test func waitingFramesAreSentByPriorityAndThenInOrderWhileThereIsRoom() {
        let line = Line()
        for (serial, priority) in [(1, 0.5), (2, 0.75), (3, 0.5), (4, 0.25)] as [(UInt32, Float)] {
            #expect(line.append(serial, FramePriority(rawValue: priority)))
        }
        #expect(line.bytes == 40)
        #expect(line.sendAll(upTo: 3) == [2, 1, 3])
        #expect(line.bytes == 10)
        #expect(!line.isEmpty)
    }

    @Test func oneFrameOfAnySizeMayWaitAndNoMoreThanTheLimit() {
        let line = Line()
        #expect(line.append(1, length: 1_000))
        #expect(!line.append(2, length: 1))
        #expect(!line.append(3, length: .max, limit: .max))
        #expect(line.sendAll() == [1])
        #expect(line.append(4, length: 60))
        #expect(line.append(5, length: 40))
        #expect(!line.append(6, length: 1))
    }

    @Test func cancelledWriterEndsOnceAndMakesRoom() {
        let line = Line()
        let writes = (0..<1_000 as Range<UInt32>).map { line.write($0) }
        for write in writes { #expect(line.append(write, limit: 10_000)) }
        for _ in 0..<2 {
            for write in writes where write.frame.serial % 10 != 0 { line.cancel(write) }
        }
        #expect(line.count == 900)
        #expect(line.bytes == 1_000)
        #expect(line.code(1) == .cancelled)
        #expect(line.sendAll() == (0..<100).map { $0 * 10 })
        #expect(line.isEmpty)
        #expect(line.bytes == 0)
        // Sent frames are not affected.
        for write in writes { line.cancel(write) }
        #expect(line.count == 1_000)
        #expect(line.bytes == 0)
    }

    @Test func writerCancelledBeforeItBeginsIsNotified() {
        var queue = WriterQueue()
        let write = PendingWrite(Frame(type: 16, serial: 7), .default)
        queue.cancel(write)
        let ends = NIOLockedValueBox<[SocketError.Code]>([])
        let continues = write.begin { end in
            if case .failure(let error) = end { ends.withLockedValue { $0.append(error.code) } }
        }
        #expect(!continues)
        #expect(ends.withLockedValue { $0 } == [.cancelled])
        #expect(queue.isEmpty)
    }

    @Test func allFailWithOneCauseAndEachWithItsSerial() {
        let line = Line()
        let cancelled = line.write(1)
        #expect(line.append(cancelled))
        #expect(line.append(2))
        #expect(line.append(3, .high))
        line.cancel(cancelled)
        line.failAll(SocketError(.connectionLost, message: "gone", delivery: .sentUnknown))
        #expect(line.code(1) == .cancelled)
        #expect(line.code(2) == .connectionLost)
        #expect(line.code(3) == .connectionLost)
        #expect(line.isEmpty)
        #expect(line.bytes == 0)
    }
}
