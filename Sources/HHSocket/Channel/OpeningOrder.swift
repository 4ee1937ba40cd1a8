// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The order of attempts that open a WebSocket: one at a time, since only the winner of a race opens one. The next
/// attempt begins when the previous one has failed.
struct OpeningOrder {
    private var current: ConnectionID?
    private var waiting: [(id: ConnectionID, promise: EventLoopPromise<Void>)] = []

    /// Completes when it is this attempt's turn; fails if it is abandoned before.
    mutating func begin(_ id: ConnectionID, on eventLoop: any EventLoop) -> EventLoopFuture<Void> {
        guard let current = self.current, current != id else {
            self.current = id
            return eventLoop.makeSucceededVoidFuture()
        }
        let promise = eventLoop.makePromise(of: Void.self)
        self.waiting.append((id, promise))
        return promise.futureResult
    }

    /// The attempt has an end.
    mutating func finish(_ id: ConnectionID) {
        if let index = self.waiting.firstIndex(where: { $0.id == id }) {
            // Removed first: the promise's callback may request another opening.
            let promise = self.waiting.remove(at: index).promise
            promise.futureResult.eventLoop.execute { promise.fail(CancellationError()) }
        }
        guard self.current == id else { return }
        self.current = nil
        guard !self.waiting.isEmpty else { return }
        let next = self.waiting.removeFirst()
        self.current = next.id
        next.promise.futureResult.eventLoop.execute { next.promise.succeed() }
    }
}
