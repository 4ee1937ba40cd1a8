// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A header field of HTTP.
package struct HTTPField: Hashable, Sendable {
    package var name: String
    package var value: String

    package init(name: String, value: String) {
        self.name = name
        self.value = value
    }
}

extension HTTPField: CustomStringConvertible {
    /// Only the name: the value may be a secret.
    package var description: String { self.name }
}

/// The header fields of a request or a response, in their order.
package struct HTTPFields: Hashable, Sendable {
    /// The number of times a field occurs, for fields that may occur once.
    enum Occurrence: Hashable {
        case absent
        case once(String)
        case repeated
    }

    /// The fields, in their order. A name may occur more than once.
    package private(set) var all: [HTTPField] = []

    package init(_ fields: [HTTPField] = []) {
        self.all = fields
    }

    package mutating func append(name: String, value: String) {
        self.all.append(HTTPField(name: name, value: value))
    }

    /// The values of the fields called `name`, in their order.
    package func values(_ name: String) -> [String] {
        self.all.compactMap { HTTPSyntax.isSame($0.name, name) ? $0.value : nil }
    }

    /// The value of the first field called `name`.
    package func first(_ name: String) -> String? {
        self.all.first { HTTPSyntax.isSame($0.name, name) }?.value
    }

    /// Whether there is a field called `name`.
    package func contains(_ name: String) -> Bool {
        self.first(name) != nil
    }

    /// The elements of all fields called `name`, each of which is a comma-separated list.
    func list(_ name: String) -> [Substring] {
        self.values(name).flatMap(HTTPSyntax.listElements)
    }

    /// Whether a list has `token`, ignoring case.
    func list(_ name: String, contains token: String) -> Bool {
        self.list(name).contains { HTTPSyntax.isSame($0, token) }
    }

    /// Whether bytes may follow the head (RFC 9112, section 6.3): any but a single `Content-Length: 0` announces some.
    package var announcesBody: Bool {
        guard !self.contains("Transfer-Encoding") else { return true }
        return switch self.occurrence(of: "Content-Length") {
        case .absent: false
        case .once(let length): HTTPSyntax.number(length.utf8, limit: 1) != 0
        case .repeated: true
        }
    }

    /// The value of a field that may occur once.
    func occurrence(of name: String) -> Occurrence {
        let values = self.values(name)
        guard let value = values.first else { return .absent }
        return values.count == 1 ? .once(value) : .repeated
    }
}

extension HTTPFields: ExpressibleByDictionaryLiteral {
    package init(dictionaryLiteral fields: (String, String)...) {
        self.init(fields.map { HTTPField(name: $0.0, value: $0.1) })
    }
}

extension HTTPFields {
    /// Fields that determine where a message ends. An opening has no body, and a peer that expected one would read
    /// frames as its bytes.
    private static let framing = ["Content-Length", "Transfer-Encoding"]
    private static let hopByHop = ["Connection", "Upgrade"]

    /// Returns these fields, without blanks around their values, after checking that an opening may send them.
    ///
    /// - Parameter owned: The names, in addition to those of framing and upgrading, that the handshake writes itself.
    /// - Throws: An error that names the field, never its value, which may be a secret.
    func checked(owned: [String] = []) throws(OpeningError) -> HTTPFields {
        var checked = HTTPFields()
        for field in self.all {
            let name = field.name
            guard HTTPSyntax.isToken(name.utf8) else { throw .invalidFieldName(HTTPSyntax.shown(name.utf8)) }
            guard field.value.utf8.allSatisfy(HTTPSyntax.isValueByte) else { throw .invalidFieldValue(of: name) }
            let isOwned = (Self.framing + Self.hopByHop + owned).contains { HTTPSyntax.isSame($0, name) }
            guard !isOwned, !HTTPSyntax.isSame(name.prefix(14), "Sec-WebSocket-") else { throw .ownedField(name) }
            checked.append(name: name, value: String(Substring(HTTPSyntax.trimmed(field.value.utf8[...]))))
        }
        return checked
    }
}

extension ByteBuffer {
    /// Writes one line of a head.
    package mutating func writeField(_ name: String, _ value: String) {
        self.writeString(name)
        self.writeStaticString(": ")
        self.writeString(value)
        self.writeStaticString("\r\n")
    }

    /// Writes `fields`, which have been checked.
    mutating func writeFields(_ fields: HTTPFields) {
        for field in fields.all { self.writeField(field.name, field.value) }
    }
}
