// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A reason why a head is not valid HTTP.
package enum HTTPHeadFault: Error, Hashable, Sendable {
    /// A control character, NUL and a CR that no LF follows among them.
    case controlCharacter
    /// A field that continues on the next line (RFC 9112, section 5.2), or a blank before the first field.
    case foldedLine
    /// A line without a colon.
    case missingColon
    /// A name that is no token: an empty one, or one with a blank before the colon, for instance.
    case fieldName
    /// A malformed first line.
    case startLine
}

extension HTTPHeadFault: CustomStringConvertible {
    package var description: String {
        switch self {
        case .controlCharacter: "a header line has a control character"
        case .foldedLine: "a header field is folded over several lines"
        case .missingColon: "a header line has no colon"
        case .fieldName: "the name of a header field is not a token"
        case .startLine: "the first line is malformed"
        }
    }
}

/// The errors of heads.
package protocol HTTPHeadFailure: Error {
    static var notHTTP: Self { get }
    static var headTooLong: Self { get }
    static func malformedHead(_ fault: HTTPHeadFault) -> Self
}

/// A complete head, parsed.
package struct HTTPHead: Sendable {
    /// The first line, without its end.
    package let startLine: ByteBufferView
    package let fields: HTTPFields

    /// Creates the head whose bytes these are, with the empty line at its end.
    init(_ bytes: ByteBuffer) throws(HTTPHeadFault) {
        var rest = bytes.readableBytesView
        self.startLine = try Self.line(&rest)
        var fields = HTTPFields()
        while true {
            let line = try Self.line(&rest)
            if line.isEmpty { break }
            try Self.append(line, to: &fields)
        }
        self.fields = fields
    }

    /// The words of a request line, with one space between them (RFC 9112, section 3); nil if it is another line.
    package var requestLine: (method: ByteBufferView, target: ByteBufferView, version: ByteBufferView)? {
        let words = self.startLine.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        return words.count == 3 && HTTPSyntax.isToken(words[0]) ? (words[0], words[1], words[2]) : nil
    }

    /// Removes a line. It ends with LF, and a CR before that belongs to the end (RFC 9112, section 2.2).
    private static func line(_ rest: inout ByteBufferView) throws(HTTPHeadFault) -> ByteBufferView {
        let end = rest.firstIndex(of: HTTPSyntax.lineFeed) ?? rest.endIndex
        var line = rest[..<end]
        rest = rest[end...].dropFirst()
        if line.last == HTTPSyntax.carriageReturn { line = line.dropLast() }
        guard line.allSatisfy(HTTPSyntax.isValueByte) else { throw .controlCharacter }
        return line
    }

    private static func append(_ line: ByteBufferView, to fields: inout HTTPFields) throws(HTTPHeadFault) {
        if let first = line.first, HTTPSyntax.isBlank(first) { throw .foldedLine }
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { throw .missingColon }
        let name = line[..<colon]
        guard HTTPSyntax.isToken(name) else { throw .fieldName }
        let value = HTTPSyntax.trimmed(line[colon...].dropFirst())
        fields.append(name: String(decoding: name, as: UTF8.self), value: String(decoding: value, as: UTF8.self))
    }
}
