// SPDX-License-Identifier: Apache-2.0
package import HHSocket
public import NIOCore

/// A message or a control frame of a WebSocket that a mock or a hostile client has received.
public enum WebSocketContent: Hashable, Sendable {
    case text(String)
    case binary(ByteBuffer)
    case ping(ByteBuffer)
    case pong(ByteBuffer)
    /// A close frame; the code is nil if it has none.
    case close(code: UInt16?, reason: String)
    /// A description of bytes that break RFC 6455. Nothing after them is read.
    case violation(String)

    /// The text of a text message; nil for anything else.
    public var text: String? {
        if case .text(let text) = self { text } else { nil }
    }

    /// The message; nil for control frames and violations.
    package var message: WebSocketMessage? {
        switch self {
        case .text(let text): WebSocketMessage(text)
        case .binary(let bytes): WebSocketMessage(.binary, bytes)
        default: nil
        }
    }

    /// The code of a close frame; nil for anything else, and for a close frame without one.
    public var closeCode: UInt16? {
        if case .close(let code, _) = self { code } else { nil }
    }
}

extension WebSocketContent {
    init(_ input: WebSocketInput) {
        switch input {
        case .message(.text, let bytes): self = .text(String(buffer: bytes))
        case .message(.binary, let bytes), .bytes(let bytes): self = .binary(bytes)
        case .ping(let payload): self = .ping(payload)
        case .pong(let payload): self = .pong(payload)
        case .close(let close): self = .close(code: close.code, reason: close.reason)
        }
    }
}

extension WebSocketContent: SummarizedEvent {
    var summary: String {
        switch self {
        case .text(let text): "text \"\(text.prefix(40))\""
        case .binary(let bytes): "binary of \(bytes.readableBytes) B"
        case .ping(let payload): "ping of \(payload.readableBytes) B"
        case .pong(let payload): "pong of \(payload.readableBytes) B"
        case .close(let code, let reason): "close \(code.map { "\($0)" } ?? "without a code") \(reason)"
        case .violation(let why): "violation: \(why)"
        }
    }
}
