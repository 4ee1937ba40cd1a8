// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// Computes the offsets of the fields in a record, like those of the structs that protobuf-c's generator writes.
struct RecordLayout {
    /// The offsets of a field in a record, in bytes.
    struct Position: Hashable {
        var value: Int
        /// The offset of the 32-bit presence flag, of the count (a word) of a repeated field, or of the 32-bit number
        /// of the field that a oneof holds.
        var quantifier: Int
    }

    private static let word = MemoryLayout<Int>.size

    private var end = MemoryLayout<RecordHeader>.size
    private var oneofs: [Position?]

    init(oneofs: Int) {
        self.oneofs = Array(repeating: nil, count: oneofs)
    }

    /// The length of the record with the fields placed so far.
    var length: Int { Self.rounded(self.end, to: Self.word) }

    mutating func position(_ field: FieldDescriptor) -> Position {
        switch field.presence {
        case .implicit, .explicit, .required:
            let flag = self.take(4)
            return .init(value: self.take(field.kind.size), quantifier: flag)
        case .repeated, .packed:
            let count = self.take(Self.word)
            return .init(value: self.take(Self.word), quantifier: count)
        case .oneof(let index):
            // All fields of a oneof share one slot, large enough for the largest.
            if let position = self.oneofs[index] { return position }
            let number = self.take(4)
            let position = Position(value: self.take(max(8, 2 * Self.word), alignment: 8), quantifier: number)
            self.oneofs[index] = position
            return position
        }
    }

    private mutating func take(_ size: Int, alignment: Int? = nil) -> Int {
        // Strings and bytes have two words but the alignment of one.
        let start = Self.rounded(self.end, to: alignment ?? min(size, 8))
        self.end = start + size
        return start
    }

    private static func rounded(_ offset: Int, to alignment: Int) -> Int {
        (offset + alignment - 1) / alignment * alignment
    }
}
