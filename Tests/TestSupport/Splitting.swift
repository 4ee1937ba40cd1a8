// SPDX-License-Identifier: Apache-2.0
/// Calls `body` with a stream undivided, byte by byte, and in two pieces cut at every place; also in three if it has
/// fewer than 40 bytes.
package func forEverySplit(_ stream: [UInt8], _ body: ([ArraySlice<UInt8>]) throws -> Void) rethrows {
    try body([stream[...]])
    try body(stream.indices.map { stream[$0...$0] })
    for first in 0...stream.count {
        for second in first...stream.count where stream.count < 40 || second == first {
            try body([stream[..<first], stream[first..<second], stream[second...]])
        }
    }
}

extension SeededGenerator {
    /// Cuts a stream into pieces of 1 to `longest` bytes.
    package mutating func pieces(of stream: [UInt8], longest: Int = 20) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var rest = stream[...]
        while !rest.isEmpty {
            let piece = rest.prefix(Int.random(in: 1...longest, using: &self))
            pieces.append(piece)
            rest = rest.dropFirst(piece.count)
        }
        return pieces
    }
}
