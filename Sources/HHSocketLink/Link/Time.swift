// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension NIODeadline {
    /// This time plus `span`, or the distant future if that cannot be represented.
    package func advanced(clamping span: TimeAmount) -> NIODeadline {
        let (_, overflow) = Int64(clamping: self.uptimeNanoseconds).addingReportingOverflow(span.nanoseconds)
        return overflow ? .distantFuture : self + max(.zero, span)
    }
}

extension TimeAmount {
    /// `span`, or the nearest value that can be represented in nanoseconds. (NIO's own conversion turns a span far
    /// below zero into the longest one.)
    package init(clamping span: Duration) {
        self = span < .seconds(-9_000_000_000) ? .nanoseconds(.min / 2) : TimeAmount(span)
    }
}

extension Duration {
    /// The span in seconds.
    package var inSeconds: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) + Double(attoseconds) / 1e18
    }
}

extension Int {
    /// The sum, or the nearest that can be expressed.
    package func addingClamped(_ other: Int) -> Int {
        let (sum, overflow) = self.addingReportingOverflow(other)
        return overflow ? (other < 0 ? .min : .max) : sum
    }
}
