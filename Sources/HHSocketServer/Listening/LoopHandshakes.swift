// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOCore

/// A connection whose TLS handshake waits in line.
protocol WaitingHandshake: AnyObject {
    func admitted(_ number: UInt64)
    func close()
}

/// The TLS handshakes of one event loop, which begin one after the other.
///
/// The queue divides the event loop's time and ends no connection, so its clock is the system's, also where clients are
/// judged by another one.
final class LoopHandshakes: Sendable {
    private struct State {
        var queue: HandshakeQueue<any WaitingHandshake>
        var timer: (deadline: NIODeadline, id: SocketLoop.TimerID)?
        /// Whether the server shuts down, so that no turns follow.
        var isOver = false
    }

    private let socketLoop: SocketLoop
    private let state: NIOLoopBoundBox<State>
    private let waiting = ManagedAtomic(0)

    init(_ socketLoop: SocketLoop, maximum: Int) {
        self.socketLoop = socketLoop
        self.state = .makeBoxSendingValue(
            State(queue: HandshakeQueue(maximum: maximum)),
            eventLoop: socketLoop.eventLoop
        )
    }

    /// The connections that wait in line. Any thread.
    var waitingCount: Int { self.waiting.load(ordering: .relaxed) }

    // MARK: On the event loop

    /// - Returns: The number of a handshake that may begin at once; nil: the connection has to wait.
    func enter() -> UInt64? { self.state.value.queue.enter(now: .now()) }

    /// - Parameter address: The client's, if it is known: addresses alternate.
    func wait(_ wait: any WaitingHandshake, of address: ClientAddress?) -> UInt64 {
        let origin = address.map { UInt64(bitPattern: Int64($0.hashValue)) } ?? 0
        let number = self.state.value.queue.wait(wait, of: origin)
        self.changed()
        return number
    }

    /// A handshake has ended, or a waiting connection has gone.
    func remove(_ number: UInt64) {
        self.state.value.queue.remove(number)
        self.beginNext()
    }

    private func beginNext() {
        while !self.state.value.isOver, let next = self.state.value.queue.next(now: .now()) {
            next.element.admitted(next.number)
        }
        self.changed()
    }

    private func changed() {
        self.waiting.store(self.state.value.queue.waitingCount, ordering: .relaxed)
        let deadline = self.state.value.isOver ? nil : self.state.value.queue.wakesAt
        // One that rings too early sets another.
        if let timer = self.state.value.timer, let deadline, timer.deadline <= deadline { return }
        if let timer = self.state.value.timer {
            self.socketLoop.removeTimer(timer.id)
            self.state.value.timer = nil
        }
        guard let deadline else { return }
        let id = self.socketLoop.pause(until: deadline) { _ in
            self.state.value.timer = nil
            self.state.value.queue.woke(for: deadline, now: .now())
            self.beginNext()
        }
        self.state.value.timer = (deadline, id)
    }

    /// Closes the connections that wait.
    func closeWaiting() {
        self.state.value.isOver = true
        for wait in self.state.value.queue.allWaiting { wait.close() }
    }
}
