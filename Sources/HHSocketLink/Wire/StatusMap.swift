// SPDX-License-Identifier: Apache-2.0
/// The statuses of a format, on the wire and in the program.
///
/// One to one, except for statuses on the wire with the same meaning: a status without a meaning has the same number on
/// both sides, unless that number is taken; then it gets the number that became free.
struct StatusMap: Sendable {
    private let isIdentity: Bool
    private let okStatus: UInt32
    private let meanings: [UInt32: UInt32]
    private let numbers: [UInt32: UInt32]
    /// The largest status that the field holds, and the one that is written for those that are larger.
    private let largest: UInt32
    private let substitute: UInt32

    init(_ layout: WireFormat.Layout, fieldHolds largest: UInt32) {
        var given = layout.statuses.mapValues(\.rawValue)
        given[layout.okStatus] = Status.ok.rawValue
        self.okStatus = layout.okStatus
        // The number that is written for each meaning: success has its own, others the smallest.
        var chosen: [UInt32: UInt32] = [:]
        for (number, meaning) in given.sorted(by: { $0.key > $1.key }) { chosen[meaning] = number }
        chosen[Status.ok.rawValue] = layout.okStatus
        var meanings = given
        // A number without a meaning that is itself the meaning of another: it gets the number that became free, at the
        // end of the chain.
        for start in chosen.keys where given[start] == nil {
            var end = start
            while let next = chosen[end] { end = next }
            meanings[start] = end
        }
        var numbers = chosen
        for (number, meaning) in meanings where given[number] == nil { numbers[meaning] = number }
        self.isIdentity = meanings.allSatisfy { $0.key == $0.value } && largest == .max
        self.meanings = meanings
        self.numbers = numbers
        self.largest = largest
        let unknown = numbers[Status.unknown.rawValue] ?? Status.unknown.rawValue
        if unknown <= largest {
            self.substitute = unknown
        } else {
            self.substitute = largest == layout.okStatus ? largest - 1 : largest
        }
    }

    func decoded(_ number: UInt32) -> Status {
        if self.isIdentity { return Status(rawValue: number) }
        if number == self.okStatus { return .ok }
        return Status(rawValue: self.meanings[number] ?? number)
    }

    /// A status that does not fit the field is written as ``Status/unknown``, or otherwise as the field's largest value
    /// that is not success.
    func encoded(_ status: Status) -> UInt32 {
        if self.isIdentity { return status.rawValue }
        if status == .ok { return self.okStatus }
        let number = self.numbers[status.rawValue] ?? status.rawValue
        return number <= self.largest ? number : self.substitute
    }
}
