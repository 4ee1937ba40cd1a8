// SPDX-License-Identifier: Apache-2.0
/// Decides when a connection gives up the memory that it keeps for more to come.
struct RestWatch {
    /// The finding of a look.
    struct Finding: Equatable {
        /// Whether bytes have come or were taken since the last look.
        var hasProgressed = false
        /// Whether memory is to be freed now.
        var rests = false
    }

    /// The number of looks in a row that have seen next to nothing happen, after which memory is freed.
    static let quietLooks: UInt8 = 3
    /// The number of bytes between two looks that are next to nothing: heartbeats, and a push now and then.
    static let quietBytes = 1_024

    private var bytes = 0
    private var looks: UInt8 = 0

    /// - Parameter bytes: The number of bytes that have come and that the client has taken, since the beginning.
    mutating func look(bytes: Int) -> Finding {
        var finding = Finding(hasProgressed: bytes != self.bytes)
        let isQuiet = bytes - self.bytes <= Self.quietBytes
        self.bytes = bytes
        guard isQuiet else {
            self.looks = 0
            return finding
        }
        // The few bytes have taken memory, which is freed again.
        if finding.hasProgressed { self.looks = min(self.looks, Self.quietLooks - 1) }
        guard self.looks < Self.quietLooks else { return finding }
        self.looks += 1
        finding.rests = self.looks == Self.quietLooks
        return finding
    }
}
