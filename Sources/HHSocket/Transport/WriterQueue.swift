/// A frame whose writer may have to wait before it is taken.
final class PendingWrite: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are touched on the socket thread alone.
    let frame: Frame
    let priority: FramePriority
    /// What the frame takes on the wire.
    fileprivate(set) var length = 0
    private var completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    private(set) var isDone = false

    init(_ frame: Frame, _ priority: FramePriority) {
        self.frame = frame
        self.priority = priority
    }

    /// Says whom to tell, once. False if the write was cancelled before, and has been told so.
    func begin(_ completion: @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Bool {
        guard !self.isDone else {
            completion(.failure(Self.cancelled(self.frame)))
            return false
        }
        self.completion = completion
        return true
    }

    func complete(_ result: Result<Void, SocketError>) {
        guard !self.isDone else { return }
        self.isDone = true
        self.completion?(result)
        self.completion = nil
    }

    static func cancelled(_ frame: Frame) -> SocketError {
        SocketError(.cancelled, message: "the frame was not sent: its writer no longer waits", serial: frame.serial)
    }
}

/// Writers who wait for room or for a connection, highest priority first, bounded in bytes.
struct WriterQueue {
    private var waiting = PriorityQueue<PendingWrite>()
    /// What the frames take on the wire that wait.
    private(set) var bytes = 0
    /// How many are in `waiting` that were cancelled.
    private var cancelled = 0

    var isEmpty: Bool { self.waiting.count == self.cancelled }

    /// False if the frame would exceed `limit` bytes. Into an empty queue a frame of any size goes.
    mutating func append(_ write: PendingWrite, length: Int, limit: Int) -> Bool {
        guard self.isEmpty || length <= limit - self.bytes else { return false }
        write.length = length
        self.waiting.append(write, write.priority)
        self.bytes += length
        return true
    }

    /// The one whose turn it is. The caller completes it.
    mutating func popFirst(where fits: (PendingWrite) -> Bool) -> PendingWrite? {
        while let first = self.waiting.first {
            guard first.isDone || fits(first) else { return nil }
            _ = self.waiting.popFirst()
            if first.isDone {
                self.cancelled -= 1
            } else {
                self.bytes -= first.length
                return first
            }
        }
        return nil
    }

    /// Completes a write that waits no longer. It stays in line as a stub until its turn, or until half of those in line are
    /// stubs.
    mutating func cancel(_ write: PendingWrite) {
        guard !write.isDone else { return }
        write.complete(.failure(PendingWrite.cancelled(write.frame)))
        guard write.length > 0 else { return }
        self.bytes -= write.length
        self.cancelled += 1
        if self.cancelled > 32, self.cancelled * 2 > self.waiting.count {
            self.waiting.removeAll { $0.isDone }
            self.cancelled = 0
        }
    }

    /// Completes all of them with the same error.
    mutating func failAll(_ error: SocketError) {
        while let write = self.popFirst(where: { _ in true }) {
            var error = error
            error.serial = write.frame.serial
            error.delivery = .notSent
            write.complete(.failure(error))
        }
    }
}
