// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

// Fields as JSON has them.

/// A field in JSON: `"type"`, `{"field": "type", "bytes": 2, "order": "little"}`, `{"field": "length", "digits":
/// "decimal", "width": 8}`, `{"headerLength": 64}`, `{"flags": "0x80"}`, `{"constant": "CAFE 01"}`, `{"text": "-"}` or
/// `{"custom": "token", "bytes": 8}`.
struct FieldDescription: Codable {
    var kind: WireFormat.Field.Kind
    /// Whether the field has its own byte order.
    var hasOrder: Bool

    init(_ field: WireFormat.Field) {
        self.kind = field.kind
        self.hasOrder = true
    }

    func field(_ order: WireFormat.ByteOrder) -> WireFormat.Field {
        guard !self.hasOrder else { return WireFormat.Field(kind: self.kind) }
        return switch self.kind {
        case .word(let word, let number): WireFormat.Field(kind: .word(word, number.in(order)))
        case .headerLength(let upTo, let number): WireFormat.Field(kind: .headerLength(upTo: upTo, number.in(order)))
        case .flags(let value, let number): WireFormat.Field(kind: .flags(value, number.in(order)))
        case .constant, .custom: WireFormat.Field(kind: self.kind)
        }
    }

    init(from decoder: any Decoder) throws {
        func word(_ name: String) throws -> WireFormat.Field.Word {
            guard let word = WireFormat.Field.Word(rawValue: name) else {
                throw decoder.wrong("\"\(name)\" is not a field; the fields are type, serial, status and length")
            }
            return word
        }
        if let name = try? decoder.singleValueContainer().decode(String.self) {
            self.kind = .word(try word(name), .integer())
            self.hasOrder = false
            return
        }
        let container = try decoder.container(keyedBy: AnyKey.self)
        self.hasOrder = container.contains("order")
        if let name = try container.optional("field", as: String.self) {
            let word = try word(name)
            try container.allow("field", "bytes", "order", "digits", "width")
            self.kind = .word(word, try container.number())
        } else if let upTo = try container.optional("headerLength", as: ByteCount.self) {
            try container.allow("headerLength", "bytes", "order")
            self.kind = .headerLength(upTo: upTo.value, try container.number())
        } else if let value = try container.word("flags") {
            try container.allow("flags", "bytes", "order")
            self.kind = .flags(value, try container.number(bytes: 1))
        } else if let name = try container.optional("custom", as: String.self) {
            try container.allow("custom", "bytes")
            self.kind = .custom(name, try container.value("bytes", as: ByteCount.self).value)
        } else if container.contains("constant") || container.contains("text") {
            self.kind = .constant(try BytesDescription(from: decoder).bytes)
        } else {
            throw container.wrong(
                nil,
                "a field is a name, or has one of the keys field, headerLength, flags, constant, text, custom"
            )
        }
    }

    func encode(to encoder: any Encoder) throws {
        if case .word(let word, let number) = self.kind, number == .integer() {
            var container = encoder.singleValueContainer()
            return try container.encode(word.rawValue)
        }
        if case .constant(let bytes) = self.kind { return try BytesDescription(bytes: bytes).encode(to: encoder) }
        var container = encoder.container(keyedBy: AnyKey.self)
        switch self.kind {
        case .word(let word, let number):
            try container.encode(word.rawValue, forKey: "field")
            try container.encode(number)
        case .headerLength(let upTo, let number):
            try container.encode(upTo, forKey: "headerLength")
            try container.encode(number)
        case .flags(let value, let number):
            try container.encode(value, forKey: "flags")
            try container.encode(number)
        case .custom(let name, let width):
            try container.encode(name, forKey: "custom")
            try container.encode(width, forKey: "bytes")
        case .constant:
            break
        }
    }
}

extension WireFormat.Number {
    /// The number with its integer in another byte order.
    fileprivate func `in`(_ order: WireFormat.ByteOrder) -> WireFormat.Number {
        if case .integer(let bytes, _) = self.kind { .integer(bytes: bytes, order) } else { self }
    }
}

extension KeyedDecodingContainer<AnyKey> {
    /// The notation of a field's number.
    ///
    /// - Parameter bytes: The width of an integer that has none; 4 by default.
    fileprivate func number(bytes: Int = 4) throws -> WireFormat.Number {
        guard let radix: WireFormat.Number.Radix = try self.choice("digits") else {
            guard !self.contains("width") else {
                throw self.wrong("width", "a width is one of digits; the width of an integer is its bytes")
            }
            let width = try self.optional("bytes", as: ByteCount.self)?.value ?? bytes
            return .integer(bytes: width, try self.choice("order") ?? .big)
        }
        for key in ["bytes", "order"] where self.contains(AnyKey(key)) {
            throw self.wrong(key, "digits have none; their number is the width")
        }
        let width = try self.optional("width", as: ByteCount.self)?.value
        return WireFormat.Number(kind: .digits(radix, count: width))
    }
}

extension KeyedEncodingContainer<AnyKey> {
    fileprivate mutating func encode(_ number: WireFormat.Number) throws {
        switch number.kind {
        case .integer(let bytes, let order):
            try self.encode(bytes, forKey: "bytes")
            try self.encode(order, forKey: "order")
        case .digits(let radix, let count):
            try self.encode(radix, forKey: "digits")
            try self.encodeIfPresent(count, forKey: "width")
        }
    }
}

/// Bytes as JSON has them: `{"constant": "CAFE 01"}` in hexadecimal digits, or `{"text": "-"}`.
struct BytesDescription: Codable {
    var bytes: [UInt8]

    init(bytes: [UInt8]) {
        self.bytes = bytes
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        if let text = try container.optional("text", as: String.self) {
            try container.allow("text")
            self.bytes = Array(text.utf8)
            return
        }
        try container.allow("constant")
        let hex: String = try container.value("constant")
        guard let bytes = [UInt8](hexadecimal: hex.filter { $0 != " " }) else {
            throw container.wrong("constant", "\"\(hex)\" is not an even number of hexadecimal digits")
        }
        self.bytes = bytes
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        let isText = self.bytes.allSatisfy { (0x20...0x7E).contains($0) || $0 == 0x0D || $0 == 0x0A }
        if isText, !self.bytes.isEmpty {
            try container.encode(String(decoding: self.bytes, as: UTF8.self), forKey: "text")
        } else {
            try container.encode(self.bytes.hexadecimal.uppercased(), forKey: "constant")
        }
    }
}
