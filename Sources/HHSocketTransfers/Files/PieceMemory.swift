// SPDX-License-Identifier: Apache-2.0
/// The memory for two pieces of a file: while the second is computed with, the first may be read.
final class PieceMemory {
    private var pieces: (first: UnsafeMutableRawBufferPointer, second: UnsafeMutableRawBufferPointer)

    /// - Parameter length: The length of a piece, in bytes.
    init(length: Int) {
        self.pieces.first = .allocate(byteCount: length, alignment: 64)
        self.pieces.second = .allocate(byteCount: length, alignment: 64)
    }

    deinit {
        self.pieces.first.deallocate()
        self.pieces.second.deallocate()
    }

    var first: UnsafeMutableRawBufferPointer { self.pieces.first }
    var second: UnsafeMutableRawBufferPointer { self.pieces.second }

    func swap() { self.pieces = (self.pieces.second, self.pieces.first) }
}
