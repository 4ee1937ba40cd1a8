// SPDX-License-Identifier: Apache-2.0
/// An object of JSON as a dictionary: `["name": "ann", "age": 7]`.
extension Google_Protobuf_Struct: ExpressibleByDictionaryLiteral {
    public init(fields: [String: Google_Protobuf_Value]) {
        self.init()
        self.fields = fields
    }

    /// If several values have the same name, the last is kept.
    public init(dictionaryLiteral elements: (String, Google_Protobuf_Value)...) {
        self.init(fields: Dictionary(elements, uniquingKeysWith: { _, last in last }))
    }

    public subscript(name: String) -> Google_Protobuf_Value? {
        get { self.fields[name] }
        set { self.fields[name] = newValue }
    }
}

/// An array of JSON: `[1, "two", nil]`.
extension Google_Protobuf_ListValue: ExpressibleByArrayLiteral {
    public init(values: [Google_Protobuf_Value]) {
        self.init()
        self.values = values
    }

    public init(arrayLiteral elements: Google_Protobuf_Value...) {
        self.init(values: elements)
    }

    /// - Precondition: There is a value at this index.
    public subscript(index: Int) -> Google_Protobuf_Value {
        get { self.values[index] }
        set { self.values[index] = newValue }
    }
}

/// A value of JSON: `true`, `1.5`, `"text"`, `nil`.
extension Google_Protobuf_Value: ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByStringLiteral, ExpressibleByNilLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
    private init(_ kind: OneOf_Kind) {
        self.init()
        self.kind = kind
    }

    public init(boolValue: Bool) { self.init(.boolValue(boolValue)) }
    public init(numberValue: Double) { self.init(.numberValue(numberValue)) }
    public init(stringValue: String) { self.init(.stringValue(stringValue)) }
    public init(structValue: Google_Protobuf_Struct) { self.init(.structValue(structValue)) }
    public init(listValue: Google_Protobuf_ListValue) { self.init(.listValue(listValue)) }

    public init(booleanLiteral value: Bool) { self.init(.boolValue(value)) }
    public init(integerLiteral value: Int64) { self.init(.numberValue(Double(value))) }
    public init(floatLiteral value: Double) { self.init(.numberValue(value)) }
    public init(stringLiteral value: String) { self.init(.stringValue(value)) }
    public init(nilLiteral: ()) { self.init(.nullValue(.nullValue)) }
    public init(arrayLiteral elements: Google_Protobuf_Value...) { self.init(.listValue(.init(values: elements))) }
    public init(dictionaryLiteral elements: (String, Google_Protobuf_Value)...) {
        let fields = Dictionary(elements, uniquingKeysWith: { _, last in last })
        self.init(.structValue(.init(fields: fields)))
    }
}
