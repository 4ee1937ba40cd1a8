// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketMessage

/// Durations on the command line: `500ms`, `2s`, `10m`, `1h`, `1d`, or a number of seconds.
enum DurationArgument {
    /// The form of a duration, for help texts and errors.
    static let form = "a number with a unit, such as 500ms, 2s, 10m, 1h or 1d; a number alone is in seconds"

    /// Longer suffixes first: `ms` ends in `s`.
    private static let units: [(suffix: String, seconds: Double)] = [
        ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400),
    ]

    /// Parses a duration from 1 ms to 1,000,000,000 s.
    static func parse(_ text: String) throws -> Duration {
        guard let seconds = Self.seconds(text) else { throw ValidationError("expected \(Self.form)") }
        // Up to 31 years: a longer one is a mistake, and a much longer one could not be added to the clock.
        try require(seconds >= 0.001 && seconds <= 1e9, "a duration is 1ms at least, and 1000000000s at most")
        // Rounded, so that 300ms does not lose a nanosecond.
        return .nanoseconds(Int64((seconds * 1e9).rounded()))
    }

    /// Parses a duration as ``parse(_:)`` does, or zero.
    static func parseOrZero(_ text: String) throws -> Duration {
        Self.seconds(text) == 0 ? .zero : try Self.parse(text)
    }

    private static func seconds(_ text: String) -> Double? {
        let unit = Self.units.first { text.hasSuffix($0.suffix) }
        let digits = text.dropLast(unit?.suffix.count ?? 0)
        // `Double` also reads hexadecimal digits, and words such as nan.
        guard digits.utf8.allSatisfy({ $0.isASCIIDigit || $0 == UInt8(ascii: ".") }) else { return nil }
        return Double(digits).map { $0 * (unit?.seconds ?? 1) }
    }
}

/// Sizes on the command line: a number of bytes, `64K`, `16M` or `1G`.
enum SizeArgument {
    /// The form of a size, for help texts and errors.
    static let form = "a number of bytes, or a number with a unit, such as 64K, 16M or 1G; 1K is 1,024 bytes"

    private static let units: [Character: Int] = [
        "K": 1 << 10, "k": 1 << 10, "M": 1 << 20, "m": 1 << 20, "G": 1 << 30, "g": 1 << 30,
    ]

    /// Parses a size in bytes, 0 or more.
    static func parse(_ text: String) throws -> Int {
        let unit = text.last.flatMap { Self.units[$0] }
        let digits = text.dropLast(unit == nil ? 0 : 1)
        try require(!digits.isEmpty && digits.utf8.allSatisfy(\.isASCIIDigit), "expected \(Self.form)")
        guard let number = Int(digits) else { throw ValidationError("that is too large for a size") }
        let (bytes, isTooLarge) = number.multipliedReportingOverflow(by: unit ?? 1)
        guard !isTooLarge else { throw ValidationError("that is too large for a size") }
        return bytes
    }
}

extension Option {
    /// An option for a count.
    init(number help: String) where Value == Int? {
        self.init(help: .value("n", help))
    }

    /// An option for a size in bytes.
    init(size help: String) where Value == Int? {
        self.init(help: .value("size", help), transform: SizeArgument.parse)
    }

    /// An option for a duration of 1 ms or more.
    init(duration help: String) where Value == Duration? {
        self.init(help: .value("duration", help), transform: DurationArgument.parse)
    }

    /// An option for a duration that may be zero.
    init(durationOrZero help: String) where Value == Duration? {
        self.init(help: .value("duration", help), transform: DurationArgument.parseOrZero)
    }

    /// An option for a duration with a default, whose help speaks of seconds.
    init(wrappedValue: Duration, seconds help: String) where Value == Duration {
        self.init(wrappedValue: wrappedValue, help: .value("seconds", help), transform: DurationArgument.parse)
    }
}
