// SPDX-License-Identifier: Apache-2.0
/// The memory for two pieces of a file: while the second is computed with, the first may be read.
final class PieceMemory {
    private(set) var first: UnsafeMutableRawBufferPointer
    private(set) var second: UnsafeMutableRawBufferPointer

    /// - Parameter length: The length of a piece, in bytes.
    init(length: Int) {
        self.first = .allocate(byteCount: length, alignment: 64)
        self.second = .allocate(byteCount: length, alignment: 64)
    }

    deinit {
        self.first.deallocate()
        self.second.deallocate()
    }

    func swap() { Swift.swap(&self.first, &self.second) }
}
