// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

@Suite struct HandshakeQueueTests {
    private typealias Queue = HandshakeQueue<String>

    @Test func handshakesBeginAtOnceAsLongAsThereAreFew() {
        var queue = Queue(maximum: 2)
        #expect(queue.enter(now: start) != nil)
        #expect(queue.enter(now: start) != nil)
        #expect(queue.enter(now: start) == nil)
        #expect(queue.wakesAt == nil)
    }

    @Test func theyWaitInOrderUntilOneIsOver() throws {
        var queue = Queue(maximum: 1)
        let entered = queue.enter(now: start)
        let first = try #require(entered)
        let second = queue.wait("second", of: 1)
        _ = queue.wait("third", of: 1)
        #expect(queue.next(now: start) == nil)
        #expect(queue.waitingCount == 2)
        queue.remove(first)
        let next = queue.next(now: start)
        #expect(next?.element == "second" && next?.number == second)
        #expect(queue.next(now: start) == nil)
        queue.remove(second)
        #expect(queue.next(now: start)?.element == "third")
        #expect(queue.waitingCount == 0 && queue.wakesAt == nil)
    }

    @Test func waitingHandshakesAreNotOvertaken() throws {
        var queue = Queue(maximum: 1)
        let entered = queue.enter(now: start)
        let first = try #require(entered)
        _ = queue.wait("second", of: 1)
        queue.remove(first)
        #expect(queue.enter(now: start) == nil)
    }

    @Test func oneThatGivesUpWhileItWaitsCostsNothing() throws {
        var queue = Queue(maximum: 1)
        let entered = queue.enter(now: start)
        let first = try #require(entered)
        for _ in 0..<1_000 { queue.remove(queue.wait("impatient", of: 1)) }
        _ = queue.wait("patient", of: 1)
        queue.remove(first)
        #expect(queue.next(now: start)?.element == "patient")
        #expect(queue.countingCount == 1)
    }

    @Test func aClientThatLetsTheServerWaitTakesNoSlotFromOthers() throws {
        var queue = Queue(maximum: 1)
        _ = queue.enter(now: start)
        _ = queue.wait("second", of: 1)
        let wake = try #require(queue.wakesAt)
        #expect(wake == start + Queue.patience)
        #expect(queue.next(now: wake - .nanoseconds(1)) == nil)
        #expect(queue.next(now: wake)?.element == "second")
    }

    /// Otherwise a slow machine would begin more handshakes than it can complete.
    @Test func theEventLoopsOwnDelayIsNotTheClients() throws {
        var queue = Queue(maximum: 1)
        _ = queue.enter(now: start)
        _ = queue.wait("second", of: 1)
        let late = start + .seconds(1)
        queue.woke(for: start + .milliseconds(10), now: late)
        #expect(queue.next(now: late) == nil)
        let wake = try #require(queue.wakesAt)
        #expect(wake == start + Queue.patience + .milliseconds(990))
        #expect(queue.next(now: wake)?.element == "second")
    }

    /// One address with any number of connections does not delay another.
    @Test func addressesAlternate() throws {
        var queue = Queue(maximum: 1)
        let entered = queue.enter(now: start)
        var last = try #require(entered)
        for number in 0..<1_000 { _ = queue.wait("many \(number)", of: 1) }
        _ = queue.wait("one", of: 2)
        var order: [String] = []
        for _ in 0..<4 {
            queue.remove(last)
            let popped = queue.next(now: start)
            let next = try #require(popped)
            order.append(next.element)
            last = next.number
        }
        #expect(order == ["many 0", "one", "many 1", "many 2"])
    }

    @Test func concurrentHandshakesAreBounded() throws {
        var queue = Queue(maximum: 1_000)
        for _ in 0..<Queue.startsTogether { #expect(queue.enter(now: start) != nil) }
        #expect(queue.enter(now: start) == nil)
        for number in 0..<(Queue.startsTogether + 1) { _ = queue.wait("\(number)", of: 1) }
        let wake = try #require(queue.wakesAt)
        #expect(wake == start + Queue.pause)
        // Within a long turn.
        #expect(queue.next(now: wake) == nil)
        queue.woke(for: wake, now: wake)
        var begun = 0
        while queue.next(now: wake) != nil { begun += 1 }
        #expect(begun == Queue.startsTogether)
        let later = try #require(queue.wakesAt)
        queue.woke(for: later, now: later)
        #expect(queue.next(now: later)?.element == "\(Queue.startsTogether)")
    }
}
