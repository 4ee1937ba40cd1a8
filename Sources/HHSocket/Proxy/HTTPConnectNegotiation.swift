// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore

/// The client's side of HTTP's CONNECT (RFC 9110, 9.3.6).
///
/// swift-nio-extras' handler with NIOHTTP1's codec does not fit: it does not expose the status of a refusal, and
/// accepts 2 MiB for one answer and any number of interim ones. The codec delivers the bytes after the answer a turn of
/// the loop after the handler has reported; until then it is in the pipeline, and traps on bytes that TLS or a link
/// writes. Parsing one status and the end of a head takes less code than holding those bytes back.
struct HTTPConnectNegotiation: ProxyNegotiation {
    /// The largest total length of the answers' heads, in bytes.
    static let maximumHeadLength = 16 << 10
    private static let start = Array("HTTP/1.".utf8)
    /// The fields that list authentication schemes. The second is for servers, but tinyproxy 1.11 answers wrong
    /// credentials with it and status 401.
    private static let authenticationFields: Set<String> = ["proxy-authenticate", "www-authenticate"]

    private let request: ByteBuffer
    private let hasCredentials: Bool
    /// The status of the head that is being read; 0 before its first line.
    private var status = 0
    /// The proxy's reason phrase, fit to be shown.
    private var phrase = ""
    /// The authentication schemes that the proxy offers.
    private var schemes: [String] = []
    /// The length of all heads, without the line that is being read.
    private var headLength = 0
    /// The number of bytes of that line that were searched for its end.
    private var searched = 0

    init(to server: Endpoint, credentials: Proxy.Credentials?) {
        var request = "CONNECT \(server) HTTP/1.1\r\nHost: \(server)\r\n"
        if let credentials {
            // Sent in advance, as curl does: a proxy may close the connection after its refusal.
            let text = Data("\(credentials.user):\(credentials.password)".utf8).base64EncodedString()
            request += "Proxy-Authorization: Basic \(text)\r\n"
        }
        self.request = ByteBuffer(string: request + "\r\n")
        self.hasCredentials = credentials != nil
    }

    mutating func begin() -> ByteBuffer { self.request }

    mutating func receive(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep {
        while let line = try self.nextLine(&bytes) {
            if self.status == 0 {
                try self.readStatus(line)
            } else if !line.isEmpty {
                self.readField(line)
            } else {
                switch self.status {
                case 200..<300:
                    return .connected
                case 100..<200 where self.status != 101:
                    // Another head follows. The length keeps counting, which bounds the number of interim answers.
                    self.status = 0
                default:
                    throw self.refusal()
                }
            }
        }
        return .wait
    }

    /// Reads a line, without its end; nil if it is incomplete.
    private mutating func nextLine(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> [UInt8]? {
        let room = Self.maximumHeadLength - self.headLength
        let view = bytes.readableBytesView.prefix(room)
        if self.status == 0 {
            // A peer of another protocol may never end a line.
            guard zip(view, Self.start).allSatisfy({ $0 == $1 }) else { throw Self.notHTTP }
        }
        guard let end = view.dropFirst(self.searched).firstIndex(of: UInt8(ascii: "\n")) else {
            self.searched = view.count
            guard view.count < room else {
                throw ProxyFailure(.other, "the proxy's answer is longer than \(Self.maximumHeadLength) bytes")
            }
            return nil
        }
        self.searched = 0
        let length = end - view.startIndex + 1
        self.headLength += length
        var line = Array(view.prefix(length - 1))
        bytes.moveReaderIndex(forwardBy: length)
        // A line may end without CR (RFC 9112, 2.2).
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        return line
    }

    private static let notHTTP = ProxyFailure(
        .notAProxy,
        "the peer does not speak HTTP; check the proxy's kind and port"
    )

    /// Reads `HTTP/1.1 200 Connection established`.
    private mutating func readStatus(_ line: [UInt8]) throws(ProxyFailure) {
        let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 2)
        guard parts.count >= 2, parts[0].starts(with: Self.start), parts[1].count == 3,
            parts[1].allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }),
            let status = Int(String(decoding: parts[1], as: UTF8.self)), status >= 100
        else { throw Self.notHTTP }
        self.status = status
        self.phrase = parts.count > 2 ? Self.shown(parts[2]) : ""
        self.schemes = []
    }

    /// Makes text of a proxy fit for messages and logs: short, printable, and on one line.
    private static func shown(_ bytes: some Sequence<UInt8>) -> String {
        String(decoding: bytes.prefix(80).map { $0 >= 0x20 && $0 < 0x7F ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
    }

    private mutating func readField(_ line: [UInt8]) {
        guard self.schemes.count < 8, let colon = line.firstIndex(of: UInt8(ascii: ":")),
            Self.authenticationFields.contains(String(decoding: line[..<colon], as: UTF8.self).lowercased())
        else { return }
        let value = line[(colon + 1)...].drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
        // One field may list several schemes, between parameters: it suffices that Basic is one of them.
        let isBasic = String(decoding: value, as: UTF8.self).lowercased().contains("basic")
        self.schemes.append(isBasic ? "Basic" : Self.shown(value.prefix { $0 != UInt8(ascii: " ") }))
    }

    private func refusal() -> ProxyFailure {
        let answer = "the proxy answered \(self.status)" + (self.phrase.isEmpty ? "" : " \(self.phrase)")
        let wantsAnother = !self.schemes.isEmpty && !self.schemes.contains("Basic")
        switch self.status {
        case 401 where wantsAnother, 407 where wantsAnother:
            return ProxyFailure(
                .authenticationRequired,
                "\(answer): it wants authentication by \(self.schemes.joined(separator: " or ")), and "
                    + "only Basic is known here"
            )
        case 401 where self.hasCredentials, 407 where self.hasCredentials:
            return ProxyFailure(.authenticationFailed, "\(answer): it does not accept the user and the password")
        case 401, 407:
            return ProxyFailure(
                .authenticationRequired,
                "\(answer): it asks for a user and a password; set Proxy.credentials"
            )
        case 502, 503, 504:
            return ProxyFailure(.serverUnreachable, "\(answer): it could not reach the server")
        default:
            return ProxyFailure(.refused(self.status), answer)
        }
    }

    func closed() -> ProxyFailure {
        // Some proxies close the connection in the middle of a refusal.
        guard self.status < 300, self.status != 101 else { return self.refusal() }
        return ProxyFailure(.closed, "the proxy closed the connection before it had answered")
    }
}
