import DequeModule

/// Frames that wait for the peer to read, first in, first out, bounded in bytes.
struct FrameQueue {
    private var frames: Deque<Frame> = []
    /// What the queued frames take on the wire.
    private(set) var bytes = 0

    var isEmpty: Bool { self.frames.isEmpty }

    /// False if the frame would exceed `limit` bytes. Into an empty queue a frame of any size goes.
    mutating func append(_ frame: Frame, limit: Int) -> Bool {
        let length = Self.length(of: frame)
        guard self.frames.isEmpty || self.bytes + length <= limit else { return false }
        self.frames.append(frame)
        self.bytes += length
        return true
    }

    mutating func popFirst() -> Frame? {
        guard let frame = self.frames.popFirst() else { return nil }
        self.bytes -= Self.length(of: frame)
        return frame
    }

    private static func length(of frame: Frame) -> Int {
        FrameDirection.request.headerLength + frame.payload.readableBytes + Frame.trailerLength
    }
}
