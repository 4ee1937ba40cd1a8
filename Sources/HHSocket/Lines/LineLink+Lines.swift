// SPDX-License-Identifier: Apache-2.0
public import NIOCore

extension LineLink {
    /// A line that has arrived, without its delimiter.
    public struct Line: Hashable, Sendable {
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
    public struct Lines: AsyncSequence, Sendable {
        public typealias Element = String
        public typealias Failure = Never

        let inbox: Inbox<Line>
        let report: @Sendable (SocketError) -> Void

        public struct AsyncIterator: AsyncIteratorProtocol {
            let reader: Inbox<Line>.Reader
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
        public var bytes: LineViews<ByteBuffer> { LineViews(self.inbox) { $0.bytes } }

        /// The lines as text, with an error in place of each that is not UTF-8.
        public var results: LineViews<Result<String, SocketError>> {
            LineViews(self.inbox) { line in Result { () throws(SocketError) in try line.text } }
        }
    }

    /// Lines in another form than text, in order. While 256 of them, or 1 MiB, wait to be read, nothing more is read
    /// from the network.
    public struct LineViews<Element: Sendable>: AsyncSequence, Sendable {
        public typealias Failure = Never

        private let inbox: Inbox<Line>
        private let transform: @Sendable (Line) -> Element

        init(_ inbox: Inbox<Line>, _ transform: @escaping @Sendable (Line) -> Element) {
            self.inbox = inbox
            self.transform = transform
        }

        public struct AsyncIterator: AsyncIteratorProtocol {
            fileprivate let reader: Inbox<Line>.Reader
            fileprivate let transform: @Sendable (Line) -> Element

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
}

extension LineLink.Line: InboxElement {
    @usableFromInline package var memory: Int { self.bytes.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) { self.bytes = self.bytes.detached }
}
