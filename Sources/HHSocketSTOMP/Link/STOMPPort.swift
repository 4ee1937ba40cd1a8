// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The session of a client's connections, as far as the client's owners use it.
protocol STOMPSession: AnyObject {
    /// Sends a unit: now, or once there is a connection.
    func send(_ unit: STOMPUnit, in turn: inout Turn)
    /// The sender stops waiting. A unit whose sending has begun continues.
    func cancel(_ outcome: MessageOutcome, with error: SocketError)
    /// Checks again whether to read. Any thread.
    func updateReading()
}

/// The way from a client's owners to its session and its thread, which may have ended.
final class STOMPPort: @unchecked Sendable {
    // Proof of Sendable: the constant is Sendable, and so are the weak references, which are set before the first
    // submission.
    private let callbackQueue: CallbackQueue
    private weak var session: (any STOMPSession)?
    private weak var driver: Driver?

    init(_ configuration: STOMPConfiguration) {
        self.callbackQueue = configuration.socket.callbackQueue
    }

    func attach(_ session: any STOMPSession, _ driver: Driver) {
        self.session = session
        self.driver = driver
    }

    // MARK: From any thread

    /// Runs `body` on the socket's thread: immediately if called there by a handler.
    ///
    /// - Returns: False if the thread has ended.
    @discardableResult
    func perform(_ body: @escaping @Sendable (inout Turn) -> Void) -> Bool {
        guard let driver = self.driver else { return false }
        let isDone = driver.loop.ifHandlersRun { turn in
            body(&turn)
            return true
        }
        return isDone || driver.submit(body)
    }

    /// Calls a completion on the callback queue.
    func complete(_ completion: STOMPOperation.Completion?, _ result: Result<Void, SocketError>) {
        guard let completion else { return }
        let queue = self.callbackQueue
        guard let loop = self.driver?.loop else { return queue.run { completion(result) } }
        queue.run(on: loop) { completion(result) }
    }

    // MARK: Driver

    var loop: SocketLoop? { self.driver?.loop }

    /// The reason why there will be no connection; nil if there may be one.
    var refusal: SocketError? {
        guard let driver = self.driver else { return STOMPErrors.released }
        return driver.isClosed ? driver.notConnected() : nil
    }

    /// Whether attempts to connect have stopped for good: a driver that has run out tries again by itself.
    var hasStopped: Bool { self.driver.map { !$0.hasRunOut } ?? false }

    /// The last failure of an attempt to connect.
    var lastError: SocketError? { self.driver?.lastError }

    // MARK: Session

    /// Sends a unit that may wait for a connection.
    ///
    /// - Returns: False if the client was released.
    func send(_ unit: STOMPUnit, in turn: inout Turn) -> Bool {
        guard let session = self.session else { return false }
        session.send(unit, in: &turn)
        return true
    }

    func cancel(_ outcome: MessageOutcome, with error: SocketError) { self.session?.cancel(outcome, with: error) }

    func updateReading() { self.session?.updateReading() }
}
