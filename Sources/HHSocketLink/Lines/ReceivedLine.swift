// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A line that has arrived, without its delimiter.
public struct ReceivedLine: Hashable, Sendable {
    public var bytes: ByteBuffer

    public init(bytes: ByteBuffer) {
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

/// Lines as text, in order. While 256 of them, or 1 MiB, wait to be read, nothing more is read from the network. A
/// line that is not UTF-8 is skipped, and reported by ``LineLink/Event/unreadable(_:)``.
public struct ReceivedLines: AsyncSequence, Sendable {
    public typealias Element = String
    public typealias Failure = Never

    package let inbox: Inbox<ReceivedLine>
    let report: @Sendable (SocketError) -> Void

    package init(inbox: Inbox<ReceivedLine>, report: @escaping @Sendable (SocketError) -> Void) {
        self.inbox = inbox
        self.report = report
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        let reader: Inbox<ReceivedLine>.Reader
        let report: @Sendable (SocketError) -> Void

        public mutating func next() async -> String? { await self.next(isolation: nil) }

        /// Waits for the next line; nil if there are no more.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> String? {
            while let line = await self.reader.next(isolation: actor) {
                do throws(SocketError) {
                    return try line.text
                } catch {
                    self.report(error)
                }
            }
            return nil
        }
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(reader: self.inbox.makeReader(), report: self.report)
    }

    /// The lines as bytes.
    public var bytes: ReceivedLineViews<ByteBuffer> { ReceivedLineViews(self.inbox) { $0.bytes } }

    /// The lines as text, with an error in place of each that is not UTF-8.
    public var results: ReceivedLineViews<Result<String, SocketError>> {
        ReceivedLineViews(self.inbox) { line in Result { () throws(SocketError) in try line.text } }
    }
}

/// Lines in another form than text, in order. While 256 of them, or 1 MiB, wait to be read, nothing more is read
/// from the network.
public struct ReceivedLineViews<Element: Sendable>: AsyncSequence, Sendable {
    public typealias Failure = Never

    private let inbox: Inbox<ReceivedLine>
    private let transform: @Sendable (ReceivedLine) -> Element

    package init(_ inbox: Inbox<ReceivedLine>, _ transform: @escaping @Sendable (ReceivedLine) -> Element) {
        self.inbox = inbox
        self.transform = transform
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        fileprivate let reader: Inbox<ReceivedLine>.Reader
        fileprivate let transform: @Sendable (ReceivedLine) -> Element

        public mutating func next() async -> Element? { await self.next(isolation: nil) }

        /// Waits for the next line; nil if there are no more.
        public mutating func next(isolation actor: isolated (any Actor)?) async -> Element? {
            await self.reader.next(isolation: actor).map(self.transform)
        }
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(reader: self.inbox.makeReader(), transform: self.transform)
    }
}

extension ReceivedLine: InboxElement {
    @usableFromInline package var memory: Int { self.bytes.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) { self.bytes = self.bytes.detached }
}
