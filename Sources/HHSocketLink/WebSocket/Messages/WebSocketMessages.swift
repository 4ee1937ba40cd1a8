// SPDX-License-Identifier: Apache-2.0
package typealias WebSocketInbox = Inbox<WebSocketMessage>

extension WebSocketMessage: InboxElement {
    @usableFromInline package var memory: Int { self.payload.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) {
        // Small messages are in blocks of 1 KiB, most of which have several.
        guard isOneOfMany || self.payload.readableBytes > WebSocketDecoder.copyLimit else { return }
        self.payload = self.payload.detached
    }
}

/// The messages of a WebSocket, in order. While 256 of them, or 1 MiB, wait to be read, nothing more is read from the
/// network. With several readers each message goes to one of them.
public struct WebSocketMessages: AsyncSequence, Sendable {
    public typealias Failure = Never

    let inbox: WebSocketInbox

    package init(_ inbox: WebSocketInbox) {
        self.inbox = inbox
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        let reader: WebSocketInbox.Reader

        public mutating func next() async -> WebSocketMessage? { await self.reader.next(isolation: nil) }

        /// Waits for the next message; nil if there are no more.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> WebSocketMessage? {
            await self.reader.next(isolation: actor)
        }
    }

    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(reader: self.inbox.makeReader()) }
}
