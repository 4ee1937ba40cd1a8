import HHSocketMessage

/// The messages of `google/protobuf` that JSON has in a form of their own.
enum WellKnownType {
    case timestamp, duration
    /// A message of one value, which JSON has in the place of the message.
    case wrapper
    /// What cannot be put into JSON here.
    case unsupported

    /// Nil for other messages, and for those that are only called so.
    init?(_ message: ProtoMessage) {
        guard message.name.hasPrefix("google.protobuf.") else { return nil }
        switch message.name.dropFirst("google.protobuf.".count) {
        case "Timestamp" where Self.isSecondsAndNanos(message): self = .timestamp
        case "Duration" where Self.isSecondsAndNanos(message): self = .duration
        case "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue",
            "StringValue", "BytesValue":
            guard message.fields.count == 1, message.fields[0].presence == .implicit else { return nil }
            self = .wrapper
        case "Any", "Struct", "Value", "ListValue", "FieldMask": self = .unsupported
        default: return nil
        }
    }

    private static func isSecondsAndNanos(_ message: ProtoMessage) -> Bool {
        message.fields.map(\.number) == [1, 2] && message.fields.map(\.kind) == [.int64, .int32]
            && message.fields.allSatisfy { $0.presence == .implicit }
    }
}
