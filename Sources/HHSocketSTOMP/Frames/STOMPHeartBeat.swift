// SPDX-License-Identifier: Apache-2.0
/// The value of a `heart-beat` header: the intervals that a side can send and wishes to receive, in milliseconds; 0
/// means none.
package struct STOMPHeartBeat: Hashable, Sendable {
    /// The smallest interval at which the side can send.
    package var sends: Int
    /// The interval at which the side wishes to receive.
    package var receives: Int

    package init(sends: Int, receives: Int) {
        self.sends = sends
        self.receives = receives
    }

    /// Parses the header.
    ///
    /// - Parameter value: Nil, for a missing header, is `0,0`. Numbers of more than nine digits are taken for
    ///   999,999,999.
    /// - Returns: Nil for anything other than two numbers with a comma between them.
    package init?(_ value: String?) {
        guard let value else {
            self.init(sends: 0, receives: 0)
            return
        }
        let parts = value.utf8.split(separator: UInt8(ascii: ","), omittingEmptySubsequences: false)
        guard parts.count == 2, let sends = Self.number(parts[0]), let receives = Self.number(parts[1]) else {
            return nil
        }
        self.init(sends: sends, receives: receives)
    }

    private static func number(_ digits: some Collection<UInt8>) -> Int? {
        STOMPNumber.read(digits).map { min($0, 999_999_999) }
    }

    /// The interval at which this side sends to a peer; nil if it need not.
    package func interval(to peer: STOMPHeartBeat) -> Int? {
        self.sends == 0 || peer.receives == 0 ? nil : max(self.sends, peer.receives)
    }
}

extension STOMPHeartBeat: CustomStringConvertible {
    /// The value of the header.
    package var description: String { "\(self.sends),\(self.receives)" }
}

/// Numbers of headers.
enum STOMPNumber {
    /// A number in decimal digits without a sign; `Int.max` for one that is larger. Nil for anything else than digits.
    static func read(_ digits: some Collection<UInt8>) -> Int? {
        guard !digits.isEmpty else { return nil }
        var number = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            let (tens, isTooLarge) = number.multipliedReportingOverflow(by: 10)
            let (next, overflows) = tens.addingReportingOverflow(Int(digit - UInt8(ascii: "0")))
            number = isTooLarge || overflows ? .max : next
        }
        return number
    }
}
