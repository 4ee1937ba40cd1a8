// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bytes that one connection holds, and how it gets on, by which it is decided who goes when too much is held.
struct Standing: Hashable, Sendable {
    /// The number of bytes that are held for the connection.
    var bytes: Int
    /// The number of bytes that are held for all connections of its address, or of its identity where those are more.
    var principalBytes: Int
    /// The time for which it has made no progress.
    var stall: TimeAmount

    /// Whoever has the highest goes first: what it holds, times what its address holds, times the seconds since it
    /// got on. So neither one connection that holds much stays, nor one of many of one address that each hold a
    /// little; and of two that hold as much, the one that progresses stays.
    var weight: Double {
        Double(self.bytes) * Double(self.principalBytes) * (1 + Double(self.stall.nanoseconds) / 1e9)
    }

    /// Chooses who goes, until enough is freed.
    ///
    /// - Parameters:
    ///   - standings: Those of all connections.
    ///   - bytes: The number of bytes to free.
    ///   - minimum: Connections that hold no more than this stay, since to close them frees nothing.
    /// - Returns: The indices of those that go, the first one first.
    static func victims(among standings: [Standing], toFree bytes: Int, holdingMoreThan minimum: Int) -> [Int] {
        let candidates = standings.indices.filter { standings[$0].bytes > minimum }
            .sorted { standings[$0].weight > standings[$1].weight }
        var (victims, freed): ([Int], Int) = ([], 0)
        for index in candidates {
            guard freed < bytes else { break }
            victims.append(index)
            freed += standings[index].bytes
        }
        return victims
    }
}
