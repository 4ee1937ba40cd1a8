// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// Dates of HTTP (RFC 9110, section 5.6.7).
package enum HTTPDate {
    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

    /// Reads a date in any of its three forms, the day of the week aside. Returns the seconds since 1970; nil for
    /// anything else.
    ///
    /// - Parameter now: The current time in seconds since 1970, near to which years of two digits are.
    package static func seconds(_ text: String, now: Int64) -> Int64? {
        let words = text.utf8.split { [UInt8(ascii: " "), UInt8(ascii: ","), UInt8(ascii: "-")].contains($0) }
            .map { Substring($0) }
        guard words.count >= 5 else { return nil }
        // Sun, 06 Nov 1994 08:49:37 GMT, or Sunday, 06-Nov-94 08:49:37 GMT, or Sun Nov  6 08:49:37 1994.
        let isOfC = words.count == 5
        guard isOfC || (words.count == 6 && words[5] == "GMT"),
            let month = self.months.firstIndex(where: { $0 == (isOfC ? words[1] : words[2]) }),
            let day = self.number(isOfC ? words[2] : words[1], digits: 1...2),
            let year = self.year(isOfC ? words[4] : words[3], now: now),
            let time = self.timeOfDay(isOfC ? words[3] : words[4])
        else { return nil }
        let date = CivilDate(year: Int64(year), month: Int64(month + 1), day: Int64(day))
        return date.exists ? date.daysSince1970 * 86_400 + Int64(time) : nil
    }

    private static func number(_ text: Substring, digits: ClosedRange<Int>) -> Int? {
        digits.contains(text.utf8.count) ? HTTPSyntax.number(text.utf8, limit: 10_000) : nil
    }

    private static func year(_ text: Substring, now: Int64) -> Int? {
        if let year = self.number(text, digits: 4...4) { return year }
        guard let short = self.number(text, digits: 2...2) else { return nil }
        // A year that seems to be more than 50 years ahead is in the past.
        let present = 1_970 + Int(min(max(now, 0), 1 << 40) / 31_556_952)
        let year = present / 100 * 100 + short
        return year > present + 50 ? year - 100 : year
    }

    private static func timeOfDay(_ text: Substring) -> Int? {
        let parts = text.split(separator: ":", omittingEmptySubsequences: false)
        // A leap second is the 60th.
        guard parts.count == 3, let hour = self.number(parts[0], digits: 2...2), hour < 24,
            let minute = self.number(parts[1], digits: 2...2), minute < 60,
            let second = self.number(parts[2], digits: 2...2), second <= 60
        else { return nil }
        return hour * 3_600 + minute * 60 + second
    }
}

/// The header field `Retry-After` (RFC 9110, section 10.2.3).
enum RetryAfter {
    /// The longest time that is honoured, in seconds.
    static let maximum = 600

    /// The seconds after which to try again, at most ``maximum``; nil for a value that is malformed.
    ///
    /// - Parameter now: The current time in seconds since 1970.
    static func seconds(_ text: String, now: Int64) -> Int? {
        if let seconds = HTTPSyntax.number(text.utf8, limit: self.maximum) { return seconds }
        guard let date = HTTPDate.seconds(text, now: now) else { return nil }
        let (difference, overflow) = date.subtractingReportingOverflow(now)
        guard !overflow else { return now < 0 ? self.maximum : 0 }
        return Int(min(max(difference, 0), Int64(self.maximum)))
    }
}
