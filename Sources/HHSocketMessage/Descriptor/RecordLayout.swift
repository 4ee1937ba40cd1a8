/// Decides where the fields of a record lie, as protobuf-c's generator would have its structures.
struct RecordLayout {
    /// Where a field lies in a record, in bytes from its beginning.
    struct Place: Hashable {
        var value: Int
        /// Of the 32-bit flag that says whether there is a value, of the count (a word) of a repeated field, or of the
        /// 32-bit number of the field that a oneof holds.
        var quantifier: Int
    }

    private static let word = MemoryLayout<Int>.size

    private var end = MemoryLayout<RecordHeader>.size
    private var oneofs: [Place?]

    init(oneofs: Int) {
        self.oneofs = Array(repeating: nil, count: oneofs)
    }

    /// The length of the record, with all fields so far.
    var length: Int { Self.rounded(self.end, to: Self.word) }

    mutating func place(_ field: FieldDescriptor) -> Place {
        switch field.presence {
        case .implicit, .explicit, .required:
            let flag = self.take(4)
            return .init(value: self.take(field.kind.size), quantifier: flag)
        case .repeated, .packed:
            let count = self.take(Self.word)
            return .init(value: self.take(Self.word), quantifier: count)
        case .oneof(let index):
            // One place for all of them, in which the largest has room.
            if let place = self.oneofs[index] { return place }
            let number = self.take(4)
            let place = Place(value: self.take(max(8, 2 * Self.word), alignment: 8), quantifier: number)
            self.oneofs[index] = place
            return place
        }
    }

    private mutating func take(_ size: Int, alignment: Int? = nil) -> Int {
        // Strings and bytes are two words, aligned as one.
        let start = Self.rounded(self.end, to: alignment ?? min(size, 8))
        self.end = start + size
        return start
    }

    private static func rounded(_ offset: Int, to alignment: Int) -> Int {
        (offset + alignment - 1) / alignment * alignment
    }
}
