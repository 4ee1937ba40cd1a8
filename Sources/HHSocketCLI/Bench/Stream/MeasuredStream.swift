// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import HHSocketRPC
import NIOCore

/// The streams that one Swift task opens, one after another, with its checks: the length of each item, and the number
/// of items on a stream that has ended.
final class MeasuredStream: Sendable {
    /// The greatest number of items that the server is asked for on one stream.
    private static let largestCount = 1_000_000
    private static let largestLength = 1 << 30

    let counter = StreamCounter()
    private let client: SocketClient
    private let direction: StreamDirection
    private let item: ByteBuffer
    /// Covers a stream, so that none hangs.
    private let timeout: Duration
    /// Whether the measurement is over.
    private let isOver: ManagedAtomic<Bool>

    init(
        _ client: SocketClient,
        direction: StreamDirection,
        item: ByteBuffer,
        timeout: Duration,
        isOver: ManagedAtomic<Bool>
    ) {
        self.client = client
        self.direction = direction
        self.item = item
        self.timeout = timeout
        self.isOver = isOver
    }

    /// Opens a stream of one item, and checks the result.
    func check() async throws {
        let stream = try await self.open(count: 1)
        var sending: SocketError?
        if self.direction != .down {
            do throws(SocketError) {
                try await stream.send(self.item)
                stream.finish()
            } catch {
                // The server's answer is more specific than the fact that it accepts no items.
                sending = error
            }
        }
        let count = try await self.takeItems(of: stream) { _ in true }
        try await self.checkEnd(of: stream, sent: 1, taken: count)
        if let sending { throw sending }
    }

    /// Sends items until the measurement is over.
    ///
    /// - Throws: ``EchoFailure`` if a stream fails or breaks an expectation.
    func run() async throws {
        do {
            switch self.direction {
            case .down: while try await self.receive() {}
            case .up: try await self.send()
            case .both: try await self.exchange()
            }
        } catch let error as SocketError {
            throw EchoFailure(error)
        }
    }

    private var continues: Bool { !self.isOver.load(ordering: .relaxed) }

    private func open(count: Int) async throws(SocketError) -> SocketStream {
        let size = self.item.readableBytes
        let body = self.direction == .down ? ByteBuffer(string: "\(count) \(size)") : ByteBuffer()
        var request = SocketRequest(type: self.direction.type, body: body)
        request.timeout = self.timeout
        return try await self.client.stream(for: request, kind: self.direction.kind)
    }

    /// - Returns: Whether the measurement continues.
    private func receive() async throws -> Bool {
        let count = max(1, min(Self.largestCount, Self.largestLength / max(1, self.item.readableBytes)))
        let stream = try await self.open(count: count)
        let (counter, isOver) = (self.counter, self.isOver)
        let taken = try await self.takeItems(of: stream) { _ in
            counter.add()
            return !isOver.load(ordering: .relaxed)
        }
        guard self.continues else {
            stream.cancel()
            return false
        }
        try await self.checkEnd(of: stream, sent: count, taken: taken)
        return true
    }

    private func send() async throws {
        let stream = try await self.open(count: 0)
        var count = 0
        let item = self.item
        while self.continues {
            try await stream.send(item)
            count += 1
            self.counter.add()
        }
        stream.finish()
        try await self.checkEnd(of: stream, sent: count, taken: 0)
    }

    private func exchange() async throws {
        let stream = try await self.open(count: 0)
        async let sent = self.sendAll(on: stream)
        let counter = self.counter
        let taken = try await self.takeItems(of: stream) { _ in
            counter.add()
            return true
        }
        try await self.checkEnd(of: stream, sent: try await sent, taken: taken)
    }

    private func sendAll(on stream: SocketStream) async throws -> Int {
        var count = 0
        let item = self.item
        while self.continues {
            try await stream.send(item)
            count += 1
        }
        stream.finish()
        return count
    }

    /// - Parameter continues: Called with each item; returns whether another is wanted.
    /// - Returns: The number of items.
    private func takeItems(of stream: SocketStream, _ continues: (ByteBuffer) -> Bool) async throws -> Int {
        let length = self.item.readableBytes
        var count = 0
        for try await item in stream.items {
            count += 1
            guard item.readableBytes == length else {
                throw EchoFailure("item \(count) has \(item.readableBytes) bytes instead of \(length)")
            }
            guard continues(item) else { break }
        }
        return count
    }

    private func checkEnd(of stream: SocketStream, sent: Int, taken: Int) async throws {
        let answer = try await stream.response.string
        let (what, expected) =
            switch self.direction {
            case .down, .both: ("\(taken)", "\(sent)")
            case .up: (answer, "\(sent) \(sent * self.item.readableBytes)")
            }
        guard what == expected else {
            let numbers = self.direction == .up ? "items and bytes" : "items"
            throw EchoFailure("wrong number of \(numbers) on a stream: \(what), and not \(expected)")
        }
    }
}
