// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct TimeTests {
    @Test func spansThatCannotBeExpressedBecomeTheNearest() {
        #expect(TimeAmount(clamping: .seconds(Int64.max)) == .nanoseconds(.max))
        #expect(TimeAmount(clamping: .seconds(Int64.min)) < .hours(-24 * 365 * 100))
        #expect(TimeAmount(clamping: .seconds(-10_000_000_000)) < .zero)
        #expect(TimeAmount(clamping: .seconds(-2)) == .seconds(-2))
        #expect(TimeAmount(clamping: .milliseconds(1_500)) == .milliseconds(1_500))
    }

    @Test func aTimeoutFarBelowZeroIsOverAtOnce() {
        let now = NIODeadline.uptimeNanoseconds(1_000)
        #expect(now.advanced(clamping: TimeAmount(clamping: .seconds(-10_000_000_000))) == now)
        #expect(now.advanced(clamping: TimeAmount(clamping: .seconds(Int64.max))) == .distantFuture)
    }
}
