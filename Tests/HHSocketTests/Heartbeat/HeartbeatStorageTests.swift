// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct HeartbeatStorageTests {
    private func runs(_ seconds: Int) -> [HeartbeatHistory.Run] {
        [HeartbeatHistory.Run(interval: .seconds(seconds), isAnswered: true)]
    }

    @Test func latestRunsOfEachNetworkAreKept() {
        let storage = InMemoryHeartbeatStorage()
        #expect(storage.runs(forNetwork: "home").isEmpty)
        storage.store(self.runs(1), forNetwork: "home")
        storage.store(self.runs(2), forNetwork: "work")
        storage.store(self.runs(3), forNetwork: "home")
        #expect(storage.runs(forNetwork: "home") == self.runs(3))
        #expect(storage.runs(forNetwork: "work") == self.runs(2))
    }

    @Test func networkThatWasNotUsedForLongestIsForgotten() {
        let storage = InMemoryHeartbeatStorage()
        for number in 0..<64 { storage.store(self.runs(number), forNetwork: "\(number)") }
        #expect(storage.runs(forNetwork: "0") == self.runs(0))
        storage.store(self.runs(64), forNetwork: "64")
        #expect(storage.runs(forNetwork: "1").isEmpty)
        #expect(storage.runs(forNetwork: "0") == self.runs(0))
        for number in 2...64 { #expect(storage.runs(forNetwork: "\(number)") == self.runs(number)) }
    }
}
