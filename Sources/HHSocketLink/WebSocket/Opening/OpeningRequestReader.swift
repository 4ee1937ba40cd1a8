// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Reads an opening request at a server, however the byte stream was split.
///
/// ```swift
/// reader.append(bytes)
/// if let head = try reader.next() { … }
/// ```
/// Answer a rejection with its ``OpeningRejection/encode()``, after which the connection closes.
package struct OpeningRequestReader: Sendable {
    private var heads = HTTPHeadReader<OpeningRejection>(.request)

    package init() {}

    /// Adds bytes. They are copied only if unread ones precede them.
    package mutating func append(_ bytes: ByteBuffer) {
        self.heads.append(bytes)
    }

    /// Returns the request's head; nil if it is incomplete. Not called again once it has returned one, or thrown.
    package mutating func next() throws(OpeningRejection) -> OpeningRequestHead? {
        guard let head = try self.heads.next() else { return nil }
        return try OpeningRequestHead(head)
    }

    /// The memory of the bytes that are held, which are those of an incomplete head or follow it.
    package var heldBytes: Int { self.heads.heldBytes }

    /// Removes the bytes after the head. A client must not send any before it has the answer, but those that arrived
    /// belong to the WebSocket.
    package mutating func takeRest() -> ByteBuffer {
        self.heads.takeRest()
    }
}
