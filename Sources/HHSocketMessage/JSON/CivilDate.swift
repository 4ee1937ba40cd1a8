// SPDX-License-Identifier: Apache-2.0
/// A date of the Gregorian calendar, also before the calendar was introduced.
///
/// Years begin in March in the calculations, so that the leap day is their last, and are counted in the 400 years
/// (146,097 days) after which the calendar repeats; 719,468 days lie between 0000-03-01 and 1970-01-01. See Howard
/// Hinnant, "chrono-compatible low-level date algorithms".
package struct CivilDate: Equatable, Sendable {
    package var year: Int64
    /// From 1 to 12.
    package var month: Int64
    package var day: Int64

    package init(year: Int64, month: Int64, day: Int64) {
        self.year = year
        self.month = month
        self.day = day
    }

    /// Creates the date of a day counted from 1970-01-01.
    package init(daysSince1970: Int64) {
        let (era, dayOfEra) = (daysSince1970 + 719_468).flooringDivision(by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        self.month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        self.year = yearOfEra + era * 400 + (self.month <= 2 ? 1 : 0)
        self.day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
    }

    /// The number of days from 1970-01-01 to this date.
    package var daysSince1970: Int64 {
        let (era, yearOfEra) = (self.month > 2 ? self.year : self.year - 1).flooringDivision(by: 400)
        let monthFromMarch = self.month > 2 ? self.month - 3 : self.month + 9
        let dayOfYear = (153 * monthFromMarch + 2) / 5 + self.day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    /// Whether the calendar has this date.
    package var exists: Bool {
        (1...12).contains(self.month) && CivilDate(daysSince1970: self.daysSince1970) == self
    }

    /// The date and the time of day in UTC in the form of RFC 3339, such as `2026-11-21T12:00:01`, without a zone. For
    /// the years 1 to 9999.
    package static func text(secondsSince1970 seconds: Int64) -> String {
        let (days, time) = seconds.flooringDivision(by: 86_400)
        let date = CivilDate(daysSince1970: days)
        let clock = [time / 3_600, time / 60 % 60, time % 60].map { $0.padded(2) }.joined(separator: ":")
        return "\(date.year.padded(4))-\(date.month.padded(2))-\(date.day.padded(2))T\(clock)"
    }
}

extension Int64 {
    package func flooringDivision(by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let (quotient, remainder) = self.quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }

    /// The digits of a number that is not negative, with zeros in front up to this width.
    package func padded(_ width: Int) -> String {
        let digits = String(self)
        return String(repeating: "0", count: Swift.max(0, width - digits.count)) + digits
    }
}
