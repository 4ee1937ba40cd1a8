// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bytes that one connection holds, and its progress, which determine the connections to close when too much is
/// held.
struct Standing: Hashable, Sendable {
    /// The number of bytes that are held for the connection, beside its own cost.
    var bytes: Int
    /// The number of bytes that the connection costs by itself.
    var baseCost = 0
    /// The number of bytes that are held for all connections of its address, or of its identity where those are more.
    var principalBytes: Int
    /// The time for which it has made no progress.
    var stall: TimeAmount

    /// The product of the bytes that closing it frees, the bytes that its address holds, and the seconds since its last
    /// progress. The highest is closed first: so neither one connection that holds much stays, nor many of one address
    /// that each hold a little; and of two that hold as much, the one with progress stays.
    var weight: Double {
        Double(self.freeable) * Double(self.principalBytes) * (1 + Double(self.stall.nanoseconds) / 1e9)
    }

    /// The number of bytes that are freed if it is closed.
    private var freeable: Int { self.bytes + self.baseCost }

    /// Chooses connections to close, until enough is freed.
    ///
    /// - Parameters:
    ///   - standings: Those of all connections.
    ///   - bytes: The number of bytes to free.
    ///   - minimum: Connections that hold no more than this stay, since closing them frees nothing. Only if no other is
    ///     left, those whose own cost is higher are closed.
    /// - Returns: The indices of the connections to close, in order.
    static func victims(among standings: [Standing], toFree bytes: Int, holdingMoreThan minimum: Int) -> [Int] {
        var candidates = standings.indices.filter { standings[$0].bytes > minimum }
        if candidates.isEmpty { candidates = standings.indices.filter { standings[$0].freeable > minimum } }
        candidates.sort { standings[$0].weight > standings[$1].weight }
        var (victims, freed): ([Int], Int) = ([], 0)
        for index in candidates {
            guard freed < bytes else { break }
            victims.append(index)
            freed += standings[index].freeable
        }
        return victims
    }
}
