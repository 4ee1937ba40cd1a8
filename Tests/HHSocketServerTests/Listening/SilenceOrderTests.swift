// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

@Suite struct SilenceOrderTests {
    private let order = SilenceOrder<String>()

    @Test func firstSilentConnectionIsTheOldest() {
        #expect(order.oldest == nil)
        let first = order.insert("first", bytesReceived: 0, now: start)
        _ = order.insert("second", bytesReceived: 0, now: start + .seconds(1))
        #expect(order.oldest?.element == "first" && order.oldest?.since == start)
        order.remove(first)
        #expect(order.oldest?.element == "second" && order.oldest?.since == start + .seconds(1))
    }

    @Test func bytesAndRequestsInFlightEndASilence() {
        let slots = ["first", "second", "third"].map { order.insert($0, bytesReceived: 0, now: start) }
        for (slot, (bytes, isBusy)) in zip(slots, [(12, false), (0, true), (0, false)]) {
            let isSilent = order.check(slot, bytesReceived: bytes, isBusy: isBusy, now: start + .seconds(1))
            #expect(isSilent == (bytes == 0 && !isBusy))
        }
        #expect(order.oldest?.element == "third" && order.oldest?.since == start)
        order.remove(slots[2])
        #expect(order.oldest?.element == "first" && order.oldest?.since == start + .seconds(1))
        // An unchanged number of bytes is no activity.
        #expect(order.check(slots[0], bytesReceived: 12, isBusy: false, now: start + .seconds(2)) == true)
        #expect(order.oldest?.bytesReceived == 12)
    }

    @Test func aSlotThatWasReleasedIsTakenAgain() {
        let first = order.insert("first", bytesReceived: 0, now: start)
        order.remove(first)
        order.remove(first)
        #expect(order.oldest == nil)
        #expect(order.check(first, bytesReceived: 1, isBusy: false, now: start) == true)
        #expect(order.insert("second", bytesReceived: 0, now: start).index == first.index)
        order.remove(first)
        #expect(order.oldest?.element == "second")
    }

    /// Compares it with an array that is searched.
    @Test func itDoesWhatASortedArrayWould() {
        var random = SeededGenerator(seed: 1)
        let order = SilenceOrder<Int>()
        var model: [(id: Int, slot: SlotKey, bytes: Int, since: NIODeadline)] = []
        var now = start
        for id in 0..<2_000 {
            now = now + .milliseconds(1)
            switch Int.random(in: 0..<3, using: &random) {
            case 0 where !model.isEmpty:
                let index = Int.random(in: model.indices, using: &random)
                order.remove(model.remove(at: index).slot)
            case 1 where !model.isEmpty:
                let index = Int.random(in: model.indices, using: &random)
                var entry = model.remove(at: index)
                (entry.bytes, entry.since) = (entry.bytes + 1, now)
                order.check(entry.slot, bytesReceived: entry.bytes, isBusy: false, now: now)
                model.append(entry)
            default:
                model.append((id, order.insert(id, bytesReceived: 0, now: now), 0, now))
            }
            #expect(order.oldest?.element == model.first?.id)
            #expect(order.oldest?.since == model.first?.since)
        }
    }
}
