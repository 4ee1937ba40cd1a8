// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The order in which streams send.
@Suite struct StreamSchedulerTests {
    private func scheduler(_ connection: UInt32 = 4_194_304) -> StreamScheduler {
        StreamScheduler(connectionWindow: connection, maximumQueuedBytes: 1 << 20)
    }

    private func item(_ length: Int) -> LanePayload {
        LanePayload(type: FrameType.item, kind: .item, bytes: ByteBuffer(repeating: 1, count: length))
    }

    private func free(_ length: Int) -> LanePayload {
        LanePayload(type: 1_000, kind: .free, bytes: ByteBuffer(repeating: 1, count: length))
    }

    /// The serials of the sent frames, with a plus for each that continues.
    private func order(_ scheduler: inout StreamScheduler, _ count: Int = 100) -> [String] {
        (0..<count).compactMap { _ in
            scheduler.next().map { departure in
                let continues = departure.frame.type & FrameType.continuesFlag != 0
                return "\(departure.frame.serial)\(continues ? "+" : "")"
            }
        }
    }

    @Test func lanesOfAPriorityAlternateFrameByFrame() {
        var scheduler = self.scheduler()
        for serial in [50, 51, 52] as [UInt32] { scheduler.sendPlain(self.free(150_000), serial: serial) }
        #expect(self.order(&scheduler) == ["50+", "51+", "52+", "50+", "51+", "52+", "50", "51", "52"])
        #expect(scheduler.laneCount == 0)
        #expect(scheduler.waitingBytes == 0)
    }

    @Test func itemsAndWhatCostsNothingAlternate() {
        var scheduler = self.scheduler()
        let lane = scheduler.open(nil, serial: 50, priority: .default, window: 1 << 20)
        scheduler.append(self.item(150_000), to: lane)
        scheduler.sendPlain(self.free(100_000), serial: 51)
        #expect(self.order(&scheduler) == ["50+", "51+", "50+", "51", "50"])
    }

    @Test func aHigherPriorityGoesFirstAndACallPassesATransfer() {
        var scheduler = self.scheduler()
        let lane = scheduler.open(nil, serial: 50, priority: .default, window: 1 << 20)
        scheduler.append(self.item(200_000), to: lane)
        _ = scheduler.next()
        scheduler.sendPlain(self.free(10), serial: 51, priority: .low)
        scheduler.sendPlain(self.free(10), serial: 52, priority: .high)
        scheduler.sendPlain(self.free(10), serial: 53)
        #expect(self.order(&scheduler) == ["52", "50+", "53", "50+", "50", "51"])
    }

    @Test func payloadsOfASerialKeepTheirOrder() {
        var scheduler = self.scheduler()
        scheduler.sendPlain(self.free(70_000), serial: FrameSerial.push)
        scheduler.sendPlain(self.free(1), serial: FrameSerial.push)
        #expect(self.order(&scheduler) == ["1+", "1", "1"])
    }

    @Test func anEndStaysBehindItsItemsAndCreditsAndCancelsPass() throws {
        var scheduler = self.scheduler()
        let lane = scheduler.open(nil, serial: 50, priority: .default, window: 100)
        scheduler.append(self.item(150), to: lane)
        scheduler.append(LanePayload(type: FrameType.end, kind: .end), to: lane)
        scheduler.sendCredit(7, of: lane)
        scheduler.sendCredit(8, of: lane)
        scheduler.sendConnectionCredit(9)
        scheduler.sendCancel(Frame(type: FrameType.cancel, serial: 60))
        #expect(scheduler.next()?.frame.type == FrameType.cancel)
        #expect(scheduler.next()?.frame == StreamFrames.credit(serial: 0, 9))
        // The later credit has replaced the earlier one.
        #expect(scheduler.next()?.frame == StreamFrames.credit(serial: 50, 8))
        #expect(self.order(&scheduler) == ["50+"])
        #expect(scheduler.grant(200, to: lane) == true)
        #expect(scheduler.next()?.frame.payload.readableBytes == 66)
        #expect(scheduler.next()?.frame.type == FrameType.end)
    }

    @Test func aStreamWithoutCreditIsSkipped() {
        var scheduler = self.scheduler()
        let slow = scheduler.open(nil, serial: 50, priority: .high, window: 20)
        let fast = scheduler.open(nil, serial: 51, priority: .default, window: 1_000)
        scheduler.append(self.item(10), to: slow)
        scheduler.append(self.item(10), to: fast)
        scheduler.append(self.item(10), to: fast)
        // Half of the window of the first is free, so that a part of its item is sent.
        #expect(self.order(&scheduler) == ["50+", "51", "51"])
        #expect(scheduler.grant(20, to: slow) == false)
        #expect(scheduler.next() == nil)
        #expect(scheduler.grant(100, to: slow) == true)
        #expect(self.order(&scheduler) == ["50"])
    }

