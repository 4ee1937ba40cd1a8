import DequeModule
import HHSocket
import Logging
import NIOCore

/// How pushes reach their subscribers.
struct PushDelivery {
    var router = PushRouter()
    /// Pushes that are delivered after one that is being decompressed, which is the first of them.
    var line: Deque<ClientCore.WaitingPush> = []
    var lineBytes = 0
    /// The callbacks that the delegate's queue has not run yet.
    let delegateBacklog = CallbackBacklog()
    /// The subscribers that are so far behind that reading is suspended.
    var holds = ReadingHolds()
}

/// Pushes, from the frame to their subscribers.
extension ClientCore {
    /// A mailbox into which the pushes of `type` come, or those of every type, until it is cancelled. Any thread.
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

    /// Any thread.
    func pushHandlerFailed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a handler of pushes failed", type, error, \.failedPushHandlers)
    }

    func pushIsMalformed(_ type: UInt32, _ error: any Error) {
        self.pushFailed("a push is no message of its type", type, error, \.malformedPushes)
    }

    /// A push came that cannot be opened; on the socket thread.
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
                // Its kind alone: what an app's error says may be what the push said.
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

    /// Somebody is so far behind that nothing more should be read until they have said ``releaseReading(in:)``.
    func holdReading(in turn: inout Turn) {
        if self.pushes.holds.hold() { self.driver.perform(.setReading(isSuspended: true), in: &turn) }
    }

    func releaseReading(in turn: inout Turn) {
        if self.pushes.holds.release() { self.driver.perform(.setReading(isSuspended: false), in: &turn) }
    }

    /// Hands a push that nobody subscribed to over to the delegate.
    private func notifyDelegate(of push: SocketPush, in turn: inout Turn) {
        guard let (delegate, client) = self.audience else { return }
        let length = push.body.readableBytes
        let backlog = self.pushes.delegateBacklog
        if backlog.add(bytes: length) { self.holdReading(in: &turn) }
        turn.callBack(
            .closure {
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

    /// Hands the pushes that have been routed to their subscribers, together. To be called by whoever delivers pushes,
    /// after the last.
    func handOverPushes(in turn: inout Turn) {
        guard self.hot.routedPushes > 0 else { return }
        self.count(\.pushes, by: self.hot.routedPushes)
        self.hot.routedPushes = 0
        let result = self.pushes.router.handOver()
        if result.dropped > 0 { self.count(\.droppedPushes, by: result.dropped) }
        for _ in 0..<result.newHolds { self.holdReading(in: &turn) }
    }
}
