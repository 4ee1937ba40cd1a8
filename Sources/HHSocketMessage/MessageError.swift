/// Why bytes are no message, or a message cannot become bytes.
public struct MessageError: Error, Sendable, Hashable {
    /// What went wrong.
    public enum Reason: Sendable, Hashable {
        /// The bytes end within a field.
        case truncated
        /// A number is longer than ten bytes, or does not fit where it belongs.
        case malformedVarint
        /// What should say which field comes does not: it has the number 0, a number above 536,870,911, or a wire type
        /// that does not exist.
        case illegalTag
        /// A field of another kind than the message declares, by how it stands on the wire.
        case wireTypeMismatch(field: String)
        /// A group, in bytes or in a declaration.
        case group
        /// A string is not UTF-8.
        case invalidUTF8(field: String)
        /// Messages lie within messages, deeper than allowed.
        case tooDeep(limit: Int)
        /// A required field is missing.
        case missingRequiredField(field: String)
        /// The message would take 2 GiB or more.
        case tooLarge
        /// Decoding it would take more memory than this limit, in bytes: a few bytes hold a large number of messages.
        case needsTooMuchMemory(limit: Int)
    }

    public var reason: Reason
    /// The full name of the message, such as `chat.Message`; of the inner one where it lies within another.
    public var message: String
    /// Where in the bytes, where that is known; from 0.
    public var offset: Int?

    init(_ reason: Reason, in message: String, at offset: Int? = nil) {
        self.reason = reason
        self.message = message
        self.offset = offset
    }
}

extension MessageError: CustomStringConvertible {
    public var description: String {
        let place = self.offset.map { " (at byte \($0))" } ?? ""
        return "\(self.message): \(self.complaint)\(place)"
    }

    private var complaint: String {
        switch self.reason {
        case .truncated: "the bytes end within a field"
        case .malformedVarint: "a number has more than ten bytes, or does not fit"
        case .illegalTag: "there is no field's tag where one should be"
        case .wireTypeMismatch(let field):
            "the field \(field) stands on the wire as another kind than the one declared; do both sides have the same .proto?"
        case .group: "groups are not supported"
        case .invalidUTF8(let field): "the string \(field) is not UTF-8"
        case .tooDeep(let limit): "messages lie within messages more than \(limit) deep"
        case .missingRequiredField(let field): "the required field \(field) is missing"
        case .tooLarge: "it would take 2 GiB or more"
        case .needsTooMuchMemory(let limit): "to read it would take more than \(limit >> 20) MiB"
        }
    }
}