    @Test func whereTheConnectionHasNoCreditItemsWaitAndCallsDoNot() {
        var scheduler = self.scheduler(1_000)
        let lanes = [50, 51].map { scheduler.open(nil, serial: $0, priority: .high, window: 10_000) }
        for lane in lanes { scheduler.append(self.item(984), to: lane) }
        scheduler.sendPlain(self.free(70_000), serial: 52, priority: .low)
        #expect(self.order(&scheduler) == ["50", "52+", "52"])
        #expect(scheduler.connection.free == 0)
        #expect(scheduler.grantConnection(1_499) == true)
        #expect(scheduler.next() == nil)
        #expect(scheduler.grantConnection(1_500) == true)
        #expect(self.order(&scheduler) == ["51+"])
        #expect(scheduler.grantConnection(.max) == true)
        #expect(self.order(&scheduler) == ["51"])
    }

    @Test func aStreamThatWaitsForAWholeFrameStopsNoOther() {
        var scheduler = self.scheduler(100_000)
        let other = scheduler.open(nil, serial: 50, priority: .default, window: 100_000)
        let lane = scheduler.open(nil, serial: 51, priority: .high, window: 100_000)
        scheduler.append(self.item(51_000), to: lane)
        #expect(self.order(&scheduler) == ["51"])
        scheduler.append(self.item(8_984), to: other)
        #expect(self.order(&scheduler) == ["50"])
        // 39,984 are free on the connection, and 48,984 on the stream: less than half.
        scheduler.append(self.item(48_000), to: lane)
        scheduler.append(self.item(10), to: other)
        #expect(self.order(&scheduler) == ["50"])
        #expect(scheduler.grantConnection(108_000) == true)
        #expect(scheduler.next() == nil)
        #expect(scheduler.grantConnection(108_058) == true)
        #expect(self.order(&scheduler) == ["51"])
    }

    @Test func aSenderWaitsForCreditAndForRoom() throws {
        var scheduler = StreamScheduler(connectionWindow: 4_000_000, maximumQueuedBytes: 1_000)
        let streams = (0..<2).map { StreamID(key: SlotKey(index: UInt32($0), generation: 0)) }
        let lanes = streams.map { scheduler.open($0, serial: 50 + $0.key.index, priority: .default, window: 2_000) }
        scheduler.append(self.item(900), to: lanes[0])
        #expect(scheduler.mayProceed(lanes[0]) == true)
        scheduler.append(self.item(200), to: lanes[1])
        // The credit reaches for both, but the queue is full.
        #expect(scheduler.mayProceed(lanes[1]) == false)
        #expect(scheduler.hasUnblocked == false)
        _ = scheduler.next()
        #expect(scheduler.takeUnblocked() == [streams[1]])
        _ = scheduler.next()
        scheduler.append(self.item(3_000), to: lanes[0])
        #expect(scheduler.mayProceed(lanes[0]) == false)
        _ = self.order(&scheduler)
        #expect(scheduler.hasUnblocked == false)
        _ = scheduler.grant(10_000, to: lanes[0])
        _ = self.order(&scheduler)
        #expect(scheduler.takeUnblocked() == [streams[0]])
    }

    @Test func manyThatComeAndGoKeepNothing() {
        var scheduler = self.scheduler(100)
        let first = scheduler.open(nil, serial: 49, priority: .default, window: 1_000)
        scheduler.append(self.item(84), to: first)
        scheduler.append(self.item(84), to: first)
        _ = self.order(&scheduler)
        for serial in 50..<10_000 as Range<UInt32> {
            let lane = scheduler.open(nil, serial: serial, priority: .default, window: 1_000)
            scheduler.append(self.item(50), to: lane)
            scheduler.sendCredit(1, of: lane)
            _ = scheduler.mayProceed(lane)
            scheduler.close(lane)
            #expect(scheduler.occupiedSlots <= 256)
        }
        #expect(scheduler.laneCount == 1)
    }

    @Test func aPlainPayloadThatIsDroppedReportsWhetherItHasBegun() {
        var scheduler = self.scheduler()
        #expect(scheduler.dropPlain(serial: 50) == .nothing)
        scheduler.sendPlain(self.free(70_000), serial: 50)
        #expect(scheduler.dropPlain(serial: 50) == .beforeItBegan)
        scheduler.sendPlain(self.free(70_000), serial: 50)
        _ = scheduler.next()
        #expect(scheduler.dropPlain(serial: 50) == .halfway)
        #expect(scheduler.next() == nil)
        #expect(scheduler.waitingBytes == 0)
    }
}
