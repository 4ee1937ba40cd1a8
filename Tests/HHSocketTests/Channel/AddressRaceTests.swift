// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The race between the addresses of a name, in virtual time.
@Suite struct AddressRaceTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test func eachAddressHasAHeadStartOfAQuarterOfASecond() {
        var race = AddressRace(["a", "b", "c"])
        #expect(race.begin(now: self.start) == .connect("a"))
        #expect(race.nextStart == self.start + .milliseconds(250))
        #expect(race.timerFired(now: self.start + .milliseconds(249)) == .wait)
        #expect(race.timerFired(now: self.start + .milliseconds(250)) == .connect("b"))
        #expect(race.nextStart == self.start + .milliseconds(500))
        #expect(race.timerFired(now: self.start + .milliseconds(500)) == .connect("c"))
        #expect(race.nextStart == nil)
        #expect(race.timerFired(now: self.start + .seconds(9)) == .wait)
    }

    @Test func addressThatFailsHandsOverAtOnceAndTheOldTimerIsStale() {
        var race = AddressRace(["a", "b", "c"])
        _ = race.begin(now: self.start)
        #expect(race.failed(now: self.start + .milliseconds(100)) == .connect("b"))
        #expect(race.timerFired(now: self.start + .milliseconds(250)) == .wait)
        #expect(race.timerFired(now: self.start + .milliseconds(350)) == .connect("c"))
        #expect(race.failed(now: self.start + .milliseconds(400)) == .wait)
        #expect(race.failed(now: self.start + .milliseconds(400)) == .end)
    }

    @Test func raceWithoutAddressesEndsAtOnce() {
        var race = AddressRace([])
        #expect(race.begin(now: self.start) == .end)
    }

    @Test(arguments: 0..<200 as Range<UInt64>) func everyHistoryTriesEachAddressOnceAndEndsOnce(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        let addresses = (0..<Int.random(in: 1...8, using: &generator)).map { "\($0)" }
        var race = AddressRace(addresses)
        var now = self.start
        var (tried, failed, ends) = ([String](), 0, 0)
        func note(_ step: AddressRace.Step) {
            switch step {
            case .connect(let address): tried.append(address)
            case .wait: break
            case .end: ends += 1
            }
        }
        note(race.begin(now: now))
        while ends == 0 {
            now = now + .milliseconds(Int64.random(in: 0...300, using: &generator))
            if Bool.random(using: &generator), failed < tried.count {
                failed += 1
                note(race.failed(now: now))
            } else {
                let isDue = race.nextStart.map { now >= $0 } ?? false
                let before = tried.count
                note(race.timerFired(now: now))
                #expect((tried.count > before) == isDue)
            }
        }
        #expect(tried == addresses)
        #expect(failed == addresses.count)
    }
}
