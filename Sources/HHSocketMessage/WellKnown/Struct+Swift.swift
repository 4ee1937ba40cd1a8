// SPDX-License-Identifier: Apache-2.0
/// An object of JSON as a dictionary: `["name": "ann", "age": 7]`.
extension Google_Protobuf_Struct: ExpressibleByDictionaryLiteral {
    /// If several values have the same name, the last is kept.
    public init(dictionaryLiteral elements: (String, Google_Protobuf_Value)...) {
        self.init()
        self.fields = Dictionary(elements, uniquingKeysWith: { _, last in last })
    }
}

/// An array of JSON: `[1, "two", nil]`.
extension Google_Protobuf_ListValue: ExpressibleByArrayLiteral {
    public init(arrayLiteral elements: Google_Protobuf_Value...) {
        self.init()
        self.values = elements
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

    public init(booleanLiteral value: Bool) { self.init(.boolValue(value)) }
    public init(integerLiteral value: Int64) { self.init(.numberValue(Double(value))) }
    public init(floatLiteral value: Double) { self.init(.numberValue(value)) }
    public init(stringLiteral value: String) { self.init(.stringValue(value)) }
    public init(nilLiteral: ()) { self.init(.nullValue(.nullValue)) }
    public init(arrayLiteral elements: Google_Protobuf_Value...) {
        var list = Google_Protobuf_ListValue()
        list.values = elements
        self.init(.listValue(list))
    }
    /// If several values have the same name, the last is kept.
    public init(dictionaryLiteral elements: (String, Google_Protobuf_Value)...) {
        var object = Google_Protobuf_Struct()
        object.fields = Dictionary(elements, uniquingKeysWith: { _, last in last })
        self.init(.structValue(object))
    }
}
