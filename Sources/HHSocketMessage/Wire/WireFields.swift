// SPDX-License-Identifier: Apache-2.0
/// The fields of an encoded message, without decoding them, for code that checks a message before decoding it.
package enum WireFields {
    /// A field of the outermost message.
    package struct Field {
        package var number: UInt32
        /// The field as received, with its tag.
        package var bytes: UnsafeRawBufferPointer
        /// The bytes of its value, without their length if the value is delimited by one.
        package var value: UnsafeRawBufferPointer
    }

    /// Calls `body` with each field, in order.
    ///
    /// - Parameter bytes: The message. The fields lie within it.
    /// - Returns: Whether the bytes could be read to their end. The values of fields are not examined.
    package static func forEach(in bytes: UnsafeRawBufferPointer, _ body: (Field) -> Void) -> Bool {
        var reader = WireReader(bytes)
        while !reader.isAtEnd {
            let start = reader.cursor
            guard let (number, type) = try? reader.tag() else { return false }
            var value = UnsafeRawBufferPointer(start: reader.cursor, count: 0)
            if type == .lengthDelimited {
                guard let delimited = try? reader.delimited() else { return false }
                value = delimited.rest
            } else {
                let valueStart = reader.cursor
                guard (try? reader.skip(type)) != nil else { return false }
                value = UnsafeRawBufferPointer(start: valueStart, count: reader.cursor - valueStart)
            }
            body(
                Field(
                    number: number,
                    bytes: UnsafeRawBufferPointer(start: start, count: reader.cursor - start),
                    value: value
                )
            )
        }
        return true
    }
}
