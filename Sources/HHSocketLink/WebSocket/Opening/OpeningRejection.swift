// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A reason why a server does not upgrade, in the order in which they are checked.
package enum OpeningRejection: HTTPHeadFailure, Hashable, Sendable {
    case headTooLong
    case notHTTP
    case malformedHead(HTTPHeadFault)
    case requestLine
    case version
    case method
    case requestTarget
    /// No `Host`, more than one, or an invalid one.
    case host
    /// A body, or a header field that may announce one.
    case body
    case path
    /// No `Upgrade: websocket`, or no `Connection: Upgrade`.
    case upgrade
    /// No `Sec-WebSocket-Version`, more than one, or another than 13.
    case webSocketVersion
    case key
    case malformedSubprotocols
    case subprotocol
    case malformedExtensions
    case origin
    /// The application's answer: a status of 300 to 599, header fields, and a text.
    case application(status: Int, headers: HTTPFields, text: String)

    /// The status of the answer.
    package var status: Int {
        switch self {
        case .headTooLong: 431
        case .path: 404
        case .upgrade, .webSocketVersion: 426
        case .origin: 403
        case .application(let status, _, _): status
        default: 400
        }
    }
}

extension OpeningRejection: CustomStringConvertible {
    /// The text of the answer: one line that quotes nothing of the request.
    package var description: String {
        switch self {
        case .headTooLong: "The request's head is longer than \(HTTPSyntax.maximumHeadLength) bytes."
        case .notHTTP: "This is not HTTP."
        case .malformedHead(let fault): "The request is malformed: \(fault)."
        case .requestLine: "The request line is malformed."
        case .version: "The request is not one of HTTP/1.1."
        case .method: "The method is not GET."
        case .requestTarget: "The request's target is neither a path nor a URL."
        case .host: "The header field Host is missing, repeated or malformed."
        case .body: "The request has a body."
        case .path: "There is no WebSocket at this path."
        case .upgrade: "The header fields Upgrade: websocket and Connection: Upgrade are needed."
        case .webSocketVersion: "The header field Sec-WebSocket-Version: 13 is needed."
        case .key: "The header field Sec-WebSocket-Key is missing, repeated, or not 16 bytes in Base64."
        case .malformedSubprotocols: "The header field Sec-WebSocket-Protocol is malformed."
        case .subprotocol: "The header field Sec-WebSocket-Protocol offers no subprotocol of this server."
        case .malformedExtensions: "The header field Sec-WebSocket-Extensions is malformed."
        case .origin: "Pages of this origin may not connect."
        case .application(_, _, let text): text
        }
    }

    /// The answer's bytes. The connection closes after them.
    package func encode() -> ByteBuffer {
        let text = self.description + "\n"
        var buffer = ByteBuffer()
        buffer.writeString("HTTP/1.1 \(self.status) \(HTTPSyntax.reason(self.status))\r\n")
        if self.status == 426 {
            // An Upgrade has to be listed in Connection (RFC 9110, section 7.8).
            buffer.writeField("Upgrade", "websocket")
            buffer.writeField("Sec-WebSocket-Version", "13")
            buffer.writeField("Connection", "close, Upgrade")
        } else {
            buffer.writeField("Connection", "close")
        }
        var hasType = false
        if case .application(_, let headers, _) = self {
            buffer.writeFields(headers)
            hasType = headers.contains("Content-Type")
        }
        if !hasType { buffer.writeField("Content-Type", "text/plain; charset=utf-8") }
        buffer.writeField("Content-Length", "\(text.utf8.count)")
        buffer.writeStaticString("\r\n")
        buffer.writeString(text)
        return buffer
    }
}
