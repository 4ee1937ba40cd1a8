// SPDX-License-Identifier: Apache-2.0
/// An error of decoding or encoding a message.
public struct MessageError: Error, Sendable, Hashable {
    /// The reason of a ``MessageError``.
    public enum Reason: Sendable, Hashable {
        /// The bytes end within a field.
        case truncated
        /// A varint is longer than ten bytes, or exceeds 64 bits.
        case malformedVarint
        /// A field's tag is invalid: it has the number 0, a number above 536,870,911, or a wire type that does not
        /// exist.
        case illegalTag
        /// The bytes contain a group, which libprotobuf-c does not support.
        case group
        /// A string is not UTF-8.
        case invalidUTF8(field: String)
        /// Messages are nested more deeply than allowed.
        case tooDeep(limit: Int)
        /// A required field is missing.
        case missingRequiredField(field: String)
        /// The encoded message has, or would have, 2 GiB or more.
        case tooLarge
        /// Decoding would require more memory than this limit, in bytes: a few bytes can encode many messages.
        case needsTooMuchMemory(limit: Int)
        /// An `Any` contains a message of another type.
        case anotherType(url: String)
        /// libprotobuf-c refuses the message, without a reason: a required field may be missing, or a field may have
        /// another wire type than that of the declared kind.
        case refusedByLibrary
    }

    public package(set) var reason: Reason
    /// The full name of the message, such as `chat.Message`; for a nested message, that of the inner one.
    public package(set) var message: String
    /// The offset in the bytes, from 0, if known.
    public package(set) var offset: Int?

    @usableFromInline
    package init(_ reason: Reason, in message: String, at offset: Int? = nil) {
        self.reason = reason
        self.message = message
        self.offset = offset
    }
}

extension MessageError: CustomStringConvertible {
    public var description: String {
        let position = self.offset.map { " (at byte \($0))" } ?? ""
        return "\(self.message): \(self.complaint)\(position)"
    }

    private var complaint: String {
        switch self.reason {
        case .truncated: "the bytes end within a field"
        case .malformedVarint: "a number has more than ten bytes, or does not fit"
        case .illegalTag: "there is no field's tag where one should be"
        case .group: "groups are not supported"
        case .invalidUTF8(let field): "the string \(field) is not UTF-8"
        case .tooDeep(let limit): "messages lie within messages more than \(limit) deep"
        case .missingRequiredField(let field): "the required field \(field) is missing"
        case .tooLarge: "it would take 2 GiB or more"
        case .needsTooMuchMemory(let limit):
            "to read it would take more than \(limit < 1 << 20 ? "\(limit) bytes" : "\(limit >> 20) MiB")"
        case .anotherType(let url): "the Any contains another type, \(url.quotedInJSON)"
        case .refusedByLibrary:
            "libprotobuf-c refuses it; a required field may be missing, or a field may be of another kind than declared"
        }
    }
}
