// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketMessage

/// `--field`: the custom fields of a format's request header.
struct FieldOptions: ParsableArguments {
    /// `NAME=VALUE`
    struct Field: Sendable {
        var name: String
        /// The value as written.
        var value: String
        /// The value as an unsigned integer, the most significant byte first, without leading zeros.
        var bytes: [UInt8]
    }

    @Option(
        name: .customLong("field"),
        parsing: .unconditionalSingleValue,
        help: .value(
            "name=value",
            """
            Set a custom field of the format's request header to a number, in decimal or, of any width, in hexadecimal \
            digits after 0x. It is written in the byte order of the header's length. May be given several times; other \
            fields are zero.
            """
        ),
        transform: Self.field
    )
    var fields: [Field] = []

    /// Returns the values of the fields in the format's widths, for `SocketConfiguration.header`.
    ///
    /// - Throws: `ValidationError` if the format has no such field, or a value does not fit.
    func header(in format: WireFormat) throws -> [String: [UInt8]] {
        let widths = format.customFieldWidths(in: .request)
        var header: [String: [UInt8]] = [:]
        for field in self.fields {
            guard let width = widths.first(where: { $0.name == field.name })?.bytes else {
                let names = widths.map(\.name).joined(separator: ", ")
                throw ValidationError(
                    "The format \(format) has no custom field \"\(field.name)\" in its requests; "
                        + (widths.isEmpty ? "it has none at all." : "it has \(names).")
                )
            }
            guard field.bytes.count <= width else {
                throw ValidationError(
                    """
                    --field \(field.name)=\(field.value) is too large: in the format \(format) the field has \(width) \
                    \(width == 1 ? "byte" : "bytes").
                    """
                )
            }
            let value = [UInt8](repeating: 0, count: width - field.bytes.count) + field.bytes
            guard header.updateValue(format.lengthOrder == .big ? value : value.reversed(), forKey: field.name) == nil
            else { throw ValidationError("--field \(field.name) is given more than once.") }
        }
        return header
    }

    private static func field(_ text: String) throws -> Field {
        guard let equals = text.firstIndex(of: "="), equals != text.startIndex else {
            throw ValidationError("write NAME=VALUE, such as version=7 or token=0x1F2E")
        }
        let value = text[text.index(after: equals)...]
        guard let bytes = Self.bytes(value) else {
            throw ValidationError(
                "a value is a number up to \(UInt64.max), or hexadecimal digits after 0x such as 0x1F2E"
            )
        }
        return Field(name: String(text[..<equals]), value: String(value), bytes: bytes)
    }

    private static func bytes(_ text: Substring) -> [UInt8]? {
        guard text.hasPrefix("0x") || text.hasPrefix("0X") else {
            guard !text.isEmpty, text.utf8.allSatisfy(\.isASCIIDigit), let number = UInt64(text) else { return nil }
            return withUnsafeBytes(of: number.bigEndian) { Array($0.drop { $0 == 0 }) }
        }
        let digits = text.dropFirst(2).map { $0.isASCII ? $0.hexDigitValue : nil }
        guard !digits.isEmpty, !digits.contains(nil) else { return nil }
        var nibbles = digits.compactMap { $0.map(UInt8.init) }
        if !nibbles.count.isMultiple(of: 2) { nibbles.insert(0, at: 0) }
        let bytes = stride(from: 0, to: nibbles.count, by: 2).map { nibbles[$0] << 4 | nibbles[$0 + 1] }
        return Array(bytes.drop { $0 == 0 })
    }
}
