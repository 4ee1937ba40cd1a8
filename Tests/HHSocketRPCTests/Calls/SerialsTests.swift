// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct SerialsTests {
    /// Says the same with plain collections.
    private struct Model {
        let range: ClosedRange<UInt32>
        let maximumTombstones: Int
        var next: UInt32
        var hasWrapped = false
        var calls: [UInt32: UInt32] = [:]
        var tombstones: [UInt32] = []

        init(_ range: ClosedRange<UInt32>, maximumTombstones: Int) {
            self.range = range
            self.maximumTombstones = min(maximumTombstones, range.count / 2)
            self.next = range.lowerBound
        }

        var hasFree: Bool { self.calls.count + self.tombstones.count < self.range.count }

        private mutating func step() {
            self.hasWrapped = self.hasWrapped || self.next == self.range.upperBound
            self.next = self.next == self.range.upperBound ? self.range.lowerBound : self.next + 1
        }

        mutating func issue() -> UInt32 {
            while self.calls[self.next] != nil || self.tombstones.contains(self.next) { self.step() }
            let serial = self.next
            self.step()
            return serial
        }

        mutating func bury(_ serial: UInt32) {
            self.calls[serial] = nil
            self.tombstones.append(serial)
            if self.tombstones.count > self.maximumTombstones { self.tombstones.removeFirst() }
        }

        mutating func received(unawaited serial: UInt32, isFinal: Bool) -> Serials.Unawaited {
            if self.tombstones.contains(serial) {
                if isFinal { self.tombstones.removeAll { $0 == serial } }
                return .late
            }
            return self.range.contains(serial) && (self.hasWrapped || serial < self.next) ? .duplicate : .unknown
        }

        func age(of serial: UInt32) -> Int {
            var (age, walker) = (1, serial)
            while true {
                walker = walker == self.range.upperBound ? self.range.lowerBound : walker + 1
                if walker == self.next { return age }
                age += 1
            }
        }
    }

    @Test(
        arguments: [
            (50...57, 100), (1...40, 5), (UInt32.max - 20...UInt32.max, 4), (3...3, 1), (1...200, 0),
        ] as [(ClosedRange<UInt32>, Int)]
    )
    func randomHistoriesAreThoseOfPlainCollections(range: ClosedRange<UInt32>, maximumTombstones: Int) {
        for seed in 0..<10 as Range<UInt64> {
            var generator = SeededGenerator(seed: seed)
            var serials = Serials(range, maximumTombstones: maximumTombstones)
            var model = Model(range, maximumTombstones: maximumTombstones)
            for number in 0..<2_000 as Range<UInt32> {
                Self.step(number, &serials, &model, &generator)
                #expect(serials.inFlightCount == model.calls.count)
                #expect(serials.hasFree == model.hasFree)
            }
        }
    }

    private static func step(
        _ number: UInt32,
        _ serials: inout Serials,
        _ model: inout Model,
        _ generator: inout SeededGenerator
    ) {
        let inFlight = model.calls.keys.sorted().randomElement(using: &generator)
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<50:
            guard model.hasFree, serials.hasFree else { return }
            let serial = serials.issue()
            #expect(serial == model.issue())
            serials.set(serial, number)
            model.calls[serial] = number
        case 50..<65:
            guard let serial = inFlight else { return }
            serials.remove(serial)
            model.calls[serial] = nil
        case 65..<80:
            guard let serial = inFlight else { return }
            serials.bury(serial)
            model.bury(serial)
        case 80..<97:
            let range = model.range
            let serial = UInt32.random(in: max(range.lowerBound, 2) - 2...range.upperBound, using: &generator)
            #expect(serials[serial] == model.calls[serial])
            if model.calls[serial] == nil {
                let isFinal = Bool.random(using: &generator)
                let unawaited = serials.received(unawaited: serial, isFinal: isFinal)
                #expect(unawaited == model.received(unawaited: serial, isFinal: isFinal))
            } else {
                #expect(serials.age(of: serial) == model.age(of: serial))
            }
        default:
            serials.removeTombstones()
            model.tombstones = []
        }
    }
}
