// SPDX-License-Identifier: Apache-2.0
/// Decides when a connection releases the memory that it keeps for further input.
struct RestWatch {
    /// The result of a check.
    struct Finding: Equatable {
        /// Whether bytes have been received or sent since the last check.
        var hasProgressed = false
        /// Whether memory is to be freed now.
        var rests = false
    }

    /// The number of consecutive checks with almost no traffic after which memory is freed.
    static let quietChecks: UInt8 = 3
    /// The number of bytes between two checks that count as almost no traffic: heartbeats, and an occasional push.
    static let quietBytes = 1_024

    private var bytes = 0
    private var checks: UInt8 = 0

    /// - Parameter bytes: The number of bytes received from and accepted by the client since the beginning.
    mutating func check(bytes: Int) -> Finding {
        var finding = Finding(hasProgressed: bytes != self.bytes)
        let isQuiet = bytes - self.bytes <= Self.quietBytes
        self.bytes = bytes
        guard isQuiet else {
            self.checks = 0
            return finding
        }
        // These few bytes have allocated memory, which is freed again.
        if finding.hasProgressed { self.checks = min(self.checks, Self.quietChecks - 1) }
        guard self.checks < Self.quietChecks else { return finding }
        self.checks += 1
        finding.rests = self.checks == Self.quietChecks
        return finding
    }
}
