import DequeModule
import NIOCore

/// Pushes that wait for one client, which is behind.
struct PushQueue: Sendable {
    private var waiting: Deque<ByteBuffer> = []
    private(set) var bytes = 0
    private let maximumCount: Int
    private let maximumBytes: Int

    init(maximumCount: Int, maximumBytes: Int) {
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
    }

    var isEmpty: Bool { self.waiting.isEmpty }
    var count: Int { self.waiting.count }

    /// Whether the frame was taken. One may always wait.
    mutating func append(_ frame: ByteBuffer) -> Bool {
        guard
            self.waiting.isEmpty
                || (self.waiting.count < self.maximumCount && self.bytes + frame.readableBytes <= self.maximumBytes)
        else { return false }
        self.waiting.append(frame)
        self.bytes += frame.readableBytes
        return true
    }

    mutating func popFirst() -> ByteBuffer? {
        guard let frame = self.waiting.popFirst() else { return nil }
        self.bytes -= frame.readableBytes
        return frame
    }

    mutating func removeAll() {
        self.waiting = []
        self.bytes = 0
    }
}
