// SPDX-License-Identifier: Apache-2.0
/// A timestamp or a duration, with its form in protobuf's JSON.
struct CivilTime: Equatable {
    var seconds: Int64
    var nanos: Int32

    /// The range of timestamps: the years 1 to 9999.
    private static let timestamps: ClosedRange<Int64> = -62_135_596_800...253_402_300_799
    /// The range of a duration's seconds: some 10,000 years either way. Its nanoseconds may exceed it.
    private static let durations: ClosedRange<Int64> = -315_576_000_000...315_576_000_000

    init(seconds: Int64, nanos: Int32) {
        self.seconds = seconds
        self.nanos = nanos
    }

    /// Creates a time from an RFC 3339 timestamp, such as `2026-02-03T04:05:06.789Z` or `2026-02-03T04:05:06+01:00`.
    /// Nil for anything else.
    init?(timestamp text: String) {
        var scanner = DigitScanner(text)
        guard let year = scanner.digits(4), year >= 1, scanner.take("-"),
            let month = scanner.digits(2), scanner.take("-"), let day = scanner.digits(2), scanner.take("T"),
            let hour = scanner.digits(2), hour < 24, scanner.take(":"),
            let minute = scanner.digits(2), minute < 60, scanner.take(":"),
            let second = scanner.digits(2), second < 60,
            let nanos = scanner.fraction(), let offset = scanner.offset(), scanner.isAtEnd
        else { return nil }
        let date = CivilDate(year: year, month: month, day: day)
        guard date.exists else { return nil }
        self.seconds = date.daysSince1970 * 86_400 + hour * 3_600 + minute * 60 + second - offset
        self.nanos = nanos
        guard Self.timestamps.contains(self.seconds) else { return nil }
    }

    /// The RFC 3339 timestamp; nil outside the range of timestamps.
    var timestamp: String? {
        guard Self.timestamps.contains(self.seconds), (0..<1_000_000_000).contains(self.nanos) else { return nil }
        return "\(CivilDate.text(secondsSince1970: self.seconds))\(Self.fraction(self.nanos))Z"
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

    /// Returns a point and three, six or nine digits, as few as suffice; an empty text for zero.
    private static func fraction(_ nanos: Int32) -> String {
        if nanos == 0 { return "" }
        var digits = Int64(nanos).padded(9)
        while digits.hasSuffix("000") { digits.removeLast(3) }
        return ".\(digits)"
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
