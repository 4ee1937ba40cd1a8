// SPDX-License-Identifier: Apache-2.0
/// The messages of `google/protobuf` that have a special form in JSON.
enum WellKnownForm {
    case timestamp, duration
    /// A message with one value, which represents it in JSON.
    case wrapper
    /// A message of any type, with the name of that type.
    case any
    /// An object, any JSON value, and an array.
    case object, value, list
    /// A list of paths of fields.
    case fieldMask

    /// Creates the form of a message; nil for other messages, including those with only the name of such a type.
    init?(_ name: String, _ fields: [FieldDescriptor]) {
        guard name.hasPrefix("google.protobuf.") else { return nil }
        let isSimple = fields.allSatisfy { $0.presence == .implicit }
        func has(_ kinds: FieldKind...) -> Bool {
            fields.map(\.number) == kinds.indices.map { UInt32($0) + 1 } && fields.map(\.kind) == kinds
        }
        switch name.dropFirst("google.protobuf.".count) {
        case "Timestamp" where has(.int64, .int32) && isSimple: self = .timestamp
        case "Duration" where has(.int64, .int32) && isSimple: self = .duration
        case "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value", "BoolValue",
            "StringValue", "BytesValue":
            guard fields.count == 1, isSimple else { return nil }
            self = .wrapper
        case "Any" where has(.string, .bytes) && isSimple: self = .any
        case "Struct" where has(.message) && fields[0].isMap: self = .object
        case "Value" where has(.enum, .double, .string, .bool, .message, .message) && Self.isOneof(fields):
            self = .value
        case "ListValue" where has(.message) && fields[0].isRepeated && !fields[0].isMap: self = .list
        case "FieldMask" where has(.string) && fields[0].isRepeated: self = .fieldMask
        default: return nil
        }
    }

    private static func isOneof(_ fields: [FieldDescriptor]) -> Bool {
        guard let first = fields.first?.presence, case .oneof = first else { return false }
        return fields.allSatisfy { $0.presence == first }
    }
}

/// The paths of a `FieldMask`: names of fields in messages; in JSON in lower camel case, separated by commas.
enum FieldMaskJSON {
    /// Returns the paths as text; nil if a path would not survive the round trip.
    static func text(_ paths: [String]) -> String? {
        var texts: [String] = []
        for path in paths {
            var text = ""
            var isAfterUnderscore = false
            for character in path {
                if character == "_" {
                    guard !isAfterUnderscore else { return nil }
                    isAfterUnderscore = true
                } else if isAfterUnderscore {
                    text += character.uppercased()
                    isAfterUnderscore = false
                } else {
                    text.append(character)
                }
            }
            guard self.path(text) == path else { return nil }
            texts.append(text)
        }
        return texts.joined(separator: ",")
    }

    /// Returns the paths in a text; nil if it is not in lower camel case.
    static func paths(_ text: String) -> [String]? {
        guard !text.isEmpty else { return [] }
        let paths = text.split(separator: ",", omittingEmptySubsequences: false).map { self.path(String($0)) }
        return paths.contains(nil) ? nil : paths.compactMap { $0 }
    }

    private static func path(_ text: String) -> String? {
        guard !text.isEmpty, !text.contains("_"), !text.contains(",") else { return nil }
        var path = ""
        for character in text {
            let isUpper = character.isASCII && character.isUppercase
            path += isUpper ? "_\(character.lowercased())" : String(character)
        }
        return path
    }
}
