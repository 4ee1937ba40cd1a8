// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

/// A host and a port as URLs and the header field `Host` have them.
struct HostAndPort: Hashable, Sendable {
    /// The longest host that is read, in bytes: DNS has no longer names.
    private static let maximumHostLength = 255

    /// A host name or an IP address, an IPv6 address without brackets.
    let host: String
    /// The port; nil where none is written.
    let port: Int?

    init(host: String, port: Int?) {
        self.host = host
        self.port = port
    }

    init(_ text: Substring) throws(WebSocketURLFault) {
        let bytes = text.utf8
        guard !bytes.contains(UInt8(ascii: "@")) else { throw .userInformation }
        if bytes.first == UInt8(ascii: "[") {
            guard let bracket = bytes.firstIndex(of: UInt8(ascii: "]")) else { throw .host }
            let address = String(text[..<bracket].dropFirst())
            // Without a zone, which has a meaning only on one machine.
            guard (try? SocketAddress(ipAddress: address, port: 0))?.protocol == .inet6 else { throw .host }
            self.host = address
            self.port = try Self.port(text[bracket...].dropFirst())
        } else {
            let colon = bytes.firstIndex(of: UInt8(ascii: ":")) ?? bytes.endIndex
            let name = bytes[..<colon]
            guard (1...Self.maximumHostLength).contains(name.count), name.allSatisfy(Self.isNameByte) else {
                throw .host
            }
            self.host = String(text[..<colon])
            self.port = try Self.port(text[colon...])
        }
    }

    /// The characters that RFC 3986 calls unreserved. Of those that it would also allow in a name, percent-encoded ones
    /// among them, DNS has none.
    private static func isNameByte(_ byte: UInt8) -> Bool {
        byte.isASCIILetter || byte.isASCIIDigit || "-._~".utf8.contains(byte)
    }

    /// Reads nothing, a colon, or a colon and a port (RFC 3986, section 3.2.3).
    private static func port(_ text: Substring) throws(WebSocketURLFault) -> Int? {
        if text.isEmpty { return nil }
        guard text.utf8.first == UInt8(ascii: ":") else { throw .host }
        let digits = text.utf8.dropFirst()
        if digits.isEmpty { return nil }
        guard digits.count <= 5, let port = HTTPSyntax.number(digits, limit: .max / 16), port <= 65_535 else {
            throw .port
        }
        return port
    }
}
