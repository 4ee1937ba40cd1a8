#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension Google_Protobuf_Timestamp {
    /// A moment, to the nanosecond that is not after it.
    public init(date: Date) {
        self.init()
        let seconds = date.timeIntervalSince1970.rounded(.down)
        // Beyond what a date can mean, the nearest moment that a number can say.
        self.seconds = Int64(exactly: seconds) ?? (seconds < 0 ? .min : .max)
        self.nanos = Int32((date.timeIntervalSince1970 - seconds) * 1e9)
    }

    /// The moment; dates are less exact than a nanosecond.
    public var date: Date {
        Date(timeIntervalSince1970: Double(self.seconds) + Double(self.nanos) / 1e9)
    }
}
