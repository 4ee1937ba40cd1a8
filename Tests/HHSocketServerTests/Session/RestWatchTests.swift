// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketServer

@Suite struct RestWatchTests {
    private typealias Finding = RestWatch.Finding

    @Test func connectionRestsOnceAfterThreeQuietChecks() {
        var watch = RestWatch()
        #expect(watch.check(bytes: 50_000) == Finding(hasProgressed: true))
        let checks = (0..<5).map { _ in watch.check(bytes: 50_000) }
        #expect(checks == [Finding(), Finding(), Finding(rests: true), Finding(), Finding()])
    }

    @Test func pushNowAndThenKeepsNoMemory() {
        var watch = RestWatch()
        _ = watch.check(bytes: 1_000_000)
        let checks = (1...5).map { watch.check(bytes: 1_000_000 + $0 * 100) }
        #expect(checks.map(\.rests) == [false, false, true, true, true])
        #expect(checks.map(\.hasProgressed) == Array(repeating: true, count: 5))
    }

    @Test func busyConnectionNeverRests() {
        var watch = RestWatch()
        for count in 1...10 {
            #expect(watch.check(bytes: count * 2_000) == Finding(hasProgressed: true))
        }
    }
}
