// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Mailboxes in which pushes wait for their reader, without sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PushMailboxTests {
    private let changes = NIOLockedValueBox(0)

    private func mailbox(_ policy: PushBufferingPolicy) -> PushMailbox {
        PushMailbox(policy) { [changes] _, _ in changes.withLockedValue { $0 += 1 } }
    }

    private var changeCount: Int { self.changes.withLockedValue { $0 } }

    private func push(_ number: Int) -> SocketPush {
        SocketPush(
            type: 2_001,
            status: .ok,
            body: ByteBuffer(string: "\(number)"),
            endpoint: Endpoint(host: "", port: 1)
        )
    }

    /// A push is a slice of the whole read from the network.
    @Test func pushThatWaitsDoesNotHoldOnToAllThatWasRead() throws {
        let read = ByteBuffer(repeating: 7, count: 256 << 10)
        let mailbox = self.mailbox(.dropOldest(10))
        for length in [2_000, 200_000] {
            var push = self.push(0)
            push.body = try #require(read.getSlice(at: 0, length: length))
            _ = mailbox.append(push)
            let taken = try #require(mailbox.take())
            #expect(taken.body == push.body)
            #expect(taken.body.storageCapacity <= 4 * length)
        }
    }

    @Test func everyPushIsReadOnceByManyReadersAtOnce() async throws {
        let mailbox = self.mailbox(.dropOldest(.max))
        let count = 10_000
        let numbers = try await withDeadline("the pushes") {
            await withTaskGroup(of: [Int].self, returning: [Int].self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        var numbers: [Int] = []
                        let reading = PushReading(mailbox)
                        while let push = await reading.next(isolation: nil) { numbers.append(Int(push.string) ?? -1) }
                        return numbers
                    }
                }
                group.addTask {
                    for number in 0..<count { #expect(mailbox.append(self.push(number)) == .kept) }
                    mailbox.finish()
                    return []
                }
                return await group.reduce(into: [Int]()) { all, numbers in
                    // Each reader receives its pushes in order.
                    #expect(numbers == numbers.sorted())
                    all += numbers
                }
            }
        }
        #expect(numbers.sorted() == Array(0..<count))
    }

    @Test func pushForAReaderWhoWaitsDoesNotWait() async throws {
        try await eventually("a reader who waits") {
            let mailbox = self.mailbox(.suspendReading(1))
            let reader = Task { await mailbox.next()?.string }
            for _ in 0..<100 { await Task.yield() }
            let appended = mailbox.append(self.push(7))
            #expect(await reader.value == "7")
            #expect(!mailbox.holdsReading)
            return appended == .kept
        }
    }

    @Test func readerWhoCatchesUpReleasesReadingAndSaysSoOnce() async throws {
        let mailbox = self.mailbox(.suspendReading(4))
        for number in 0..<3 { #expect(mailbox.append(self.push(number)) == .kept) }
        #expect(!mailbox.holdsReading)
        #expect(mailbox.append(self.push(3)) == .holdsReading)
        #expect(mailbox.append(self.push(4)) == .kept)
        for number in 0..<3 {
            #expect(mailbox.holdsReading)
            #expect(self.changeCount == 0)
            #expect(await mailbox.next()?.string == "\(number)")
        }
        #expect(!mailbox.holdsReading)
        #expect(self.changeCount == 1)
        for _ in 0..<2 { _ = await mailbox.next() }
        #expect(self.changeCount == 1)
    }

    @Test func pushTakenWithoutWaitingIsTheOldestAndCountsAsRead() {
        let mailbox = self.mailbox(.suspendReading(2))
        #expect(mailbox.take() == nil)
        for number in 0..<2 { _ = mailbox.append(self.push(number)) }
        #expect(mailbox.holdsReading)
        #expect(mailbox.take()?.string == "0")
        #expect(!mailbox.holdsReading)
        #expect(self.changeCount == 1)
        mailbox.finish()
        #expect(mailbox.take()?.string == "1")
        #expect(mailbox.take() == nil)
    }

    @Test func finishLeavesWhatWaitsToTheReader() async {
        let mailbox = self.mailbox(.suspendReading(2))
        for number in 0..<2 { _ = mailbox.append(self.push(number)) }
        mailbox.finish()
        #expect(mailbox.isOver)
        #expect(!mailbox.holdsReading)
        #expect(mailbox.append(self.push(2)) == nil)
        for number in 0..<2 { #expect(await mailbox.next()?.string == "\(number)") }
        #expect(await mailbox.next() == nil)
    }

    @Test func cancelThrowsAwayWhatWaitsAndEndsEveryReader() async throws {
        let mailbox = self.mailbox(.suspendReading(2))
        for number in 0..<2 { _ = mailbox.append(self.push(number)) }
        #expect(mailbox.holdsReading)
        mailbox.cancel()
        #expect(!mailbox.holdsReading)
        #expect(self.changeCount >= 1)
        #expect(await mailbox.next() == nil)
        #expect(mailbox.append(self.push(2)) == nil)
        mailbox.cancel()

        let other = self.mailbox(.dropOldest(1))
        let readers = (0..<10).map { _ in Task { await other.next() } }
        other.cancel()
        for reader in readers { #expect(await reader.value == nil) }
    }

    @Test func cancelledTaskEndsTheSubscriptionWhetherItWaitsOrComesLater() async {
        let mailbox = self.mailbox(.dropOldest(1))
        let reader = Task { await mailbox.next() }
        reader.cancel()
        #expect(await reader.value == nil)
        #expect(mailbox.isOver)

        let other = self.mailbox(.dropOldest(2))
        _ = other.append(self.push(0))
        let late = Task {
            while !Task.isCancelled { await Task.yield() }
            return await other.next()
        }
        late.cancel()
        #expect(await late.value == nil)
        #expect(other.isOver)
    }

    @Test func sequenceIsOverWhenItAndItsIteratorsAreGone() async {
        let mailbox = self.mailbox(.dropOldest(10))
        var pushes: SocketPushes? = SocketPushes(mailbox)
        var iterator = pushes?.makeAsyncIterator()
        pushes = nil
        #expect(mailbox.append(self.push(1)) == .kept)
        #expect(await iterator?.next()?.string == "1")
        #expect(!mailbox.isOver)
        iterator = nil
        #expect(mailbox.isOver)
        #expect(self.changeCount == 1)
    }

    @Test func iteratorIsRetainedWhileItsNextElementIsAwaited() async {
        let mailbox = self.mailbox(.dropOldest(10))
        func next() async -> SocketPush? {
            var iterator = SocketPushes(mailbox).makeAsyncIterator()
            return await iterator.next()
        }
        async let push = next()
        // The push is kept, whether the reader waits already or not.
        #expect(mailbox.append(self.push(1)) == .kept)
        #expect(await push?.string == "1")
    }

    @Test func readerTakesBatchesAndPutsBackWhatItHasNotUsed() async throws {
        let mailbox = self.mailbox(.dropOldest(64))
        for number in 0..<10 { _ = mailbox.append(self.push(number)) }
        var reading: PushReading? = PushReading(mailbox)
        #expect(await reading?.next(isolation: nil)?.string == "0")
        // Batches have four pushes: the reader has taken the other three.
        #expect(mailbox.take()?.string == "4")
        #expect(await reading?.next(isolation: nil)?.string == "1")
        reading = nil
        for number in [2, 3, 5, 6, 7, 8, 9] { #expect(mailbox.take()?.string == "\(number)") }
        #expect(mailbox.take() == nil)
    }

    @Test func returnedPushesGoToAWaitingReader() async throws {
        let mailbox = self.mailbox(.dropOldest(64))
        for number in 0..<2 { _ = mailbox.append(self.push(number)) }
        var reading: PushReading? = PushReading(mailbox)
        #expect(await reading?.next(isolation: nil)?.string == "0")
        let other = Task { await mailbox.next()?.string }
        for _ in 0..<100 { await Task.yield() }
        reading = nil
        #expect(try await waitForValue(of: other, "the push") == "1")
    }

    @Test func returnedPushesStayAfterTheEndIfReadersRemain() async throws {
        for isCancelled in [true, false] {
            let mailbox = self.mailbox(.dropOldest(64))
            for number in 0..<2 { _ = mailbox.append(self.push(number)) }
            var reading: PushReading? = PushReading(mailbox)
            #expect(await reading?.next(isolation: nil)?.string == "0")
            if isCancelled { mailbox.cancel() } else { mailbox.finish() }
            reading = nil
            #expect(await mailbox.next()?.string == (isCancelled ? nil : "1"))
        }
    }

    @Test func cancelledTaskDoesNotEvenGetTheRestOfItsBatch() async throws {
        let mailbox = self.mailbox(.dropOldest(64))
        for number in 0..<4 { _ = mailbox.append(self.push(number)) }
        let hasRead = Gate()
        let reader = Task {
            let reading = PushReading(mailbox)
            #expect(await reading.next(isolation: nil)?.string == "0")
            hasRead.open()
            while !Task.isCancelled { await Task.yield() }
            return await reading.next(isolation: nil)
        }
        try await hasRead.wait()
        reader.cancel()
        #expect(try await waitForValue(of: reader, "the end") == nil)
        #expect(mailbox.isOver)
    }

    @Test func routerDeliversPushesTogetherAndToEachSubscriberOnce() async {
        var router = PushRouter()
        let (one, other, all) = (self.mailbox(.default), self.mailbox(.dropNewest(1)), self.mailbox(.suspendReading(2)))
        router.add(one, 2_001)
        router.add(other, 2_001)
        router.add(all, nil)
        func isClaimed(_ push: SocketPush) -> Bool { router.route(push) == nil }
        func handOver() -> PushRouter.HandedOver { router.handOver() }
        #expect(isClaimed(self.push(0)))
        #expect(one.take() == nil)
        #expect(isClaimed(self.push(1)))
        #expect(handOver() == .init(dropped: 1, newHolds: 1))
        #expect(handOver() == .init())
        var stranger = self.push(2)
        stranger.type = 2_002
        #expect(isClaimed(stranger))
        #expect(handOver() == .init())
        all.cancel()
        #expect(!isClaimed(stranger))
        router.remove(all, nil)
        router.remove(one, 2_001)
        router.remove(other, 2_001)
        #expect(!isClaimed(self.push(3)))
        for number in 0..<2 { #expect(await one.next()?.string == "\(number)") }
        #expect(await other.next()?.string == "0")
    }
}

extension PushMailbox {
    /// Appends a push, and returns the result; nil if the mailbox is closed.
    func append(_ push: SocketPush) -> PushBuffer<SocketPush>.Appended? {
        guard !self.isOver else { return nil }
        var pushes: Deque = [push]
        let appended = self.append(&pushes)
        return appended.holdsReading ? .holdsReading : appended.dropped > 0 ? .dropped : .kept
    }

    /// Takes the oldest waiting push; nil if there is none.
    func take() -> SocketPush? {
        var batch: Deque<SocketPush> = []
        self.take(into: &batch)
        defer { if !batch.isEmpty { self.giveBack(batch) } }
        return batch.popFirst()
    }

    /// Returns the next push, for a reader that reads only one.
    func next() async -> SocketPush? { await PushReading(self).next(isolation: nil) }
}
