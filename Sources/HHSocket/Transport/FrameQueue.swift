/// Frames that wait for the peer to read, highest priority first, bounded in bytes.
struct FrameQueue {
    private let encoder: FrameEncoder
    private var frames = PriorityQueue<Frame>()
    /// What the queued frames take on the wire.
    private(set) var bytes = 0

    init(_ encoder: FrameEncoder) {
        self.encoder = encoder
    }

    var isEmpty: Bool { self.frames.isEmpty }

    /// False if the frame would exceed `limit` bytes. Into an empty queue a frame of any size goes.
    mutating func append(_ frame: Frame, _ priority: FramePriority, limit: Int) -> Bool {
        let length = self.encoder.encodedLength(of: frame)
        guard self.frames.isEmpty || length <= limit - self.bytes else { return false }
        self.frames.append(frame, priority)
        self.bytes += length
        return true
    }

    mutating func popFirst() -> Frame? {
        guard let frame = self.frames.popFirst() else { return nil }
        self.bytes -= self.encoder.encodedLength(of: frame)
        return frame
    }

    mutating func removeAll() {
        self.frames = PriorityQueue()
        self.bytes = 0
    }
}
