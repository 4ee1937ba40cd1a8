// SPDX-License-Identifier: Apache-2.0
/// A stream divided by sizes that are used in turn; undivided without sizes.
struct Pieces: Sequence, IteratorProtocol {
    /// The bytes that have not been fed.
    private(set) var rest: ArraySlice<UInt8>
    private let sizes: [Int]
    private var index = 0

    init(_ stream: ArraySlice<UInt8>, _ sizes: [Int]) {
        self.rest = stream
        self.sizes = sizes
    }

    mutating func next() -> ArraySlice<UInt8>? {
        guard !self.rest.isEmpty else { return nil }
        // Empty pieces are fed too, but not forever.
        let size = self.sizes.isEmpty ? self.rest.count : self.sizes[self.index % self.sizes.count]
        let piece = self.rest.prefix(self.index >= 2 * self.sizes.count ? Swift.max(1, size) : size)
        self.rest = self.rest.dropFirst(piece.count)
        self.index += 1
        return piece
    }
}
