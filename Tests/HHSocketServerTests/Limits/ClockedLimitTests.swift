// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

/// Limits that depend on time, in virtual time.
@Suite struct TokenBucketTests {
    @Test func aBurstIsLetThroughAndThenTheRate() {
        var bucket = TokenBucket(RequestRate(perSecond: 10, burst: 3), now: start)
        for isLetThrough in [true, true, true, false] { #expect(bucket.take(now: start) == isLetThrough) }
        #expect(bucket.take(now: start + .milliseconds(99)) == false)
        #expect(bucket.take(now: start + .milliseconds(101)) == true)
        #expect(bucket.take(now: start + .milliseconds(102)) == false)
    }

    @Test func itHoldsNoMoreThanTheBurst() {
        var bucket = TokenBucket(RequestRate(perSecond: 1_000, burst: 2), now: start)
        let later = start + .hours(1)
        for isLetThrough in [true, true, false] { #expect(bucket.take(now: later) == isLetThrough) }
    }

    @Test func aClockThatStandsStillGivesNothing() {
        var bucket = TokenBucket(RequestRate(perSecond: 1e9, burst: 1), now: start)
        #expect(bucket.take(now: start) == true)
        #expect(bucket.take(now: start) == false)
        #expect(bucket.take(now: start - .seconds(1)) == false)
    }

    @Test(arguments: [0.5, 1, 2.5, .infinity, .nan])
    func theBurstIsASecondsWorthByDefault(rate: Double) {
        #expect(RequestRate(perSecond: rate).burst >= 1)
    }
}

@Suite struct SessionWatchTests {
    private let times = SessionWatch.Times(
        idle: .seconds(600),
        firstFrame: .seconds(10),
        readStall: .seconds(30),
        writeStall: .seconds(30),
        minimumReadRate: 128
    )
    private var watch = SessionWatch(now: start)

    @Test mutating func aSilentClientIsClosedAfterTheTimeForTheFirstFrame() {
        #expect(watch.verdict(.init(), times, now: start + .seconds(9)) == nil)
        #expect(watch.verdict(.init(), times, now: start + .seconds(10)) == .noFirstFrame)
    }

    @Test mutating func bytesThatAreNoFrameAreNotTheFirstFrame() {
        watch.received(5, partialBytes: 5, frames: false, now: start + .seconds(9))
        #expect(watch.verdict(.init(partialBytes: 5), times, now: start + .seconds(10)) == .noFirstFrame)
    }

    @Test mutating func anIdleClientIsClosed() {
        watch.firstFrameCame()
        watch.received(12, partialBytes: 0, frames: true, now: start + .seconds(100))
        #expect(watch.verdict(.init(), times, now: start + .seconds(699)) == nil)
        #expect(watch.verdict(.init(), times, now: start + .seconds(700)) == .idle)
    }

    @Test mutating func aClientThatWaitsForItsAnswerIsNotIdle() {
        watch.firstFrameCame()
        #expect(watch.verdict(.init(isBusy: true), times, now: start + .seconds(7_000)) == nil)
        #expect(watch.verdict(.init(waitingBytes: 1, bytesTaken: 1), times, now: start + .seconds(7_001)) == nil)
    }

    @Test mutating func aFrameThatStopsArrivingIsAStall() {
        watch.firstFrameCame()
        watch.received(8, partialBytes: 8, frames: false, now: start)
        #expect(watch.verdict(.init(partialBytes: 8), times, now: start + .seconds(29)) == nil)
        #expect(watch.verdict(.init(partialBytes: 8), times, now: start + .seconds(30)) == .stalledReading)
    }

    @Test mutating func aByteNowAndThenDoesNotHelp() {
        watch.firstFrameCame()
        var bytes = 0
        var verdict: SessionWatch.Verdict?
        var second: Int64 = 0
        while verdict == nil, second < 1_000 {
            bytes += 10
            watch.received(10, partialBytes: bytes, frames: false, now: start + .seconds(second))
            verdict = watch.verdict(.init(partialBytes: bytes), times, now: start + .seconds(second))
            second += 1
        }
        #expect(verdict == .stalledReading)
        #expect(second == 31)
    }

    @Test mutating func aSlowLinkThatGetsOnIsLeftAlone() {
        watch.firstFrameCame()
        var bytes = 0
        for second in 0..<600 as Range<Int64> {
            bytes += 200
            watch.received(200, partialBytes: bytes, frames: false, now: start + .seconds(second))
            #expect(watch.verdict(.init(partialBytes: bytes), times, now: start + .seconds(second)) == nil)
        }
    }

    @Test mutating func whileWeDoNotReadTheClientIsNotToBlame() {
        watch.firstFrameCame()
        watch.received(8, partialBytes: 8, frames: false, now: start)
        let held = SessionWatch.Observation(partialBytes: 8, isReadingHeld: true)
        #expect(watch.verdict(held, times, now: start + .seconds(500)) == nil)
        #expect(watch.verdict(.init(partialBytes: 8), times, now: start + .seconds(529)) == nil)
        #expect(watch.verdict(.init(partialBytes: 8), times, now: start + .seconds(530)) == .stalledReading)
    }

    @Test mutating func aClientThatTakesNothingIsAStall() {
        watch.firstFrameCame()
        #expect(watch.verdict(.init(waitingBytes: 9, bytesTaken: 1), times, now: start) == nil)
        let observation = SessionWatch.Observation(waitingBytes: 8, bytesTaken: 2)
        #expect(watch.verdict(observation, times, now: start + .seconds(29)) == nil)
        #expect(watch.verdict(observation, times, now: start + .seconds(30)) == .stalledWriting)
    }

    @Test mutating func aClientThatTakesALittleIsSlowAndNotStalled() {
        watch.firstFrameCame()
        for second in 0..<600 as Range<Int64> {
            let observation = SessionWatch.Observation(waitingBytes: 100_000, bytesTaken: Int(second) * 200)
            #expect(watch.verdict(observation, times, now: start + .seconds(second)) == nil)
        }
        // The traffic stops, which is detected one to two windows later.
        for second in 600..<630 as Range<Int64> {
            let observation = SessionWatch.Observation(waitingBytes: 100_000, bytesTaken: 600 * 200)
            #expect(watch.verdict(observation, times, now: start + .seconds(second)) == nil)
        }
        let observation = SessionWatch.Observation(waitingBytes: 100_000, bytesTaken: 600 * 200)
        #expect(watch.verdict(observation, times, now: start + .seconds(660)) == .stalledWriting)
    }

    @Test mutating func aBurstDoesNotCompensateForATrickle() {
        watch.firstFrameCame()
        watch.received(16 << 20, partialBytes: 16 << 20, frames: false, now: start)
        var bytes = 16 << 20
        var verdict: SessionWatch.Verdict?
        var second: Int64 = 0
        while verdict == nil, second < 1_000 {
            second += 1
            bytes += 1
            watch.received(1, partialBytes: bytes, frames: false, now: start + .seconds(second))
            verdict = watch.verdict(.init(partialBytes: bytes), times, now: start + .seconds(second))
        }
        #expect(verdict == .stalledReading)
        #expect(second <= 60)
    }

    @Test mutating func firstFrameThatWasOfNoUseIsWaitedForAgain() {
        watch.firstFrameCame()
        #expect(watch.verdict(.init(), times, now: start + .seconds(100)) == nil)
        watch.awaitFirstFrame(now: start + .seconds(100))
        #expect(watch.verdict(.init(), times, now: start + .seconds(109)) == nil)
        #expect(watch.verdict(.init(), times, now: start + .seconds(110)) == .noFirstFrame)
    }

    @Test mutating func withoutLimitsNothingIsTooLong() {
        watch.received(8, partialBytes: 8, frames: false, now: start)
        let observation = SessionWatch.Observation(partialBytes: 8, waitingBytes: 8)
        #expect(watch.verdict(observation, .init(), now: start + .hours(1_000)) == nil)
    }
}

@Suite struct ConcurrencyGradientTests {
    /// Simulates requests of this duration, as many at a time as the limit allows.
    private func settle(
        _ gradient: inout ConcurrencyGradient,
        windows: Int,
        _ time: (_ inFlight: Int) -> TimeAmount
    ) {
        for _ in 0..<windows {
            var inFlight = 0
            while gradient.start() { inFlight += 1 }
            for _ in 0..<inFlight { gradient.finished(after: time(inFlight)) }
            for _ in 0..<max(0, ConcurrencyGradient.windowLength - inFlight) where gradient.start() {
                gradient.finished(after: time(inFlight))
            }
        }
    }

    @Test func withoutWaitingItGrowsToTheMost() {
        var policy = AdaptiveConcurrency()
        policy.maximum = 500
        var gradient = ConcurrencyGradient(policy)
        settle(&gradient, windows: 200) { _ in .milliseconds(5) }
        #expect(gradient.limit == 500)
    }

    /// `Int.max` is none of the numbers of floating point, and its successor is none of Int's.
    @Test func limitsOfAnySizeArePossible() {
        var policy = AdaptiveConcurrency()
        (policy.initial, policy.minimum, policy.maximum) = (.max, .max, .max)
        var gradient = ConcurrencyGradient(policy)
        let isAdmitted = gradient.start()
        #expect(isAdmitted)
        #expect(gradient.limit > 1 << 40)
        policy.minimum = 1
        gradient = ConcurrencyGradient(policy)
        #expect(gradient.limit > 1 << 40)
    }

    /// Simulates a machine that can run 50 requests at a time; more wait for one another.
    @Test func itStaysNearWhatCanBeDoneAtATime() {
        var gradient = ConcurrencyGradient(AdaptiveConcurrency())
        settle(&gradient, windows: 1_000) { .microseconds(Int64(5_000 * max(1, Double($0) / 50))) }
        #expect((50...250).contains(gradient.limit), "\(gradient.limit)")
    }

    @Test func itComesDownWhenRequestsBecomeSlowAndNeverBelowTheLeast() {
        var gradient = ConcurrencyGradient(AdaptiveConcurrency())
        settle(&gradient, windows: 50) { _ in .milliseconds(1) }
        let before = gradient.limit
        settle(&gradient, windows: 10) { _ in .milliseconds(100) }
        #expect(gradient.limit < before / 2)
        #expect(gradient.limit >= 10)
    }

    @Test func cancelledRequestsProvideNoInformation() {
        var gradient = ConcurrencyGradient(AdaptiveConcurrency())
        for _ in 0..<1_000 {
            #expect(gradient.start() == true)
            gradient.finished(after: nil)
        }
        #expect(gradient.limit == 100)
        #expect(gradient.inFlight == 0)
    }

    @Test func oneTooManyIsRefused() {
        var policy = AdaptiveConcurrency()
        policy.initial = 2
        policy.minimum = 1
        var gradient = ConcurrencyGradient(policy)
        for isLetThrough in [true, true, false] { #expect(gradient.start() == isLetThrough) }
        gradient.finished(after: .milliseconds(1))
        #expect(gradient.start() == true)
    }
}

@Suite struct PushQueueTests {
    private func body(_ length: Int) -> PushQueue.Push {
        PushQueue.Push(bytes: OwnedBytes(made: ByteBuffer(repeating: 0, count: length)))
    }

    @Test func bytesThatManyShareAreNotChargedToEach() {
        let ledger = Ledger(ServerLimits(), shards: 1)
        var queues = (0..<3).map { _ in PushQueue(maximumCount: 10, maximumBytes: 1 << 20) }
        let bytes = ByteBuffer(repeating: 0, count: 1 << 18)
        do {
            let shared = PushQueue.Push(
                bytes: OwnedBytes(made: bytes),
                share: SharedCharge(ledger, bytes: bytes.storageCapacity)
            )
            for index in queues.indices {
                #expect(queues[index].append(shared) == true)
                #expect(queues[index].bytes == 1 << 18)
                #expect(queues[index].cost == ConnectionCost.waitingPush)
            }
        }
        #expect(ledger.bytes == 1 << 18)
        for index in queues.indices {
            #expect(ledger.bytes == 1 << 18)
            _ = queues[index].popFirst()
            #expect(queues[index].cost == 0)
        }
        #expect(ledger.bytes == 0)
        // A push to one connection costs its memory.
        #expect(queues[0].append(PushQueue.Push(bytes: OwnedBytes(made: bytes))) == true)
        #expect(queues[0].cost == ConnectionCost.waitingPush + 1 << 18)
    }

    @Test func itIsBoundedInCountAndInBytes() {
        var queue = PushQueue(maximumCount: 2, maximumBytes: 100)
        #expect(queue.append(body(60)) == true)
        #expect(queue.append(body(41)) == false)
        #expect(queue.append(body(40)) == true)
        #expect(queue.append(body(0)) == false)
        #expect(queue.bytes == 100)
        #expect(queue.popFirst()?.bytes.count == 60)
        #expect(queue.append(body(60)) == true)
        queue.removeAll()
        #expect((queue.count, queue.bytes) == (0, 0))
    }

    @Test func oneMayAlwaysWait() {
        var queue = PushQueue(maximumCount: 0, maximumBytes: 0)
        #expect(queue.append(body(1_000)) == true)
        #expect(queue.append(body(0)) == false)
    }
}

@Suite struct LogBudgetTests {
    @Test func tenLinesASecondAreWrittenAndTheRestIsCounted() {
        var now = start
        var budget = LogBudget(now: now)
        func write() -> Int? {
            let suppressed = budget.begin(now: now)
            if suppressed != nil { budget.written() }
            return suppressed
        }
        for _ in 0..<10 { #expect(write() == 0) }
        for _ in 0..<1_000 { #expect(write() == nil) }
        now = now + .milliseconds(100)
        #expect(write() == 1_000)
        #expect(write() == nil)
        now = now + .seconds(60)
        #expect(write() == 1)
        #expect((0..<100).count { _ in write() != nil } == 9)
    }

    @Test func linesThatWaitForASlowLogAreBounded() {
        var now = start
        var budget = LogBudget(now: now)
        for _ in 0..<1_000 {
            now = now + .seconds(1)
            _ = budget.begin(now: now)
        }
        now = now + .seconds(1)
        #expect(budget.begin(now: now) == nil)
        budget.written()
        #expect(budget.begin(now: now) == 1_000 - LogBudget.maximumWaiting + 1)
    }

    @Test func textOfAPeerIsLoggedAsOneShortLine() {
        #expect(PeerLog.printable("a\nb\u{2028}c\u{7}grün") == "a\\nb\\u{2028}c\\u{07}grün")
        // Neither a return, nor an escape sequence of a terminal, nor text from right to left.
        let escaped = "a\\rb\\u{1B}[2Jc\\u{202E}d\\u{2067}e\\u{0085}"
        #expect(PeerLog.printable("a\rb\u{1B}[2Jc\u{202E}d\u{2067}e\u{85}") == escaped)
        let long = PeerLog.printable(String(repeating: "x", count: 10_000))
        #expect(long.count == PeerLog.longestValue + 1)
    }
}

@Suite struct AnswerOrderTests {
    @Test func everyRequestTakesASlotUntilThoseBeforeItAreReleased() {
        var order = AnswerOrder<String>()
        for _ in 0..<1_000 { order.reserve() }
        for number in 2...1_000 as ClosedRange<UInt64> { #expect(order.abandon(number).isEmpty) }
        #expect(order.count == 1_000)
        #expect(order.answer(1, "first") == ["first"])
        #expect(order.count == 0)
    }

    @Test func answersWaitForEarlierOnes() {
        var order = AnswerOrder<String>()
        for _ in 0..<4 { order.reserve() }
        #expect(order.answer(2, "b") == [])
        #expect(order.answer(4, "d") == [])
        #expect(order.heldCount == 2)
        #expect(order.answer(1, "a") == ["a", "b"])
        #expect(order.abandon(3) == ["d"])
        #expect(order.heldCount == 0)
    }

    @Test func abandonedUnknownAndRepeatedAnswersDelayNoOthers() {
        var order = AnswerOrder<String>()
        for _ in 0..<3 { order.reserve() }
        #expect(order.abandon(1) == [])
        #expect(order.answer(1, "late") == [])
        #expect(order.answer(9, "unknown") == [])
        #expect(order.answer(2, "b") == ["b"])
        #expect(order.answer(2, "again") == [])
        #expect(order.answer(3, "c") == ["c"])
    }

    @Test func anyOrderOfAnswersIsSentInOrder() {
        var generator = SystemRandomNumberGenerator()
        for _ in 0..<200 {
            var order = AnswerOrder<UInt64>()
            for _ in 0..<20 { order.reserve() }
            var sent: [UInt64] = []
            for number in (1...20 as ClosedRange<UInt64>).shuffled(using: &generator) {
                sent += order.answer(number, number)
            }
            #expect(sent == Array(1...20))
        }
    }
}
