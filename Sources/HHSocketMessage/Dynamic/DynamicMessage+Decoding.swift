// SPDX-License-Identifier: Apache-2.0
extension DynamicMessage {
    /// Decodes a message.
    ///
    /// - Throws: ``MessageError`` if the bytes are not such a message, or it exceeds the limits.
    package init(
        _ descriptor: MessageDescriptor,
        serializedBytes bytes: UnsafeRawBufferPointer,
        limits: MessageLimits = .standard
    ) throws(MessageError) {
        self.init(descriptor)
        var decoder = MessageDecoder(bytes, limits)
        self.decode(from: &decoder)
        if let failure = decoder.failure {
            decoder.attribute(to: descriptor)
            throw failure.error
        }
        try self.checkRequired()
    }

    /// Decodes a message.
    package init(_ descriptor: MessageDescriptor, serializedBytes bytes: [UInt8]) throws(MessageError) {
        self = try bytes.withUnsafeBufferPointer { bytes throws(MessageError) in
            try Self(descriptor, serializedBytes: UnsafeRawBufferPointer(bytes))
        }
    }

    /// Reads fields up to the end of the innermost message.
    private mutating func decode(from decoder: inout MessageDecoder) {
        while let tag = decoder.nextTag() {
            guard let index = self.descriptor.index(ofNumber: tag >> 3) else {
                decoder.unknown(tag, &self.unknownFields)
                continue
            }
            self.decode(index, tag, from: &decoder)
        }
    }

    private mutating func decode(_ index: Int, _ tag: UInt32, from decoder: inout MessageDecoder) {
        let field = self.descriptor.fields[index]
        let wireType = field.isGroup ? .startGroup : field.kind.wireType
        switch WireType(rawValue: UInt8(tag & 7)) {
        case wireType where field.kind == .message: self.decodeMessage(index, field, from: &decoder)
        case wireType: self.decodeValue(index, field, from: &decoder)
        case .lengthDelimited where field.isRepeated && field.kind.isPackable:
            guard let outer = decoder.enter(isLevel: false) else { return }
            while decoder.cursor < decoder.end {
                let start = decoder.cursor
                let value = DynamicValue(field.kind, from: &decoder)
                if decoder.hasFailed { break }
                if value.isUnknown(to: field) {
                    let varint = UnsafeBufferPointer(start: start, count: decoder.cursor - start)
                    decoder.keep(field.number, varint: varint, in: &self.unknownFields)
                } else {
                    self.append(value, index, from: &decoder)
                }
            }
            decoder.exit(to: outer, isLevel: false)
        default: decoder.unknown(tag, &self.unknownFields)
        }
    }

    private mutating func decodeValue(_ index: Int, _ field: FieldDescriptor, from decoder: inout MessageDecoder) {
        let value = DynamicValue(field.kind, from: &decoder)
        if decoder.hasFailed { return }
        if value.isUnknown(to: field) {
            decoder.keep(decoder.field, in: &self.unknownFields)
        } else if field.isRepeated {
            self.append(value, index, from: &decoder)
        } else {
            decoder.charge(Self.costOfField)
            self.clearOneof(of: index)
            self.fields[index] = field.presence == .implicit && value.isZero ? nil : .value(value)
        }
    }

    /// The maximum memory that a field takes in the dictionary of fields, and its first value, in bytes.
    private static let costOfField = 128

    private mutating func append(_ value: DynamicValue, _ index: Int, from decoder: inout MessageDecoder) {
        decoder.charge(MemoryLayout<DynamicValue>.stride)
        if decoder.hasFailed { return }
        // Removed, so that the array has only one reference while it grows.
        guard case .values(var values)? = self.fields.removeValue(forKey: index) else {
            decoder.charge(Self.costOfField)
            self.fields[index] = .values([value])
            return
        }
        values.append(value)
        self.fields[index] = .values(values)
    }

