#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension Google_Protobuf_Timestamp {
    /// A moment, to the nanosecond that is not after it.
    ///
    /// Of dates that are infinitely far away, or none (NaN), it is the nearest moment that numbers can say, or 1970.
    public init(date: Date) {
        self.init()
        let interval = date.timeIntervalSince1970
        guard !interval.isNaN else { return }
        let seconds = interval.rounded(.down)
        guard let whole = Int64(exactly: seconds) else {
            self.seconds = seconds < 0 ? .min : .max
            return
        }
        self.seconds = whole
        self.nanos = Int32((interval - seconds) * 1e9)
    }

    /// The moment; dates are less exact than a nanosecond.
    public var date: Date {
        Date(timeIntervalSince1970: Double(self.seconds) + Double(self.nanos) / 1e9)
    }
}
