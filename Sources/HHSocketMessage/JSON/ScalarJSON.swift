// SPDX-License-Identifier: Apache-2.0
import HHSocketFoundation

/// Conversion of values other than messages and enumerations from and to JSON.
enum ScalarJSON {
    static func value(_ json: JSONValue, of kind: FieldKind) throws(MessageJSONError) -> DynamicValue {
        switch kind {
        case .int32, .sint32, .sfixed32, .enum: .int32(try Self.integer(json, "a 32-bit integer"))
        case .int64, .sint64, .sfixed64: .int64(try Self.integer(json, "a 64-bit integer"))
        case .uint32, .fixed32: .uint32(try Self.integer(json, "an unsigned 32-bit integer"))
        case .uint64, .fixed64: .uint64(try Self.integer(json, "an unsigned 64-bit integer"))
        case .float: .float(try Self.float(json))
        case .double: .double(try Self.double(json))
        case .bool: .bool(try Self.bool(json))
        case .string: .string(try Self.string(json))
        case .bytes: .bytes(try Self.bytes(json))
        case .message: throw .expected("an object", json)
        }
    }

    /// Returns the value in JSON; nil for messages.
    static func json(_ value: DynamicValue) -> JSONValue? {
        switch value {
        case .int32(let value): .number(value)
        case .uint32(let value): .number(value)
        // Many parsers read numbers as doubles, which lose digits of these.
        case .int64(let value): .string("\(value)")
        case .uint64(let value): .string("\(value)")
        case .float(let value):
            Self.json(value.description, isNaN: value.isNaN, isInfinite: value.isInfinite, isNegative: value < 0)
        case .double(let value):
            Self.json(value.description, isNaN: value.isNaN, isInfinite: value.isInfinite, isNegative: value < 0)
        case .bool(let value): .bool(value)
        case .string(let value): .string(value)
        case .bytes(let value): .string(value.base64EncodedString())
        case .message: nil
        }
    }

    private static func json(_ text: String, isNaN: Bool, isInfinite: Bool, isNegative: Bool) -> JSONValue {
        if isNaN { return .string("NaN") }
        if isInfinite { return .string(isNegative ? "-Infinity" : "Infinity") }
        // Some parsers read `-0` as an integer, which loses the sign.
        return .number(text.hasSuffix(".0") && text != "-0.0" ? String(text.dropLast(2)) : text)
    }

    static func integer<Integer: FixedWidthInteger>(
        _ json: JSONValue,
        _ expected: String
    ) throws(MessageJSONError) -> Integer {
        let text: String
        switch json {
        case .number(let digits), .string(let digits): text = digits
        default: throw .expected(expected, json)
        }
        guard let number = DecimalNumber(text) else { throw Self.expected(expected, text) }
        do throws(DecimalNumber.NotWhole) {
            return try number.integer()
        } catch {
            switch error {
            case .fraction: throw Self.expected(expected, text)
            case .outOfRange: throw MessageJSONError("\(Self.shortened(text)) is out of the range of \(expected)")
            }
        }
    }

    private static func double(_ json: JSONValue) throws(MessageJSONError) -> Double {
        let value: Double = try Self.floatingPoint(json) { Double($0) }
        return value
    }

    private static func float(_ json: JSONValue) throws(MessageJSONError) -> Float {
        let value: Float = try Self.floatingPoint(json) { Float($0) }
        return value
    }

    private static func floatingPoint<Number: BinaryFloatingPoint>(
        _ json: JSONValue,
        _ parse: (String) -> Number?
    ) throws(MessageJSONError) -> Number {
        let text: String
        switch json {
        case .string("NaN"): return .nan
        case .string("Infinity"): return .infinity
        case .string("-Infinity"): return -.infinity
        case .number(let digits): text = digits
        case .string(let digits): text = digits
        default: throw .expected("a number", json)
        }
        guard let number = DecimalNumber(text), let value = parse(number.text) else {
            throw MessageJSONError(
                "expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", found \"\(Self.shortened(text))\""
            )
        }
        guard value.isFinite else {
            let name = Number.self == Float.self ? "a float" : "a double"
            throw MessageJSONError("\(Self.shortened(text)) is out of the range of \(name)")
        }
        return value
    }

    private static func bool(_ json: JSONValue) throws(MessageJSONError) -> Bool {
        guard case .bool(let value) = json else { throw .expected("true or false", json) }
        return value
    }

    static func string(_ json: JSONValue) throws(MessageJSONError) -> String {
        guard case .string(let value) = json else { throw .expected("a string", json) }
        return value
    }

    private static func bytes(_ json: JSONValue) throws(MessageJSONError) -> Data {
        guard case .string(let text) = json else { throw .expected("a string of Base64", json) }
        // Both alphabets are accepted, with or without padding.
        var digits = String(text.map { $0 == "-" ? "+" : $0 == "_" ? "/" : $0 })
        let padding = (4 - digits.utf8.count % 4) % 4
        if padding != 0 {
            guard !digits.hasSuffix("=") else { throw Self.expected("Base64", text) }
            digits += String(repeating: "=", count: padding)
        }
        guard let bytes = Data(base64Encoded: digits) else { throw Self.expected("Base64", text) }
        return bytes
    }

    static func expected(_ expected: String, _ found: String) -> MessageJSONError {
        MessageJSONError("expected \(expected), found \(Self.shortened(found))")
    }

    private static func shortened(_ text: String) -> String {
        let text = text.escaped
        return text.count <= 60 ? text : "\(text.prefix(57))…"
    }
}