    private mutating func decodeMessage(_ index: Int, _ field: FieldDescriptor, from decoder: inout MessageDecoder) {
        guard let descriptor = field.message else { return }
        let start = decoder.field
        var message = Self(descriptor)
        if !field.isRepeated {
            self.clearOneof(of: index)
            // Merged with the existing value.
            if case .value(.message(let present))? = self.fields.removeValue(forKey: index) { message = present }
        }
        if !field.isRepeated { decoder.charge(Self.costOfField) }
        message.decodeContent(field, from: &decoder)
        if decoder.hasFailed {
            descriptor.isMapEntry ? decoder.attribute(toFieldAt: start) : decoder.attribute(to: descriptor)
        } else if message.isEntryOfUnknownValue {
            decoder.keep(start, in: &self.unknownFields)
        } else if field.isRepeated {
            self.append(.message(message), index, from: &decoder)
        } else {
            self.fields[index] = .value(.message(message))
        }
    }

    private mutating func decodeContent(_ field: FieldDescriptor, from decoder: inout MessageDecoder) {
        if field.isGroup {
            guard let outer = decoder.openGroup(field.number << 3 | UInt32(WireType.startGroup.rawValue)) else {
                return
            }
            self.decode(from: &decoder)
            decoder.closeGroup(outer, self.descriptor)
        } else {
            // An entry counts as a level only if it contains a message.
            let isLevel = !self.descriptor.isMapEntry || self.descriptor.fields.contains { $0.kind == .message }
            guard let outer = decoder.enter(isLevel: isLevel) else { return }
            self.decode(from: &decoder)
            decoder.exit(to: outer, isLevel: isLevel)
        }
    }

    /// Whether this is an entry of a map with a value that its closed enumeration does not declare. Such an entry is an
    /// unknown field of the message with the map, with its key.
    private var isEntryOfUnknownValue: Bool {
        guard self.descriptor.isMapEntry, !self.unknownFields.isEmpty,
            self.descriptor.fields.last?.enumeration?.isClosed == true
        else { return false }
        var isUnknown = false
        self.unknownFields.bytes.withUnsafeBytes { bytes in
            _ = WireFields.forEach(in: bytes) { field in
                // A value with its own wire type, which has no length; another one would just be unknown.
                if field.number == 2, field.bytes.first.map({ $0 & 7 }) == WireType.varint.rawValue { isUnknown = true }
            }
        }
        return isUnknown
    }
}

extension DynamicValue {
    /// Reads a value that is not a message; after an error, the result is arbitrary.
    fileprivate init(_ kind: FieldKind, from decoder: inout MessageDecoder) {
        switch kind {
        case .int32, .enum: self = .int32(WireInt32.decode(from: &decoder))
        case .sint32: self = .int32(WireSInt32.decode(from: &decoder))
        case .sfixed32: self = .int32(WireSFixed32.decode(from: &decoder))
        case .int64: self = .int64(WireInt64.decode(from: &decoder))
        case .sint64: self = .int64(WireSInt64.decode(from: &decoder))
        case .sfixed64: self = .int64(WireSFixed64.decode(from: &decoder))
        case .uint32: self = .uint32(WireUInt32.decode(from: &decoder))
        case .fixed32: self = .uint32(WireFixed32.decode(from: &decoder))
        case .uint64: self = .uint64(WireUInt64.decode(from: &decoder))
        case .fixed64: self = .uint64(WireFixed64.decode(from: &decoder))
        case .float: self = .float(WireFloat.decode(from: &decoder))
        case .double: self = .double(WireDouble.decode(from: &decoder))
        case .bool: self = .bool(WireBool.decode(from: &decoder))
        case .string: self = .string(WireString.decode(from: &decoder))
        case .bytes: self = .bytes(WireBytes.decode(from: &decoder))
        // Messages are read elsewhere, because they may have to be merged.
        case .message: self = .bool(false)
        }
    }

    /// Whether this is a number that the field's closed enumeration does not declare.
    fileprivate func isUnknown(to field: FieldDescriptor) -> Bool {
        guard case .int32(let number) = self, let type = field.enumeration, type.isClosed else { return false }
        return type.name(ofNumber: number) == nil
    }
}
