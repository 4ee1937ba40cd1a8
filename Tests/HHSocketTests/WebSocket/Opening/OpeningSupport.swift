// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import Testing

/// The requests, keys and times of the opening's tests.
enum OpeningSample {
    /// RFC 6455's key and its answer, section 1.3.
    static let key = "dGhlIHNhbXBsZSBub25jZQ=="
    static let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    /// Sun, 06 Nov 1994 08:49:37 GMT, the time of RFC 9110's examples.
    static let now: Int64 = 784_111_777

    static func request(
        _ url: String = "ws://example.com/chat?room=1",
        headers: HTTPFields = HTTPFields(),
        subprotocols: [String] = [],
        origin: String? = nil,
        deflate: DeflatePolicy? = nil
    ) throws -> OpeningRequest {
        try OpeningRequest(
            target: WebSocketTarget(url),
            key: #require(OpeningKey(text: self.key)),
            headers: headers,
            subprotocols: subprotocols,
            origin: origin,
            deflate: deflate
        )
    }

    /// A valid 101, with more lines.
    static func response(_ more: String..., accept: String = OpeningSample.accept) -> String {
        ([
            "HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Accept: \(accept)",
        ] + more).joined(separator: "\r\n") + "\r\n\r\n"
    }

    /// A valid opening request, from which the named lines are removed, and to which others are added.
    static func opening(
        _ more: String...,
        line: String = "GET /chat HTTP/1.1",
        without: [String] = []
    ) -> String {
        let lines = [
            "Host: example.com", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: \(self.key)",
            "Sec-WebSocket-Version: 13",
        ].filter { line in !without.contains { line.hasPrefix($0 + ":") } }
        return ([line] + lines + more).joined(separator: "\r\n") + "\r\n\r\n"
    }
}

/// The end of a client's opening, including the bytes after a 101, whatever read contained them.
enum ClientOutcome: Equatable {
    case waiting
    case result(OpeningResult)
    case failure(OpeningError)

    init(_ pieces: [ArraySlice<UInt8>], to request: OpeningRequest, closes: Bool = false) {
        var reader = OpeningResponseReader(for: request)
        self = .waiting
        for piece in pieces {
            let bytes = ByteBuffer(bytes: piece)
            switch self {
            case .result(.accepted(let agreement, var rest)):
                rest.writeImmutableBuffer(bytes)
                self = .result(.accepted(agreement, rest: rest))
            case .waiting:
                reader.append(bytes)
                self.update { () throws(OpeningError) in try reader.next(now: OpeningSample.now) }
            default:
                break
            }
        }
        if closes, self == .waiting { self.update { () throws(OpeningError) in try reader.finish() } }
    }

    private mutating func update(_ next: () throws(OpeningError) -> OpeningResult?) {
        do throws(OpeningError) {
            if let result = try next() { self = .result(result) }
        } catch {
            self = .failure(error)
        }
    }

    init(_ text: String, to request: OpeningRequest, closes: Bool = false) {
        self.init([Array(text.utf8)[...]], to: request, closes: closes)
    }

    var failure: OpeningError? { if case .failure(let error) = self { error } else { nil } }
    var agreement: OpeningAgreement? { if case .result(.accepted(let agreement, _)) = self { agreement } else { nil } }
    var refusal: OpeningRefusal? { if case .result(.refused(let refusal)) = self { refusal } else { nil } }
}

/// The end of a request at a server, including the bytes after its head, whatever read contained them.
enum ServerOutcome: Equatable {
    case waiting
    case head(OpeningRequestHead, rest: ByteBuffer)
    case rejection(OpeningRejection)

    init(_ pieces: [ArraySlice<UInt8>]) {
        var reader = OpeningRequestReader()
        self = .waiting
        for piece in pieces {
            let bytes = ByteBuffer(bytes: piece)
            switch self {
            case .head(let head, var rest):
                rest.writeImmutableBuffer(bytes)
                self = .head(head, rest: rest)
            case .waiting:
                reader.append(bytes)
                do throws(OpeningRejection) {
                    if let head = try reader.next() { self = .head(head, rest: reader.takeRest()) }
                } catch {
                    self = .rejection(error)
                }
            case .rejection:
                break
            }
        }
    }

    init(_ text: String) {
        self.init([Array(text.utf8)[...]])
    }

    var head: OpeningRequestHead? { if case .head(let head, _) = self { head } else { nil } }
    var rejection: OpeningRejection? { if case .rejection(let rejection) = self { rejection } else { nil } }

    /// The decision of `rules`, or the rejection of bytes that are not a head.
    func decision(_ rules: OpeningRules) throws -> OpeningDecision {
        if let rejection = self.rejection { return .reject(rejection) }
        return rules.decide(try #require(self.head))
    }
}

extension OpeningDecision {
    var rejection: OpeningRejection? { if case .reject(let rejection) = self { rejection } else { nil } }
    var agreement: OpeningAgreement? { if case .upgrade(let agreement, _) = self { agreement } else { nil } }
    var response: String? { if case .upgrade(_, let response) = self { String(buffer: response) } else { nil } }
}

/// Ways to cut a stream.
enum Cuts {
    static func inTwo(_ bytes: [UInt8]) -> [[ArraySlice<UInt8>]] {
        (0...bytes.count).map { [bytes[..<$0], bytes[$0...]] }
    }

    /// Every pair of places; for streams of a few hundred bytes.
    static func inThree(_ bytes: [UInt8]) -> [[ArraySlice<UInt8>]] {
        (0...bytes.count).flatMap { first in
            (first...bytes.count).map { [bytes[..<first], bytes[first..<$0], bytes[$0...]] }
        }
    }

    static func singly(_ bytes: [UInt8]) -> [ArraySlice<UInt8>] {
        bytes.indices.map { bytes[$0...$0] }
    }

    static func randomly(_ bytes: [UInt8], _ random: inout SplitMix) -> [ArraySlice<UInt8>] {
        var pieces: [ArraySlice<UInt8>] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = Int.random(in: 1...max(1, min(rest.count, 200)), using: &random)
            pieces.append(rest.prefix(count))
            rest = rest.dropFirst(count)
        }
        return pieces
    }
}
