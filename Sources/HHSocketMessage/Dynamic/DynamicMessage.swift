// SPDX-License-Identifier: Apache-2.0
/// A message whose type is known only at run time, as in a tool that has read a `.proto`.
package struct DynamicMessage: Sendable {
    package enum Field: Sendable {
        case value(DynamicValue)
        /// The values of a repeated field; the entries of a map are messages with a key and a value.
        case values([DynamicValue])
    }

    package let descriptor: MessageDescriptor
    /// The fields that have a value, by their index among the descriptor's fields.
    var fields: [Int: Field] = [:]
    /// The fields that the descriptor does not have. They are kept when the message is encoded again.
    package var unknownFields = UnknownStorage()

    package init(_ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
    }

    /// The content of a field, given by its index among the descriptor's fields; nil if it has no value.
    package subscript(field: Int) -> Field? { self.fields[field] }

    /// Sets the value of a singular field. A field of a oneof replaces the one set before.
    package mutating func set(_ field: Int, _ value: DynamicValue) {
        let descriptor = self.descriptor.fields[field]
        precondition(!descriptor.isRepeated && value.fits(descriptor), "\(descriptor.name) cannot hold \(value)")
        self.clearOneof(of: field)
        self.fields[field] = .value(value)
    }

    /// Sets the values of a repeated field.
    package mutating func set(_ field: Int, _ values: [DynamicValue]) {
        let descriptor = self.descriptor.fields[field]
        precondition(
            descriptor.isRepeated && values.allSatisfy { $0.fits(descriptor) },
            "\(descriptor.name) cannot hold these values"
        )
        self.fields[field] = values.isEmpty ? nil : .values(values)
    }

    /// Removes the values of the other fields of a field's oneof.
    mutating func clearOneof(of field: Int) {
        let presence = self.descriptor.fields[field].presence
        guard case .oneof = presence else { return }
        for index in self.fields.keys where index != field && self.descriptor.fields[index].presence == presence {
            self.fields[index] = nil
        }
    }

    /// Checks that the message, and those in it, have their required fields.
    package func checkRequired() throws(MessageError) {
        for (index, field) in self.descriptor.fields.enumerated() {
            switch self.fields[index] {
            case .value(.message(let message)): try message.checkRequired()
            case .values(let values) where field.kind == .message:
                for case .message(let message) in values { try message.checkRequired() }
            case nil where field.presence == .required:
                throw MessageError(.missingRequiredField(field: field.name), in: self.descriptor.name)
            case .value, .values, nil: break
            }
        }
    }
}
