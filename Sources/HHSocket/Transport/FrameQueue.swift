import DequeModule

/// Frames that wait for the peer to read, first in, first out, bounded in bytes.
struct FrameQueue {
    private let encoder: FrameEncoder
    private var frames: Deque<Frame> = []
    /// What the queued frames take on the wire.
    private(set) var bytes = 0

    init(_ encoder: FrameEncoder) {
        self.encoder = encoder
    }

    var isEmpty: Bool { self.frames.isEmpty }

    /// False if the frame would exceed `limit` bytes. Into an empty queue a frame of any size goes.
    mutating func append(_ frame: Frame, limit: Int) -> Bool {
        let length = self.length(of: frame)
        guard self.frames.isEmpty || self.bytes + length <= limit else { return false }
        self.frames.append(frame)
        self.bytes += length
        return true
    }

    mutating func popFirst() -> Frame? {
        guard let frame = self.frames.popFirst() else { return nil }
        self.bytes -= self.length(of: frame)
        return frame
    }

    mutating func removeAll() {
        self.frames = []
        self.bytes = 0
    }

    private func length(of frame: Frame) -> Int {
        self.encoder.encodedLength(payloadLength: frame.payload.readableBytes)
    }
}
