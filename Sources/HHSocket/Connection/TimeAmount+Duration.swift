import NIOCore

extension TimeAmount {
    /// The same span, clamped to what 64 bits of nanoseconds hold (292 years). NIO's own conversion traps beyond.
    package init(clamping duration: Duration) {
        let (seconds, attoseconds) = duration.components
        let (nanoseconds, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflow else {
            self = seconds < 0 ? .nanoseconds(.min) : .nanoseconds(.max)
            return
        }
        let (sum, carried) = nanoseconds.addingReportingOverflow(attoseconds / 1_000_000_000)
        self = .nanoseconds(carried ? (seconds < 0 ? .min : .max) : sum)
    }
}

extension NIODeadline {
    /// This moment and `span` more, or the distant future where that cannot be expressed.
    package func advanced(clamping span: TimeAmount) -> NIODeadline {
        let (_, overflow) = Int64(clamping: self.uptimeNanoseconds).addingReportingOverflow(span.nanoseconds)
        return overflow ? .distantFuture : self + span
    }
}

extension Duration {
    package init(_ amount: TimeAmount) {
        self = .nanoseconds(amount.nanoseconds)
    }

    /// The span in seconds.
    package var inSeconds: Double {
        let (seconds, attoseconds) = self.components
        return Double(seconds) + Double(attoseconds) / 1e18
    }
}
