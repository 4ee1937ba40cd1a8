// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct StallWatchTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000)
    private let window = TimeAmount.seconds(30)

    private func check(_ watch: inout StallWatch, at second: Int64, passed: Int, isWaiting: Bool = true) -> Bool {
        watch.isStalled(isWaiting: isWaiting, passed: passed, within: window, now: start + .seconds(second))
    }

    /// A link that carries 16 MiB at 3.5 KB/s is never given up.
    @Test func slowLinkIsNotStalled() {
        var watch = StallWatch()
        for second in 0..<4_800 as Range<Int64> {
            #expect(!check(&watch, at: second, passed: Int(second) * 3_500))
        }
    }

    @Test(arguments: [1, 29, 30, 31, 59, 60, 61] as [Int64])
    func linkThatStopsIsGivenUpOneToTwoWindowsLater(stop: Int64) {
        var watch = StallWatch()
        var second: Int64 = 0
        while !check(&watch, at: second, passed: Int(min(second, stop)) * 10_000), second < 1_000 { second += 1 }
        #expect((stop + 29...stop + 60).contains(second), "\(second)")
    }

    @Test func lessThan128BytesASecondIsNoProgress() {
        var watch = StallWatch()
        #expect(!check(&watch, at: 0, passed: 0))
        #expect(!check(&watch, at: 30, passed: 128 * 30))
        #expect(check(&watch, at: 60, passed: 128 * 60 - 1))
    }

    @Test func whileNothingWaitsNoTimePasses() {
        var watch = StallWatch()
        #expect(!check(&watch, at: 0, passed: 0))
        #expect(watch.nextCheck(within: window) == start + .seconds(30))
        #expect(!check(&watch, at: 29, passed: 0, isWaiting: false))
        #expect(watch.nextCheck(within: window) == nil)
        #expect(!check(&watch, at: 100, passed: 0))
        #expect(!check(&watch, at: 129, passed: 0))
        #expect(check(&watch, at: 130, passed: 0))
    }
}
