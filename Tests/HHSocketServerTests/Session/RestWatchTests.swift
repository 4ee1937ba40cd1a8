// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocketServer

@Suite struct RestWatchTests {
    private typealias Finding = RestWatch.Finding

    @Test func connectionRestsOnceAfterThreeQuietLooks() {
        var watch = RestWatch()
        #expect(watch.look(bytes: 50_000) == Finding(hasProgressed: true))
        let looks = (0..<5).map { _ in watch.look(bytes: 50_000) }
        #expect(looks == [Finding(), Finding(), Finding(rests: true), Finding(), Finding()])
    }

    @Test func pushNowAndThenKeepsNoMemory() {
        var watch = RestWatch()
        _ = watch.look(bytes: 1_000_000)
        let looks = (1...5).map { watch.look(bytes: 1_000_000 + $0 * 100) }
        #expect(looks.map(\.rests) == [false, false, true, true, true])
        #expect(looks.map(\.hasProgressed) == Array(repeating: true, count: 5))
    }

    @Test func busyConnectionNeverRests() {
        var watch = RestWatch()
        for count in 1...10 {
            #expect(watch.look(bytes: count * 2_000) == Finding(hasProgressed: true))
        }
    }
}
