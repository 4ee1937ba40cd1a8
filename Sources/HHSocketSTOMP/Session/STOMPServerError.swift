// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// An ERROR frame of a broker: the `underlying` error of the ``/HHSocket/SocketError`` that it causes.
public struct STOMPServerError: Error, Sendable, CustomStringConvertible {
    /// The broker's headers, `message` among them as a rule.
    public let headers: STOMPHeaders
    /// The broker's explanation, often of several lines.
    public let body: ByteBuffer

    package init(_ frame: STOMPFrame) {
        self.headers = frame.headers
        self.body = frame.body
    }

    /// The value of the header `message`: a short description.
    public var message: String? { self.headers["message"] }

    /// The receipt that the rejected frame had asked for.
    package var receipt: String? { self.headers["receipt-id"] }

    /// The longest text of a body that ``description`` has.
    private static let longestExplanation = 300

    public var description: String {
        let text = String(buffer: self.body).split(whereSeparator: \.isNewline).joined(separator: " ")
        let explanation = text.count > Self.longestExplanation ? text.prefix(Self.longestExplanation) + "…" : text[...]
        switch (self.message, explanation.isEmpty) {
        case (let message?, false) where message != explanation: return "\(message): \(explanation)"
        case (let message?, _): return message
        case (nil, false): return String(explanation)
        case (nil, true): return "no reason was given"
        }
    }
}
