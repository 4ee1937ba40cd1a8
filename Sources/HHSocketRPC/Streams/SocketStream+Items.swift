// SPDX-License-Identifier: Apache-2.0
import Atomics
public import HHSocket
public import NIOCore

extension SocketStream {
    /// The items that the server sends, for one reader: while it waits for the next item, another one fails with
    /// `invalidArgument`.
    ///
    /// The sequence ends with nil after status 200, and throws the stream's error otherwise, after the items that
    /// arrived before, unless the stream was cancelled. An iterator takes all available items at once, and returns them
    /// without locks and thread hops. An item counts as taken when ``Iterator/next()`` returns it.
    public struct Items: AsyncSequence, Sendable {
        public typealias Failure = SocketError

        let stream: SocketStream

        /// An iterator over the items of a stream.
        public struct Iterator: AsyncIteratorProtocol {
            private let reading: ItemReading

            init(_ stream: SocketStream) {
                self.reading = ItemReading(stream)
            }

            var stream: SocketStream { self.reading.stream }

            /// Waits for and returns the next item; nil once the server has ended the stream with status 200.
            public mutating func next() async throws(SocketError) -> ByteBuffer? { try await self.next(isolation: nil) }

            /// Waits where the caller runs, and returns the next item; nil once the server has ended the stream with
            /// status 200.
            public mutating func next(
                isolation actor: isolated (any Actor)? = #isolation
            ) async throws(SocketError) -> ByteBuffer? {
                try await self.reading.next(isolation: actor)
            }
        }

        public func makeAsyncIterator() -> Iterator { Iterator(self.stream) }
    }
}

/// A reader of a stream's items, for one task at a time.
final class ItemReading {
    let stream: SocketStream
    private let reader: Inbox<StreamItem>.Reader
    /// The taken items that were not reported.
    private var taken = ItemReceipt()
    private var limits: (quiet: UInt64, most: UInt64) = (0, 0)

    init(_ stream: SocketStream) {
        self.stream = stream
        self.reader = stream.call.port.inbox.makeReader()
    }

    deinit {
        if self.taken != ItemReceipt() { self.stream.call.report(self.taken) }
    }

    func next(isolation: isolated (any Actor)?) async throws(SocketError) -> ByteBuffer? {
        let call = self.stream.call
        while true {
            if call.isCancelled.load(ordering: .relaxed) { self.reader.drop() }
            if let item = self.reader.pop() { return try self.got(item) }
            var item = self.reader.take()
            if item == nil { item = await self.reader.waitForElement(isolation: isolation) }
            if let item {
                self.limits = call.state.withLockedValue { $0.reportLimits }
                return try self.got(item)
            }
            switch self.reader.absence {
            case .over: break
            // Cancels the stream, too.
            case .cancelled: await self.stream.wait(isolation: isolation) { call.awaitEnd($0) }
            case .busy:
                throw SocketError(
                    .invalidArgument,
                    message: "the items of a stream are for one reader, and another one waits for the next"
                )
            }
            guard let end = call.end else { continue }
            _ = try end.get()
            return nil
        }
    }

    private func got(_ item: StreamItem) throws(SocketError) -> ByteBuffer {
        self.took(item.receipt)
        return try self.body(of: item)
    }

    private func body(of item: StreamItem) throws(SocketError) -> ByteBuffer {
        guard item.isCompressed else { return item.payload }
        do throws(SocketError) {
            return try self.stream.call.body(of: item)
        } catch {
            self.stream.call.fail(error)
            self.stream.call.discardItems()
            throw error
        }
    }

    private func took(_ receipt: ItemReceipt) {
        self.taken += receipt
        let isAtEnd = !self.reader.hasElement
        guard self.taken.cost >= self.limits.most || isAtEnd && self.taken.cost > self.limits.quiet else { return }
        self.stream.call.report(self.taken)
        self.taken = ItemReceipt()
    }
}
