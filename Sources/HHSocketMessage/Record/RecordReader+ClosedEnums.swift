/// Reads fields of closed enumerations, those of proto2; undeclared numbers go to the unknown fields.
@_documentation(visibility: internal)
extension RecordReader {
    /// The value of a field; nil if it has none that the enumeration declares.
    public func closed<Value: ProtobufEnum>(_ field: Int, _ unknown: inout UnknownStorage) -> Value? {
        let place = self.place(field).pointee
        switch place.shape {
        case .oneof where self.oneof(field) != place.number: return nil
        case .singular where self.flag(field) == 0: return nil
        default: break
        }
        return self.known(self.slot(field).load(as: Int32.self), field, &unknown)
    }

    /// The values of a repeated field that the enumeration declares.
    public func closedArray<Value: ProtobufEnum>(_ field: Int, _ unknown: inout UnknownStorage) -> [Value] {
        let numbers: [Int32] = self.array(field)
        return numbers.compactMap { self.known($0, field, &unknown) }
    }

    /// The entries of a map whose values the enumeration declares.
    public func closedMap<Key: FieldValue, Value: ProtobufEnum>(
        _ field: Int,
        _ unknown: inout UnknownStorage
    ) -> [Key: Value] {
        var map: [Key: Value] = [:]
        for record in self.records(field) {
            let entry = self.reader(field, record)
            let number: Int32 = entry.value(1)
            if let value = entry.flag(1) == 0 ? Value() : Value(rawValue: Int(number)) {
                map[entry.value(0)] = value
            } else if let bytes = try? PortableWriter.bytes(of: record, entry.plan) {
                // The whole entry, key and all.
                unknown.append(number: self.place(field).pointee.number, delimited: bytes)
            }
        }
        return map
    }

    private func known<Value: ProtobufEnum>(_ number: Int32, _ field: Int, _ unknown: inout UnknownStorage) -> Value? {
        if let value = Value(rawValue: Int(number)) { return value }
        unknown.append(number: self.place(field).pointee.number, enumValue: number)
        return nil
    }
}
