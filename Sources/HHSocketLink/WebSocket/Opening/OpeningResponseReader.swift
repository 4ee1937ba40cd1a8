// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The outcome of an opening request.
package enum OpeningResult: Hashable, Sendable {
    /// The connection is a WebSocket. The rest is the bytes after the response, the first ones of its frames.
    case accepted(OpeningAgreement, rest: ByteBuffer)
    /// The server is elsewhere; see ``RedirectRules``.
    case redirect(status: Int, location: WebSocketTarget)
    case refused(OpeningRefusal)
}

/// A response that is not 101.
package struct OpeningRefusal: Hashable, Sendable {
    package var status: Int
    /// The reason phrase, fit to be shown.
    package var reason: String
    package var headers: HTTPFields
    /// The beginning of the body, at most 8 KiB.
    package var body: ByteBuffer
    /// The number of seconds after which the server may be tried again, at most 600; nil if the server gives none.
    package var retryAfter: Int?
}

/// Reads the response to an opening request, however the byte stream was split.
///
/// Append the bytes of each read, and call ``next(now:)`` until there is a result:
/// ```swift
/// reader.append(bytes)
/// if let result = try reader.next(now: now) { … }
/// ```
/// There is one result, or one error, after which the connection must be closed.
package struct OpeningResponseReader: Sendable {
    private enum State {
        case head
        case body(OpeningRefusal, HTTPBodyReader)
        case done
    }

    private struct StatusLine {
        var status: Int
        var reason: String
    }

    private static let redirects: Set<Int> = [301, 302, 303, 307, 308]
    private static let version = Array("HTTP/1.1".utf8)

    private let request: OpeningRequest
    private var heads = HTTPHeadReader<OpeningError>(.response)
    private var state = State.head

    package init(for request: OpeningRequest) {
        self.request = request
    }

    /// Adds bytes. They are copied only if unread ones precede them.
    package mutating func append(_ bytes: ByteBuffer) {
        self.heads.append(bytes)
    }

    /// Whether the response is a refusal whose body is incomplete. The answer is final without it.
    package var isReadingBody: Bool { if case .body = self.state { true } else { false } }

    /// Returns the result; nil if bytes are missing, or if it was returned before.
    ///
    /// - Parameter now: The current time in seconds since 1970, for `Retry-After`.
    package mutating func next(now: Int64) throws(OpeningError) -> OpeningResult? {
        if case .head = self.state {
            guard let result = try self.readHead(now: now) else { return nil }
            guard case .refused(let refusal) = result else {
                self.state = .done
                return result
            }
            self.state = .body(refusal, HTTPBodyReader(status: refusal.status, fields: refusal.headers))
        }
        guard case .body(let refusal, var body) = self.state else { return nil }
        // Without a second reference, which would have the body copied.
        self.state = .done
        var bytes = self.heads.takeRest()
        let isComplete = body.read(&bytes)
        self.heads.append(bytes)
        self.state = .body(refusal, body)
        return isComplete ? self.endOfBody() : nil
    }

    /// Returns the result at the end of the connection, or of the time for the opening: a refusal whose body is
    /// incomplete. Nil if the result was returned before.
    ///
    /// - Throws: `closedEarly` if the head is incomplete.
    package mutating func finish() throws(OpeningError) -> OpeningResult? {
        if case .head = self.state {
            self.state = .done
            throw .closedEarly
        }
        return self.endOfBody()
    }

    private mutating func endOfBody() -> OpeningResult? {
        guard case .body(var refusal, let body) = self.state else { return nil }
        self.state = .done
        refusal.body = body.body
        return .refused(refusal)
    }

    /// Reads heads up to the final one. A refusal is returned without its body.
    private mutating func readHead(now: Int64) throws(OpeningError) -> OpeningResult? {
        while let head = try self.heads.next() {
            let line = try Self.statusLine(head.startLine)
            let fields = head.fields
            switch line.status {
            case 101:
                return .accepted(try self.request.agreement(by: fields), rest: self.heads.takeRest())
            case 100..<200:
                // Another head follows; all of them share one limit.
                continue
            case _ where Self.redirects.contains(line.status) && fields.contains("Location"):
                guard case .once(let location) = fields.occurrence(of: "Location") else { throw .repeatedLocation }
                return .redirect(status: line.status, location: try self.request.target.resolving(location))
            default:
                let retryAfter = fields.first("Retry-After").flatMap { RetryAfter.seconds($0, now: now) }
                return .refused(
                    OpeningRefusal(
                        status: line.status,
                        reason: line.reason,
                        headers: fields,
                        body: ByteBuffer(),
                        retryAfter: retryAfter
                    )
                )
            }
        }
        return nil
    }

    /// Reads `HTTP/1.1 101 Switching Protocols` (RFC 9112, section 4). The reason phrase, and the space before it, may
    /// be missing.
    private static func statusLine(_ line: ByteBufferView) throws(OpeningError) -> StatusLine {
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 1, omittingEmptySubsequences: false)
        guard words[0].elementsEqual(self.version) else { throw .unsupportedVersion }
        let digits = words[words.count - 1].prefix(3)
        let reason = words[words.count - 1].dropFirst(3)
        guard words.count == 2, digits.count == 3, let status = HTTPSyntax.number(digits, limit: 999), status >= 100,
            reason.isEmpty || reason.first == UInt8(ascii: " ")
        else { throw .malformedHead(.startLine) }
        return StatusLine(status: status, reason: HTTPSyntax.shown(reason.dropFirst()))
    }
}
