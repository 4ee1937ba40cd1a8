// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import TestSupport
import Testing

/// The calendar: the days of a table, and random ones by Foundation's calendar, in both directions.
@Suite struct CivilDateTests {
    @Test func everyDayHasItsDate() {
        let difference = CivilConversion(flaw: nil).difference
        #expect(difference == nil)
    }

    @Test(arguments: CivilFlaw.allCases)
    func flawsAreFound(_ flaw: CivilFlaw) {
        #expect(CivilConversion(flaw: flaw).difference != nil, "\(flaw) is not found")
    }

    @Test func datesExistByTheRuleOfLeapYears() {
        for year in [-400, -100, -4, -1, 0, 1, 1600, 1900, 1970, 2000, 2024, 2100] as [Int64] {
            let isLeap = [-400, -4, 0, 1600, 2000, 2024].contains(year)
            #expect(CivilDate(year: year, month: 2, day: 29).exists == isLeap, "\(year)")
        }
        for (month, day) in [(0, 1), (13, 1), (1, 0), (1, 32), (2, 30), (4, 31), (12, 32)] as [(Int64, Int64)] {
            #expect(!CivilDate(year: 2024, month: month, day: day).exists, "\(month), \(day)")
        }
    }
}

/// A mistake of the calendar.
enum CivilFlaw: CaseIterable {
    case forgetsCenturies, isADayOffBefore1970, isADayOffInNegativeYears
}

/// The two conversions, right or with a mistake.
private struct CivilConversion {
    /// Days, with the year, the month and the day of the month.
    private static let table: [(Int64, Int64, Int64, Int64)] = [
        (0, 1970, 1, 1), (-1, 1969, 12, 31), (58, 1970, 2, 28), (59, 1970, 3, 1), (789, 1972, 2, 29),
        (790, 1972, 3, 1), (11_016, 2000, 2, 29), (11_017, 2000, 3, 1), (20_088, 2024, 12, 31),
        (47_540, 2100, 2, 28), (47_541, 2100, 3, 1), (2_932_896, 9999, 12, 31), (-25_509, 1900, 2, 28),
        (-25_508, 1900, 3, 1), (-135_081, 1600, 2, 29), (-171_605, 1500, 3, 1), (-719_162, 1, 1, 1),
        (-719_163, 0, 12, 31), (-719_468, 0, 3, 1), (-719_469, 0, 2, 29), (-719_528, 0, 1, 1), (-719_529, -1, 12, 31),
        (-719_834, -1, 3, 1), (-719_835, -1, 2, 28), (-720_930, -4, 2, 29), (-755_993, -100, 3, 1),
        (-755_994, -100, 2, 28), (-865_566, -400, 2, 29), (-865_931, -401, 3, 1),
    ]

    let flaw: CivilFlaw?

    private func date(_ day: Int64) -> CivilDate {
        switch self.flaw {
        case .forgetsCenturies: Self.julian(day)
        case .isADayOffBefore1970: CivilDate(daysSince1970: day < 0 ? day + 1 : day)
        case .isADayOffInNegativeYears, nil: CivilDate(daysSince1970: day)
        }
    }

    private func day(_ date: CivilDate) -> Int64 {
        date.daysSince1970 + (self.flaw == .isADayOffInNegativeYears && date.year < 0 ? 1 : 0)
    }

    /// Every fourth year has a leap day, which is right from 1900-03-01 to 2100-02-28.
    private static func julian(_ day: Int64) -> CivilDate {
        let (era, dayOfEra) = (day + 719_483).flooringDivision(by: 1_461)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460) / 365
        let dayOfYear = dayOfEra - 365 * yearOfEra
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
        let year = era * 4 + yearOfEra + (month <= 2 ? 1 : 0)
        return CivilDate(year: year, month: month, day: dayOfYear - (153 * monthFromMarch + 2) / 5 + 1)
    }

    /// The first day that is converted wrongly.
    var difference: String? {
        for (day, year, month, dayOfMonth) in Self.table {
            let date = CivilDate(year: year, month: month, day: dayOfMonth)
            if let difference = self.difference(day, date) { return difference }
        }
        var (calendar, random) = (Calendar(identifier: .gregorian), SeededGenerator(seed: 1_970))
        calendar.timeZone = .gmt
        for _ in 0..<scaled(5_000) {
            let day = Int64.random(in: -4_000_000...4_000_000, using: &random)
            // Foundation's calendar is the Julian one before 1582-10-15, day -141,427. It repeats after 400 years.
            let eras = day < -141_427 ? (-141_427 - day) / 146_097 + 1 : 0
            let instant = Date(timeIntervalSince1970: Double(day + eras * 146_097) * 86_400)
            let parts = calendar.dateComponents([.year, .month, .day], from: instant)
            let (year, month, dayOfMonth) = (parts.year ?? 0, parts.month ?? 0, parts.day ?? 0)
            let date = CivilDate(year: Int64(year) - eras * 400, month: Int64(month), day: Int64(dayOfMonth))
            if let difference = self.difference(day, date) { return difference }
        }
        return nil
    }

    private func difference(_ day: Int64, _ date: CivilDate) -> String? {
        guard self.date(day) == date else { return "day \(day) is \(self.date(day)), and should be \(date)" }
        return self.day(date) == day ? nil : "\(date) is day \(self.day(date)), and should be \(day)"
    }
}
