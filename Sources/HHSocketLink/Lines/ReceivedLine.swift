// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A line that has arrived, without its delimiter.
public struct ReceivedLine: Hashable, Sendable {
    public package(set) var bytes: ByteBuffer

    package init(bytes: ByteBuffer) {
        self.bytes = bytes
    }

    /// The line as text.
    ///
    /// - Throws: ``SocketError`` with code `decodingFailed` if it is not UTF-8.
    public var text: String {
        get throws(SocketError) {
            guard self.bytes.isUTF8 else {
                throw SocketError(
                    .decodingFailed,
                    message: "a line of \(self.bytes.readableBytes) bytes is not UTF-8; read it as bytes",
                    delivery: .answered
                )
            }
            return String(buffer: self.bytes)
        }
    }
}

/// Lines that arrive, in order: as text, or in another form. While 256 of them, or 1 MiB, wait to be read, nothing more
/// is read from the network.
///
/// Of the lines as text, one that is not UTF-8 is skipped, and reported by ``LineLink/Event/unreadable(_:)``.
public struct ReceivedLines<Element: Sendable>: AsyncSequence, Sendable {
    public typealias Failure = Never

    package let inbox: Inbox<ReceivedLine>
    /// Nil for a line that is skipped.
    private let transform: @Sendable (ReceivedLine) -> Element?

    package init(_ inbox: Inbox<ReceivedLine>, _ transform: @escaping @Sendable (ReceivedLine) -> Element?) {
        self.inbox = inbox
        self.transform = transform
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let reader: Inbox<ReceivedLine>.Reader
        fileprivate let transform: @Sendable (ReceivedLine) -> Element?

        public mutating func next() async -> Element? { await self.next(isolation: nil) }

        /// Waits for the next line; nil if there are no more.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
            while let line = await self.reader.next(isolation: actor) {
                if let element = self.transform(line) { return element }
            }
            return nil
        }
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(reader: self.inbox.makeReader(), transform: self.transform)
    }
}

extension ReceivedLines<String> {
    /// The lines as bytes.
    public var bytes: ReceivedLines<ByteBuffer> { ReceivedLines<ByteBuffer>(self.inbox) { $0.bytes } }

    /// The lines as text, with an error in place of each that is not UTF-8.
    public var results: ReceivedLines<Result<String, SocketError>> {
        ReceivedLines<Result<String, SocketError>>(self.inbox) { line in
            Result<String, SocketError> { () throws(SocketError) in try line.text }
        }
    }
}

extension ReceivedLine: InboxElement {
    @usableFromInline package var memory: Int { self.bytes.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) { self.bytes = self.bytes.detached }
}
