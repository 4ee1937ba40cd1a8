// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer
import NIOCore

/// Addresses with commas in between: `HOST:PORT`, `unix:PATH`, or a URL of a WebSocket
struct ServerAddresses: ExpressibleByArgument, Sendable {
    var endpoints: [Endpoint]

    init?(argument: String) {
        var texts: [String] = []
        for part in argument.split(separator: ",", omittingEmptySubsequences: false) {
            // A URL may have commas.
            if Endpoint(part) == nil, let last = texts.last, last.contains("://"), !part.contains("://") {
                texts[texts.count - 1] += ",\(part)"
            } else {
                texts.append(String(part))
            }
        }
        let endpoints = texts.compactMap { Endpoint($0) }
        guard endpoints.count == texts.count else { return nil }
        self.endpoints = endpoints
    }

    static let help = ArgumentHelp(
        "The servers, tried in this order; an IPv6 address in brackets, a Unix domain socket as unix:PATH, a WebSocket "
            + "as ws://HOST[:PORT]/PATH or wss://….",
        valueName: "host:port,..."
    )
}

/// An address to listen on: `HOST:PORT`, with an IPv6 address in brackets, `unix:PATH`, or the URL of a WebSocket. Port
/// 0 picks a free one.
struct ListenAddress: ExpressibleByArgument, Sendable {
    var listener: ServerListener
    /// Whether it must have TLS.
    var isSecure = false

    init?(argument: String) {
        if argument.contains("://") {
            guard let target = try? WebSocketTarget(argument, for: .listener) else { return nil }
            self.listener = ServerListener(host: target.host, port: target.port)
            self.listener.webSocket = WebSocketListening(path: target.path, sharesPort: target.sharesPort)
            self.isSecure = target.isSecure
            return
        }
        if argument.hasPrefix("fd:") {
            guard let descriptor = Int32(argument.dropFirst("fd:".count)), descriptor >= 0 else { return nil }
            self.listener = ServerListener(descriptor: descriptor)
            return
        }
        // An endpoint is an address to connect to, so it cannot have port 0.
        let picksFreePort = argument.hasSuffix(":0") && !argument.hasPrefix("unix:")
        guard let endpoint = Endpoint(picksFreePort ? argument.dropLast() + "1" : argument[...]) else { return nil }
        self.listener =
            endpoint.unixPath.map { ServerListener(unixPath: $0) }
            ?? ServerListener(host: endpoint.host, port: picksFreePort ? 0 : endpoint.port)
    }
}

extension ListenAddress {
    /// - Throws: `ValidationError` if an option `--port` has no port to listen on.
    static func validate(port: Int) throws {
        try require((0...65_535).contains(port), "--port is a number from 0 to 65535, not \(port).")
    }
}

/// The type of a frame: a number, in decimal or, after `0x`, in hexadecimal digits.
enum TypeArgument {
    static func parse(_ text: String) throws -> UInt32 {
        guard let type = Self.number(text[...]) else {
            throw ValidationError(
                "expected a number up to \(UInt32.max), in decimal or, after 0x, in hexadecimal digits"
            )
        }
        return type
    }

    /// The type; nil if the text is none.
    static func number(_ text: Substring) -> UInt32? {
        let isHexadecimal = text.hasPrefix("0x") || text.hasPrefix("0X")
        let digits = isHexadecimal ? text.dropFirst(2) : text
        // `UInt32` also reads a sign.
        guard digits.utf8.first != UInt8(ascii: "+"), digits.utf8.first != UInt8(ascii: "-") else { return nil }
        return UInt32(digits, radix: isHexadecimal ? 16 : 10)
    }
}

extension String {
    /// The parts of `NAME:VALUE`; nil without a colon, or without a name.
    var nameAndValue: (name: Substring, value: Substring)? {
        guard let colon = self.firstIndex(of: ":"), colon != self.startIndex else { return nil }
        return (self[..<colon], self[self.index(after: colon)...])
    }
}

/// `TYPE:TEXT`
struct PushText: ExpressibleByArgument, Sendable {
    var type: UInt32
    var body: ByteBuffer

    init?(argument: String) {
        guard let (name, text) = argument.nameAndValue, let type = TypeArgument.number(name) else { return nil }
        self.type = type
        self.body = ByteBuffer(substring: text)
    }
}
