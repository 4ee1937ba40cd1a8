// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Inboxes in which pushes wait for their reader, without sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PushInboxTests {
    private let changes = NIOLockedValueBox(0)

    private func inbox(_ policy: PushBufferingPolicy) -> PushInbox {
        PushInbox(policy.bounds, account: nil) { [changes] _, _ in changes.withLockedValue { $0 += 1 } }
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
        let inbox = self.inbox(.dropOldest(10))
        for length in [2_000, 200_000] {
            var push = self.push(0)
            push.body = try #require(read.getSlice(at: 0, length: length))
            _ = inbox.append(push)
            let taken = try #require(inbox.take())
            #expect(taken.body == push.body)
            #expect(taken.body.storageCapacity <= 4 * length)
        }
    }

    @Test func everyPushIsReadOnceByManyReadersAtOnce() async throws {
        let inbox = self.inbox(.dropOldest(.max))
        let count = 10_000
        let numbers = try await withDeadline("the pushes") {
            await withTaskGroup(of: [Int].self, returning: [Int].self) { group in
                for _ in 0..<8 {
                    group.addTask {
                        var numbers: [Int] = []
                        let reading = inbox.makeReader()
                        while let push = await reading.next(isolation: nil) { numbers.append(Int(push.string) ?? -1) }
                        return numbers
                    }
                }
                group.addTask {
                    for number in 0..<count { #expect(inbox.append(self.push(number)) == .kept) }
                    inbox.finish()
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
            let inbox = self.inbox(.suspendReading(1))
            let reader = Task { await inbox.next()?.string }
            for _ in 0..<100 { await Task.yield() }
            let appended = inbox.append(self.push(7))
            #expect(await reader.value == "7")
            #expect(!inbox.holdsReading)
            return appended == .kept
        }
    }

    @Test func readerWhoCatchesUpReleasesReadingAndSaysSoOnce() async throws {
        let inbox = self.inbox(.suspendReading(4))
        for number in 0..<3 { #expect(inbox.append(self.push(number)) == .kept) }
        #expect(!inbox.holdsReading)
        #expect(inbox.append(self.push(3)) == .holdsReading)
        #expect(inbox.append(self.push(4)) == .kept)
        for number in 0..<3 {
            #expect(inbox.holdsReading)
            #expect(self.changeCount == 0)
            #expect(await inbox.next()?.string == "\(number)")
        }
        #expect(!inbox.holdsReading)
        #expect(self.changeCount == 1)
        for _ in 0..<2 { _ = await inbox.next() }
        #expect(self.changeCount == 1)
    }

    @Test func pushTakenWithoutWaitingIsTheOldestAndCountsAsRead() {
        let inbox = self.inbox(.suspendReading(2))
        #expect(inbox.take() == nil)
        for number in 0..<2 { _ = inbox.append(self.push(number)) }
        #expect(inbox.holdsReading)
        #expect(inbox.take()?.string == "0")
        #expect(!inbox.holdsReading)
        #expect(self.changeCount == 1)
        inbox.finish()
        #expect(inbox.take()?.string == "1")
        #expect(inbox.take() == nil)
    }

    @Test func whatWaitsCanBeReadAfterFinish() async {
        let inbox = self.inbox(.suspendReading(2))
        for number in 0..<2 { _ = inbox.append(self.push(number)) }
        inbox.finish()
        #expect(inbox.isOver)
        #expect(!inbox.holdsReading)
        #expect(inbox.append(self.push(2)) == nil)
        for number in 0..<2 { #expect(await inbox.next()?.string == "\(number)") }
        #expect(await inbox.next() == nil)
    }

    @Test func cancelThrowsAwayWhatWaitsAndEndsEveryReader() async throws {
        let inbox = self.inbox(.suspendReading(2))
        for number in 0..<2 { _ = inbox.append(self.push(number)) }
        #expect(inbox.holdsReading)
        inbox.cancel()
        #expect(!inbox.holdsReading)
        #expect(self.changeCount >= 1)
        #expect(await inbox.next() == nil)
        #expect(inbox.append(self.push(2)) == nil)
        inbox.cancel()

        let other = self.inbox(.dropOldest(1))
        let readers = (0..<10).map { _ in Task { await other.next() } }
        other.cancel()
        for reader in readers { #expect(await reader.value == nil) }
    }

    @Test func cancelledTaskEndsTheSubscriptionWhetherItWaitsOrComesLater() async {
        let inbox = self.inbox(.dropOldest(1))
        let reader = Task { await inbox.next() }
        reader.cancel()
        #expect(await reader.value == nil)
        #expect(inbox.isOver)

        let other = self.inbox(.dropOldest(2))
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
        let inbox = self.inbox(.dropOldest(10))
        var pushes: SocketPushes? = SocketPushes(inbox)
        var iterator = pushes?.makeAsyncIterator()
        pushes = nil
        #expect(inbox.append(self.push(1)) == .kept)
        #expect(await iterator?.next()?.string == "1")
        #expect(!inbox.isOver)
        iterator = nil
        #expect(inbox.isOver)
        #expect(self.changeCount == 1)
    }

    @Test func iteratorIsRetainedWhileItsNextElementIsAwaited() async {
        let inbox = self.inbox(.dropOldest(10))
        func next() async -> SocketPush? {
            var iterator = SocketPushes(inbox).makeAsyncIterator()
            return await iterator.next()
        }
        async let push = next()
        // The push is kept, whether the reader waits already or not.
        #expect(inbox.append(self.push(1)) == .kept)
        #expect(await push?.string == "1")
    }

    @Test func readerTakesBatchesAndPutsBackWhatItHasNotUsed() async throws {
        let inbox = self.inbox(.dropOldest(64))
        for number in 0..<10 { _ = inbox.append(self.push(number)) }
        var reading: PushInbox.Reader? = inbox.makeReader()
        #expect(await reading?.next(isolation: nil)?.string == "0")
        // Batches have four pushes: the reader has taken the other three.
        #expect(inbox.take()?.string == "4")
        #expect(await reading?.next(isolation: nil)?.string == "1")
        reading = nil
        for number in [2, 3, 5, 6, 7, 8, 9] { #expect(inbox.take()?.string == "\(number)") }
        #expect(inbox.take() == nil)
    }

    @Test func returnedPushesGoToAWaitingReader() async throws {
        let inbox = self.inbox(.dropOldest(64))
        for number in 0..<2 { _ = inbox.append(self.push(number)) }
        var reading: PushInbox.Reader? = inbox.makeReader()
        #expect(await reading?.next(isolation: nil)?.string == "0")
        let other = Task { await inbox.next()?.string }
        for _ in 0..<100 { await Task.yield() }
        reading = nil
        #expect(try await waitForValue(of: other, "the push") == "1")
    }

    @Test func returnedPushesStayAfterTheEndIfReadersRemain() async throws {
        for isCancelled in [true, false] {
            let inbox = self.inbox(.dropOldest(64))
            for number in 0..<2 { _ = inbox.append(self.push(number)) }
            var reading: PushInbox.Reader? = inbox.makeReader()
            #expect(await reading?.next(isolation: nil)?.string == "0")
            if isCancelled { inbox.cancel() } else { inbox.finish() }
            reading = nil
            #expect(await inbox.next()?.string == (isCancelled ? nil : "1"))
        }
    }

    @Test func cancelledTaskDoesNotEvenGetTheRestOfItsBatch() async throws {
        let inbox = self.inbox(.dropOldest(64))
        for number in 0..<4 { _ = inbox.append(self.push(number)) }
        let hasRead = Gate()
        let reader = Task {
            let reading = inbox.makeReader()
            #expect(await reading.next(isolation: nil)?.string == "0")
            hasRead.open()
            while !Task.isCancelled { await Task.yield() }
            return await reading.next(isolation: nil)
        }
        try await hasRead.wait()
        reader.cancel()
        #expect(try await waitForValue(of: reader, "the end") == nil)
        #expect(inbox.isOver)
    }

    @Test func routerDeliversPushesTogetherAndToEachSubscriberOnce() async {
        var router = PushRouter()
        let (one, other, all) = (self.inbox(.default), self.inbox(.dropNewest(1)), self.inbox(.suspendReading(2)))
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

extension PushInbox {
    enum Appended: Equatable {
        case kept, dropped, holdsReading
    }

    /// Appends a push, and returns the result; nil if the inbox is closed.
    func append(_ push: SocketPush) -> Appended? {
        guard !self.isOver else { return nil }
        var pushes: Deque = [push]
        let appended = self.append(contentsOf: &pushes)
        return appended.holds ? .holdsReading : appended.dropped > 0 ? .dropped : .kept
    }

    var holdsReading: Bool { !self.isOver && self.isFull }

    /// Takes the oldest waiting push; nil if there is none.
    func take() -> SocketPush? { self.makeReader().take() }

    /// Returns the next push, for a reader that reads only one.
    func next() async -> SocketPush? { await self.makeReader().next(isolation: nil) }
}
