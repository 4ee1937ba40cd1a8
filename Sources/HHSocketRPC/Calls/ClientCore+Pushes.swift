// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import Logging
import NIOCore

/// The state of push delivery.
struct PushDelivery {
    var router = PushRouter()
    /// The queued pushes. The first is being decompressed; the others are delivered after it.
    var line: Deque<ClientCore.WaitingPush> = []
    var lineBytes = 0
    /// The pushes that the delegate has not handled yet.
    let delegateBacklog = CallbackBacklog()
    /// The number of subscribers that are so far behind that reading is suspended.
    var holds = ReadingHolds()
}

/// Delivery of pushes, from the frame to the subscribers.
extension ClientCore {
    /// Subscribes a new mailbox to the pushes of `type`, or of every type if nil, until it is cancelled. Any thread.
    func subscribe(to type: UInt32?, _ policy: PushBufferingPolicy) -> PushMailbox {
        let mailbox = PushMailbox(policy) { [weak self] mailbox, change in
            self?.loop.submit(.closure { [weak self] in self?.mailboxChanged(mailbox, type, change, in: &$0) })
        }
        let isAlive = self.submit(
            .closure { _ in
                if self.isInvalidated {
                    mailbox.finish()
                } else {
                    self.pushes.router.add(mailbox, type)
                }
            }
        )
        if !isAlive { mailbox.finish() }
        return mailbox
    }

    /// Counts and logs an error that a handler of pushes threw. Any thread.
    func pushHandlerFailed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a handler of pushes failed", type, error, \.failedPushHandlers)
    }

    func pushIsMalformed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a push is not a message of its type", type, error, \.malformedPushes)
    }

    /// Counts and logs a push whose envelope cannot be opened. Socket thread only.
    func receivedPush(_ type: UInt32, thatCannotBeRead reason: EnvelopeError, _ endpoint: Endpoint) {
        self.count(\.pushes)
        self.count(\.malformedPushes)
        self.configuration.socket.logger?.warning(
            "a push cannot be read",
            metadata: ["type": "\(type)", "server": "\(endpoint)", "error": "\(reason)"]
        )
    }

    private func pushFailed(
        _ complaint: Logger.Message,
        _ type: UInt32,
        _ error: any Error,
        _ counter: any WritableKeyPath<ClientStatistics, Int> & Sendable
    ) {
        _ = self.submit(
            .closure { _ in
                self.count(counter)
                // Only the error's type: its description may reveal the push's contents.
                self.configuration.socket.logger?.warning(
                    complaint,
                    metadata: ["type": "\(type)", "error": "\(Swift.type(of: error))"]
                )
            }
        )
    }

    private func mailboxChanged(
        _ mailbox: PushMailbox,
        _ type: UInt32?,
        _ change: PushMailbox.Change,
        in turn: inout Turn
    ) {
        if change.isOver { self.pushes.router.remove(mailbox, type) }
        if change.releasesReading { self.releaseReading(in: &turn) }
    }

    /// Suspends reading for one more subscriber that is too far behind, until ``releaseReading(in:)`` is called for it.
    func holdReading(in turn: inout Turn) {
        if self.pushes.holds.hold() { self.driver.perform(.setReading(isSuspended: true), in: &turn) }
    }

    func releaseReading(in turn: inout Turn) {
        if self.pushes.holds.release() { self.driver.perform(.setReading(isSuspended: false), in: &turn) }
    }

    /// Passes a push without a subscriber to the delegate.
    private func notifyDelegate(of push: SocketPush, in turn: inout Turn) {
        guard let (delegate, client) = self.audience else { return }
        let length = push.body.readableBytes
        let backlog = self.pushes.delegateBacklog
        var push = push
        if backlog.isBehind { push.body = push.body.detached }
        if backlog.add(bytes: length) { self.holdReading(in: &turn) }
        turn.callBack(
            .closure { [push] in
                delegate.client(client, didReceive: push)
                guard backlog.remove(bytes: length) else { return }
                _ = self.submit(.closure { self.releaseReading(in: &$0) })
            }
        )
    }

    func receivedPush(_ frame: Frame, _ metadata: [String: String], _ endpoint: Endpoint, in turn: inout Turn) {
        guard self.pushes.line.isEmpty else {
            return self.standInLine(
                WaitingPush(frame: frame, metadata: metadata, endpoint: endpoint, isCompressed: false),
                in: &turn
            )
        }
        self.deliverPush(frame, metadata, endpoint, in: &turn)
    }

    func deliverPush(_ frame: Frame, _ metadata: [String: String], _ endpoint: Endpoint, in turn: inout Turn) {
        let push = SocketPush(
            type: frame.type,
            status: frame.status,
            body: frame.payload,
            header: self.format.header(of: frame),
            metadata: metadata,
            endpoint: endpoint
        )
        if let unclaimed = self.pushes.router.route(push) {
            self.count(\.pushes)
            self.notifyDelegate(of: unclaimed, in: &turn)
        } else {
            self.hot.routedPushes += 1
        }
    }

    /// Hands all routed pushes to their subscribers together. Must be called after the last of several calls of
    /// ``deliverPush(_:_:_:in:)``.
    func handOverPushes(in turn: inout Turn) {
        guard self.hot.routedPushes > 0 else { return }
        self.count(\.pushes, by: self.hot.routedPushes)
        self.hot.routedPushes = 0
        let result = self.pushes.router.handOver()
        if result.dropped > 0 { self.count(\.droppedPushes, by: result.dropped) }
        for _ in 0..<result.newHolds { self.holdReading(in: &turn) }
    }
}
