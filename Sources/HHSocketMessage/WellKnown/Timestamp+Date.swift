// SPDX-License-Identifier: Apache-2.0
public import HHSocketFoundation

extension Google_Protobuf_Timestamp {
    /// Creates a timestamp from a date, rounded down to a nanosecond.
    ///
    /// A date outside the range of `seconds`, such as an infinite one, becomes `Int64.min` or `Int64.max` seconds; NaN
    /// becomes 1970.
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

    /// The value as a `Date`, which is less precise than a nanosecond.
    public var date: Date {
        Date(timeIntervalSince1970: Double(self.seconds) + Double(self.nanos) / 1e9)
    }
}
