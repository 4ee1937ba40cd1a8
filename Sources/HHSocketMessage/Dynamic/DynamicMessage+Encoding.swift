// SPDX-License-Identifier: Apache-2.0
extension DynamicMessage {
    /// Encodes the message.
    ///
    /// - Throws: ``MessageError`` if a required field is missing, the message is nested too deeply, or it is too large.
    package func serializedBytes() throws(MessageError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: try self.serializedLength())
        bytes.withUnsafeMutableBytes { memory in
            var encoder = MessageEncoder(memory, isCanonical: false)
            self.encode(to: &encoder)
        }
        return bytes
    }

    /// Returns the length of the encoded message, in bytes.
    ///
    /// - Throws: ``MessageError`` if the message cannot be encoded: a required field is missing, it is nested too
    ///   deeply, or it is too large.
    package func serializedLength() throws(MessageError) -> Int {
        // Without memory, the encoder counts.
        var counter = MessageEncoder(UnsafeMutableRawBufferPointer(start: nil, count: 0), isCanonical: false)
        self.encode(to: &counter)
        if let failure = counter.failure { throw failure.error }
        guard counter.count <= MessageLimits.length else { throw MessageError(.tooLarge, in: self.descriptor.name) }
        // The message is now known not to be too deep.
        try self.checkRequired()
        return counter.count
    }

    /// Writes the fields, from the last to the first.
    private func encode(to encoder: inout MessageEncoder) {
        encoder.unknown(self.unknownFields)
        let descriptors = self.descriptor.fields
        for index in descriptors.indices.reversed() {
            let field = descriptors[index]
            switch self.fields[index] {
            case .value(let value):
                if field.presence != .implicit || !value.isZero { Self.encode(value, field, to: &encoder) }
            case .values(let values) where field.presence == .packed && !values.isEmpty:
                let end = encoder.count
                for value in values.reversed() { value.encode(field.kind, to: &encoder) }
                encoder.prepend(varint: UInt64(encoder.count - end))
                encoder.prepend(tag: field.tag(.lengthDelimited))
            case .values(let values):
                for value in values.reversed() { Self.encode(value, field, to: &encoder) }
            case nil: break
            }
        }
    }

    private static func encode(_ value: DynamicValue, _ field: FieldDescriptor, to encoder: inout MessageEncoder) {
        guard case .message(let message) = value else {
            value.encode(field.kind, to: &encoder)
            encoder.prepend(tag: field.tag(field.kind.wireType))
            return
        }
        guard encoder.levels > 0 else { return encoder.failForDepth(in: message.descriptor) }
        encoder.levels -= 1
        if field.isGroup {
            encoder.prepend(tag: field.tag(.endGroup))
            message.encode(to: &encoder)
            encoder.prepend(tag: field.tag(.startGroup))
        } else {
            let end = encoder.count
            message.encode(to: &encoder)
            encoder.prepend(varint: UInt64(encoder.count - end))
            encoder.prepend(tag: field.tag(.lengthDelimited))
        }
        encoder.levels += 1
    }
}

extension FieldDescriptor {
    fileprivate func tag(_ type: WireType) -> UInt32 { self.number << 3 | UInt32(type.rawValue) }
}

extension DynamicValue {
    /// Writes a value that is not a message, without its tag.
    fileprivate func encode(_ kind: FieldKind, to encoder: inout MessageEncoder) {
        switch (self, kind) {
        case (.int32(let value), .sint32): WireSInt32.encode(value, to: &encoder)
        case (.int32(let value), .sfixed32): WireSFixed32.encode(value, to: &encoder)
        case (.int32(let value), _): WireInt32.encode(value, to: &encoder)
        case (.int64(let value), .sint64): WireSInt64.encode(value, to: &encoder)
        case (.int64(let value), .sfixed64): WireSFixed64.encode(value, to: &encoder)
        case (.int64(let value), _): WireInt64.encode(value, to: &encoder)
        case (.uint32(let value), .fixed32): WireFixed32.encode(value, to: &encoder)
        case (.uint32(let value), _): WireUInt32.encode(value, to: &encoder)
        case (.uint64(let value), .fixed64): WireFixed64.encode(value, to: &encoder)
        case (.uint64(let value), _): WireUInt64.encode(value, to: &encoder)
        case (.float(let value), _): WireFloat.encode(value, to: &encoder)
        case (.double(let value), _): WireDouble.encode(value, to: &encoder)
        case (.bool(let value), _): WireBool.encode(value, to: &encoder)
        case (.string(let value), _): WireString.encode(value, to: &encoder)
        case (.bytes(let value), _): WireBytes.encode(value, to: &encoder)
        // Messages have a length or two tags around them.
        case (.message, _): break
        }
    }
}
