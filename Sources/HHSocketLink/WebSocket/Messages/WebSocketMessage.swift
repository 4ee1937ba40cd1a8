// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A message of a WebSocket.
public struct WebSocketMessage: Hashable, Sendable {
    public enum Kind: Hashable, Sendable {
        /// UTF-8, which is checked as it arrives.
        case text
        case binary
    }

    public package(set) var kind: Kind
    /// The bytes; of a text its UTF-8.
    public package(set) var payload: ByteBuffer

    /// Creates a message of either kind. The payload of a text must be UTF-8: peers close the connection otherwise.
    public init(_ kind: Kind, _ payload: ByteBuffer) {
        self.kind = kind
        self.payload = payload
    }

    /// Creates a text message.
    public init(_ text: String) {
        self.init(.text, ByteBuffer(string: text))
    }

    /// Creates a binary message.
    package init(_ bytes: some Sequence<UInt8>) {
        self.init(.binary, ByteBuffer(bytes: bytes))
    }

    /// Creates a binary message.
    public init(_ payload: ByteBuffer) {
        self.init(.binary, payload)
    }

    /// The text; nil for a binary message.
    public var text: String? { self.kind == .text ? String(buffer: self.payload) : nil }
}

extension WebSocketMessage {
    package var wireKind: WebSocketMessageKind { self.kind == .text ? .text : .binary }

    init(wire kind: WebSocketMessageKind, _ payload: ByteBuffer) {
        self.init(kind == .text ? .text : .binary, payload)
    }
}
