// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import HHSocketRPC
import NIOCore

/// The messages of one connection, each of which is replaced by another one when it has come back. Performs the
/// decisions of ``EchoCalls``.
final class MessageLoop<Link: BenchedLink>: EchoLoop, @unchecked Sendable {
    // Proof of Sendable: constants are Sendable; variables are used only on the socket's thread. Other threads get
    // there through its event loop.

    private let connection: EchoConnection<Link>
    private let published = ManagedAtomic(0)
    private var calls: EchoCalls
    /// The slots of the messages in flight, in the order in which they come back.
    private var order: CircularBuffer<Int>
    private var whenOver: CheckedContinuation<EchoTally, any Error>?

    /// - Parameters:
    ///   - connection: An open connection.
    ///   - inFlight: The number of messages that are in flight at once.
    init(_ connection: EchoConnection<Link>, inFlight: Int, _ tally: EchoTally) {
        self.connection = connection
        self.calls = EchoCalls(body: connection.body, inFlight: inFlight, tally: tally, schedule: nil)
        self.order = CircularBuffer(initialCapacity: inFlight)
    }

    var callsSoFar: Int { self.published.load(ordering: .relaxed) }

    func run() async throws -> EchoTally {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                self.perform { self.begin(continuation) }
            }
        } onCancel: {
            self.perform {
                self.calls.stop(at: Uptime.now)
                self.giveUp(EchoFailure("interrupted"))
            }
        }
    }

    private func perform(_ body: @escaping @Sendable () -> Void) { self.connection.eventLoop.execute(body) }

    // MARK: On the socket's thread

    private func begin(_ continuation: CheckedContinuation<EchoTally, any Error>) {
        self.whenOver = continuation
        self.poll(Uptime.now)
        // Behind the sends: a link that is lost already loses them.
        self.connection.receive({ self.arrived($0) }, onFailure: { self.giveUp($0) })
    }

    private func arrived(_ bytes: ByteBuffer) {
        let now = Uptime.now
        guard let slot = self.order.popFirst() else { return }
        if self.calls.continues(slot, with: bytes, now: now) {
            self.send(self.calls.request(of: slot, at: now), slot)
            self.published.store(self.calls.tally.calls, ordering: .relaxed)
        } else {
            self.poll(now)
        }
    }

    @inline(__always)
    private func send(_ request: consuming SocketRequest, _ slot: Int) {
        self.order.append(slot)
        self.connection.send(request.body)
    }

    /// Sends what is due, and ends the loop once everything has come back.
    private func poll(_ now: UInt64) {
        while let start = self.calls.nextStart(now) { self.send(start.request, start.slot) }
        if self.calls.isGivenUp { self.giveUp(EchoFailure("given up")) }
        if self.calls.isOver { self.end() }
    }

    /// Waits for nothing any more: the first failure is the result, unless the loop was stopped before.
    private func giveUp(_ failure: EchoFailure) {
        while let slot = self.order.popFirst() { self.calls.failed(slot, failure) }
        if self.calls.isOver { self.end() }
    }

    private func end() {
        self.whenOver.take()?.resume(with: Result { try self.calls.result() })
    }
}
