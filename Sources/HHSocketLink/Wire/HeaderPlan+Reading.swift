// SPDX-License-Identifier: Apache-2.0
// Headers for people.
extension HeaderPlan {
    /// A description of a header of fixed widths, with its bytes, its fields and suspicious values: `the header
    /// 11000000E803000001000000 is read as length 285212672, type 3892510720, serial 16777216; in the other byte order
    /// its length would be 17`.
    ///
    /// - Parameters:
    ///   - bytes: The bytes of at least one header.
    ///   - limit: The largest payload that is accepted, in bytes.
    func reading(of bytes: UnsafeRawBufferPointer, limit: Int) -> String {
        var fields: [String] = []
        var hint = ""
        for field in self.fields where field.offset + field.width <= bytes.count {
            switch field.kind {
            case .constant:
                continue
            case .custom:
                let name = self.customs.first { $0.position == field.position }?.name ?? "custom"
                fields.append("\(name) \(FrameError.hex(Array(bytes[field.offset..<field.offset + field.width])))")
            case .type, .serial, .status, .length, .headerLength, .flags:
                let value = field.code.load(bytes, at: field.offset)
                fields.append(value == NumberCode.illegal ? "\(field.kind) no number" : "\(field.kind) \(value)")
                if field.kind == .length, value > UInt64(limit) {
                    hint = self.hint(for: field, in: bytes, limit: limit)
                }
            }
        }
        let shown = FrameError.hex(Array(bytes.prefix(self.length)), atMost: 64)
        return "the header \(shown) is read as \(fields.joined(separator: ", "))\(hint)"
    }

    private func hint(for field: HeaderField, in bytes: UnsafeRawBufferPointer, limit: Int) -> String {
        guard !field.code.isDigits, field.width > 1 else { return "" }
        let field = bytes[field.offset..<field.offset + field.width]
        let big = field.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        let little = field.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        // In this byte order it exceeds the limit.
        let other = min(big, little)
        return other > UInt64(limit) ? "" : "; in the other byte order its length would be \(other)"
    }
}
