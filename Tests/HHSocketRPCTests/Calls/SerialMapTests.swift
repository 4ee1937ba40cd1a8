// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct SerialMapTests {
    @Test(arguments: 0..<20)
    func agreesWithADictionary(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var map = SerialMap()
        var model: [UInt32: UInt32] = [:]
        // Few distinct values that collide in a small array, and some far away.
        let serials = (0..<200).map { _ in
            UInt32.random(in: 1...500, using: &generator) &+ (Bool.random(using: &generator) ? 0xFFFF_FE00 : 0)
        }.filter { $0 != 0 }
        for _ in 0..<5_000 {
            guard let serial = serials.randomElement(using: &generator) else { continue }
            switch Int.random(in: 0..<3, using: &generator) {
            case 0:
                let value = UInt32.random(in: 0...UInt32.max, using: &generator)
                map.set(serial, value)
                model[serial] = value
            case 1:
                #expect(map.remove(serial) == model.removeValue(forKey: serial))
            default:
                #expect(map[serial] == model[serial])
                #expect(map.contains(serial) == (model[serial] != nil))
            }
            #expect(map.count == model.count)
        }
        for serial in serials { #expect(map[serial] == model[serial]) }
    }

    @Test func serialZeroIsNeverThere() {
        var map = SerialMap()
        #expect(map[0] == nil)
        #expect(map.remove(0) == nil)
    }
}
