// SPDX-License-Identifier: Apache-2.0
/// An extension of the header field `Sec-WebSocket-Extensions`, offered or accepted.
struct WebSocketExtension: Hashable, Sendable {
    struct Parameter: Hashable, Sendable {
        let name: String
        /// The value, without quotes; nil without `=`.
        let value: String?
    }

    struct Malformed: Error, Hashable {}

    let name: String
    let parameters: [Parameter]

    /// Reads the extensions of all fields, in their order, by the grammar of RFC 6455, section 9.1. Empty elements, and
    /// fields that have no others, are passed over as in any list of HTTP.
    static func read(_ fields: [String]) throws(Malformed) -> [WebSocketExtension] {
        var extensions: [WebSocketExtension] = []
        for field in fields {
            var cursor = Cursor(rest: field.utf8[...])
            while true {
                cursor.skipBlanks()
                if cursor.skip(UInt8(ascii: ",")) { continue }
                if cursor.rest.isEmpty { break }
                extensions.append(try cursor.readExtension())
                guard cursor.rest.isEmpty || cursor.skip(UInt8(ascii: ",")) else { throw Malformed() }
            }
        }
        return extensions
    }

    /// A field's value that is being read.
    private struct Cursor {
        var rest: Substring.UTF8View

        mutating func skipBlanks() {
            self.rest = self.rest.drop(while: HTTPSyntax.isBlank)
        }

        /// Skips `byte` if it is next.
        mutating func skip(_ byte: UInt8) -> Bool {
            guard self.rest.first == byte else { return false }
            self.rest.removeFirst()
            return true
        }

        /// Reads an extension with its parameters, and the blanks after them.
        mutating func readExtension() throws(Malformed) -> WebSocketExtension {
            let name = try self.readToken()
            self.skipBlanks()
            var parameters: [Parameter] = []
            while self.skip(UInt8(ascii: ";")) {
                self.skipBlanks()
                let name = try self.readToken()
                self.skipBlanks()
                var value: String?
                if self.skip(UInt8(ascii: "=")) {
                    self.skipBlanks()
                    value = self.rest.first == UInt8(ascii: "\"") ? try self.readQuoted() : try self.readToken()
                    self.skipBlanks()
                }
                parameters.append(Parameter(name: name, value: value))
            }
            return WebSocketExtension(name: name, parameters: parameters)
        }

        private mutating func readToken() throws(Malformed) -> String {
            let token = self.rest.prefix(while: HTTPSyntax.isTokenByte)
            guard !token.isEmpty else { throw Malformed() }
            self.rest = self.rest[token.endIndex...]
            return String(Substring(token))
        }

        /// Reads a quoted string, which without its quotes and backslashes must be a token.
        private mutating func readQuoted() throws(Malformed) -> String {
            self.rest.removeFirst()
            var value: [UInt8] = []
            while let byte = self.rest.popFirst() {
                if byte == UInt8(ascii: "\"") {
                    guard !value.isEmpty else { break }
                    return String(decoding: value, as: UTF8.self)
                }
                guard let next = byte == UInt8(ascii: "\\") ? self.rest.popFirst() : byte,
                    HTTPSyntax.isTokenByte(next)
                else { break }
                value.append(next)
            }
            throw Malformed()
        }
    }
}
