// SPDX-License-Identifier: Apache-2.0
/// A timestamp or a duration, with its form in protobuf's JSON.
struct CivilTime: Equatable {
    var seconds: Int64
    var nanos: Int32

    /// The range of timestamps: the years 1 to 9999.
    private static let timestamps: ClosedRange<Int64> = -62_135_596_800...253_402_300_799
    /// The range of a duration's seconds: some 10,000 years either way. Its nanoseconds may exceed it.
    private static let durations: ClosedRange<Int64> = -315_576_000_000...315_576_000_000
    private static let secondsPerDay: Int64 = 86_400

    init(seconds: Int64, nanos: Int32) {
        self.seconds = seconds
        self.nanos = nanos
    }

    /// Creates a time from an RFC 3339 timestamp, such as `2026-02-03T04:05:06.789Z` or `2026-02-03T04:05:06+01:00`.
    /// Nil for anything else.
    init?(timestamp text: String) {
        var scanner = DigitScanner(text)
        guard let year = scanner.digits(4), year >= 1, scanner.take("-"),
            let month = scanner.digits(2), (1...12).contains(month), scanner.take("-"),
            let day = scanner.digits(2), (1...Self.days(in: month, of: year)).contains(day), scanner.take("T"),
            let hour = scanner.digits(2), hour < 24, scanner.take(":"),
            let minute = scanner.digits(2), minute < 60, scanner.take(":"),
            let second = scanner.digits(2), second < 60,
            let nanos = scanner.fraction(), let offset = scanner.offset(), scanner.isAtEnd
        else { return nil }
        let time = hour * 3_600 + minute * 60 + second
        self.seconds = Self.days(toYear: year, month: month, day: day) * Self.secondsPerDay + time - offset
        self.nanos = nanos
        guard Self.timestamps.contains(self.seconds) else { return nil }
    }

    /// The RFC 3339 timestamp; nil outside the range of timestamps.
    var timestamp: String? {
        guard Self.timestamps.contains(self.seconds), (0..<1_000_000_000).contains(self.nanos) else { return nil }
        // Positive: counted from the year 1.
        let sinceYear1 = self.seconds - Self.timestamps.lowerBound
        let (days, time) = sinceYear1.quotientAndRemainder(dividingBy: Self.secondsPerDay)
        // The year of the day, or the next one.
        var year = days / 365 + 1
        while Self.days(toYear: year, month: 1, day: 1) - Self.epoch > days { year -= 1 }
        var day = days - (Self.days(toYear: year, month: 1, day: 1) - Self.epoch) + 1
        var month: Int64 = 1
        while day > Self.days(in: month, of: year) {
            day -= Self.days(in: month, of: year)
            month += 1
        }
        let date = "\(Self.padded(year, 4))-\(Self.padded(month, 2))-\(Self.padded(day, 2))"
        let clock = [time / 3_600, time / 60 % 60, time % 60].map { Self.padded($0, 2) }.joined(separator: ":")
        return "\(date)T\(clock)\(Self.fraction(self.nanos))Z"
    }

    /// Creates a duration from seconds, such as `-1.5s`. Nil for anything else.
    init?(duration text: String) {
        var scanner = DigitScanner(text)
        let isNegative = scanner.take("-")
        guard let seconds = scanner.digits(), let nanos = scanner.fraction(), scanner.take("s"), scanner.isAtEnd,
            Self.durations.contains(seconds)
        else { return nil }
        self.seconds = isNegative ? -seconds : seconds
        self.nanos = isNegative ? -nanos : nanos
    }

    /// The duration as text; nil outside the range of durations, or if the seconds and the nanoseconds differ in sign.
    var duration: String? {
        guard Self.durations.contains(self.seconds), self.nanos.magnitude < 1_000_000_000,
            self.seconds.signum() * Int64(self.nanos.signum()) >= 0
        else { return nil }
        let sign = self.seconds < 0 || self.nanos < 0 ? "-" : ""
        return "\(sign)\(self.seconds.magnitude)\(Self.fraction(abs(self.nanos)))s"
    }

    /// January 1 of the year 1, in days from January 1, 1970.
    private static let epoch = Self.days(toYear: 1, month: 1, day: 1)

    /// Returns a date in days from January 1, 1970.
    private static func days(toYear year: Int64, month: Int64, day: Int64) -> Int64 {
        let before = year - 1
        let ofYears = before * 365 + before / 4 - before / 100 + before / 400
        let ofMonths = (1..<month).reduce(0) { $0 + Self.days(in: $1, of: year) }
        // 719,162 days lie between the years 1 and 1970.
        return ofYears + ofMonths + day - 1 - 719_162
    }

    private static func days(in month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 4, 6, 9, 11: 30
        case 2: (year.isMultiple(of: 4) && !year.isMultiple(of: 100)) || year.isMultiple(of: 400) ? 29 : 28
        default: 31
        }
    }

    /// Returns a point and three, six or nine digits, as few as suffice; an empty text for zero.
    private static func fraction(_ nanos: Int32) -> String {
        if nanos == 0 { return "" }
        var digits = Self.padded(Int64(nanos), 9)
        while digits.hasSuffix("000") { digits.removeLast(3) }
        return ".\(digits)"
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
}

/// Scans the parts of a time from the front of a text.
private struct DigitScanner {
    private var rest: ArraySlice<UInt8>

    init(_ text: String) {
        self.rest = Array(text.utf8)[...]
    }

    var isAtEnd: Bool { self.rest.isEmpty }

    mutating func take(_ character: Unicode.Scalar) -> Bool {
        guard self.rest.first == UInt8(ascii: character) else { return false }
        self.rest.removeFirst()
        return true
    }

    /// Scans all digits, or a fixed number of them.
    mutating func digits(_ count: Int? = nil) -> Int64? {
        let digits = self.rest.prefix(count ?? .max).prefix { $0.isASCIIDigit }
        // More would not fit.
        guard !digits.isEmpty, digits.count == count ?? digits.count, digits.count <= 18 else { return nil }
        self.rest = self.rest.dropFirst(digits.count)
        return digits.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
    }

    /// Scans a point and a fraction, in nanoseconds; 0 without a point, nil if no fraction follows it.
    mutating func fraction() -> Int32? {
        guard self.take(".") else { return 0 }
        let before = self.rest.count
        guard var value = self.digits() else { return nil }
        let count = before - self.rest.count
        guard count <= 9 else { return nil }
        for _ in count..<9 { value *= 10 }
        return Int32(value)
    }

    /// Scans an offset from UTC, in seconds; positive if the clock is ahead.
    mutating func offset() -> Int64? {
        if self.take("Z") { return 0 }
        let isAhead = self.take("+")
        guard isAhead || self.take("-"), let hours = self.digits(2), hours < 24, self.take(":"),
            let minutes = self.digits(2), minutes < 60
        else { return nil }
        let seconds = hours * 3_600 + minutes * 60
        return isAhead ? seconds : -seconds
    }
}
