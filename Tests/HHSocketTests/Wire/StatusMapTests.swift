// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct StatusMapTests {
    private func format(ok: UInt32 = 200, _ statuses: [UInt32: Status], bytes: Int = 4) throws -> StatusMap {
        try WireFormat(
            WireFormat.Layout(
                name: "statuses",
                request: [.type(), .serial(), .length()],
                response: [.type(), .serial(), .status(bytes: bytes), .length()],
                okStatus: ok,
                statuses: statuses
            )
        ).storage.response.statuses
    }

    @Test func statusesHaveTheirMeanings() throws {
        let map = try self.format(ok: 0, [1: .noPermission, 2: .unknown, 7: .noPermission])
        #expect(map.decoded(0) == .ok)
        #expect(map.decoded(1) == .noPermission)
        #expect(map.decoded(7) == .noPermission)
        #expect(map.decoded(2) == .unknown)
        #expect(map.decoded(3) == Status(rawValue: 3))
        #expect(map.encoded(.ok) == 0)
        // The smallest number with this meaning.
        #expect(map.encoded(.noPermission) == 1)
        #expect(map.encoded(.unknown) == 2)
        #expect(map.encoded(.draining) == 504)
    }

    /// A server's own status is not confused with one of ours that has its number.
    @Test func takenStatusesExchangeTheirNumbers() throws {
        let map = try self.format(ok: 0, [1: .unknown])
        #expect(map.decoded(404) == Status(rawValue: 1))
        #expect(map.encoded(Status(rawValue: 1)) == 404)
        #expect(map.decoded(200) == Status(rawValue: 0))
        #expect(map.encoded(Status(rawValue: 0)) == 200)
    }

    @Test func nothingIsLostWhateverIsMapped() throws {
        for seed in 0..<UInt64(scaled(300)) {
            var random = SeededGenerator(seed: seed)
            let numbers = (0...12).map { UInt32($0) }.shuffled(using: &random)
            let meanings = ((0...12).map { UInt32($0) } + [200]).shuffled(using: &random)
            let ok = numbers[0]
            var statuses: [UInt32: Status] = [:]
            for index in 1..<Int.random(in: 1...8, using: &random) where meanings[index] != 200 {
                statuses[numbers[index]] = Status(rawValue: meanings[index])
            }
            let map = try self.format(ok: ok, statuses)
            for number in ([0...20, 195...205] as [ClosedRange<UInt32>]).joined() {
                #expect(map.encoded(map.decoded(number)) == number, "seed \(seed), \(number) on the wire")
                let status = Status(rawValue: number)
                #expect(map.decoded(map.encoded(status)) == status, "seed \(seed), \(number) in the program")
            }
        }
    }

    @Test func statusesThatTheFieldCannotHoldAreWrittenAsAnError() throws {
        let narrow = try self.format(ok: 0, [:], bytes: 1)
        #expect(narrow.encoded(.draining) == 255)
        #expect(narrow.encoded(.unknown) == 255)
        #expect(narrow.encoded(Status(rawValue: 7)) == 7)
        let named = try self.format(ok: 0, [9: .unknown], bytes: 1)
        #expect(named.encoded(.draining) == 9)
        let full = try self.format(ok: 255, [:], bytes: 1)
        #expect(full.encoded(.draining) == 254)
        #expect(full.encoded(.ok) == 255)
    }
}
