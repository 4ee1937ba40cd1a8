// SPDX-License-Identifier: Apache-2.0
/// A frame of ``Socket/send(_:priority:)``, whose writer may have to wait until it is accepted.
final class PendingWrite: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only on the socket thread.
    let frame: Frame
    let priority: FramePriority
    /// The length of the frame on the wire, in bytes; 0 until it is queued.
    fileprivate(set) var length = 0
    private var completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    private(set) var isDone = false

    init(_ frame: Frame, _ priority: FramePriority) {
        self.frame = frame
        self.priority = priority
    }

    /// Sets the handler to notify, once. False if the write was cancelled before, and notified of that.
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

/// Writers that wait for room or for a connection, bounded in bytes.
struct WriterQueue {
    private var line = WaitingLine<PendingWrite>()

    /// The length of the waiting frames on the wire, in bytes.
    var bytes: Int { self.line.bytes }
    var isEmpty: Bool { self.line.isEmpty }

    /// Returns false if the frame would exceed `limit` bytes. An empty queue accepts a frame of any size.
    mutating func append(_ write: PendingWrite, length: Int, limit: Int) -> Bool {
        guard self.isEmpty || length <= limit - self.bytes else { return false }
        write.length = length
        self.line.append(write, write.priority, cost: length)
        return true
    }

    /// The first one, if a frame of its length fits. The caller completes it.
    mutating func popFirst(where fits: (Int) -> Bool = { _ in true }) -> PendingWrite? {
        self.line.popFirst(where: fits, unless: { $0.isDone })
    }

    /// Completes a write that waits no longer.
    mutating func cancel(_ write: PendingWrite) {
        guard !write.isDone else { return }
        write.complete(.failure(PendingWrite.cancelled(write.frame)))
        guard write.length > 0 else { return }
        self.line.makeStub(cost: write.length) { $0.isDone }
    }

    /// Completes all of them with the same error.
    mutating func failAll(_ error: SocketError) {
        while let write = self.popFirst() {
            var error = error
            error.serial = write.frame.serial
            error.delivery = .notSent
            write.complete(.failure(error))
        }
    }
}
