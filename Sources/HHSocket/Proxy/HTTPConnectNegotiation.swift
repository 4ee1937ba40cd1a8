import Foundation
import NIOCore

/// The client's side of HTTP's CONNECT: RFC 9110, 9.3.6.
///
/// Not swift-nio-extras' handler with NIOHTTP1's codec: that keeps the status of a refusal to itself, and takes 2 MiB
/// for one answer, and any number of interim ones. The codec hands over what comes behind the answer a turn of the loop
/// after the handler has reported, and until then it is in the pipeline and traps on the bytes that TLS or a link
/// write. We need one status and the end of a head, which is less than what would hold those bytes back.
struct HTTPConnectNegotiation: ProxyNegotiation {
    /// How many bytes the answers' heads may have together.
    static let maximumHeadLength = 16 << 10
    private static let start = Array("HTTP/1.".utf8)
    /// The second belongs to servers, but tinyproxy 1.11 answers wrong credentials with it and with the status 401.
    private static let authenticationFields: Set<String> = ["proxy-authenticate", "www-authenticate"]

    private let request: ByteBuffer
    private let hasCredentials: Bool
    /// Of the head that is being read: 0 before its first line.
    private var status = 0
    /// What the proxy calls the status, fit to be shown.
    private var phrase = ""
    /// The authentication schemes that the proxy offers.
    private var schemes: [String] = []
    /// Of all heads, without the line that is being read.
    private var headLength = 0
    /// How much of that line was searched for its end.
    private var searched = 0

    init(to server: Endpoint, credentials: Proxy.Credentials?) {
        var request = "CONNECT \(server) HTTP/1.1\r\nHost: \(server)\r\n"
        if let credentials {
            // Without being asked, as curl does: a proxy may close the connection together with its refusal.
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
                    // More is to come. The length goes on counting, or such answers would need no end.
                    self.status = 0
                default:
                    throw self.refusal()
                }
            }
        }
        return .wait
    }

    /// Takes a line, without its end, if it is there.
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
        // A line may end without it (RFC 9112, 2.2).
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        return line
    }

    private static let notHTTP = ProxyFailure(
        .notAProxy,
        "what answers does not speak HTTP; see that the proxy's kind and port are right"
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

    /// What a proxy says goes into messages and logs, so it is short and in one line.
    private static func shown(_ bytes: some Sequence<UInt8>) -> String {
        String(decoding: bytes.prefix(80).map { $0 >= 0x20 && $0 < 0x7F ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
    }

    private mutating func readField(_ line: [UInt8]) {
        guard self.schemes.count < 8, let colon = line.firstIndex(of: UInt8(ascii: ":")),
            Self.authenticationFields.contains(String(decoding: line[..<colon], as: UTF8.self).lowercased())
        else { return }
        let value = line[(colon + 1)...].drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
        // Several may stand in one field, between parameters: what matters is whether ours is one of them.
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
                "\(answer): it wants authentication by \(self.schemes.joined(separator: " or ")), and only Basic is known here"
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
        // Some close in the middle of what they have to say about a refusal.
        guard self.status < 300, self.status != 101 else { return self.refusal() }
        return ProxyFailure(.closed, "the proxy closed the connection before it had answered")
    }
}
