// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import Logging
import NIOCore

/// The delivery of a client's pushes, from the frame to the subscribers.
final class PushCenter: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only on the socket thread.
    private let loop: SocketLoop
    private let driver: any ConnectionDriver
    private let bodies: BodyWork
    private let reporter: CallReporter
    private let audience: any ClientAudience
    private let format: WireFormat
    private let logger: Logger?
    private var router = PushRouter()
    /// The number of pushes that have been routed but not yet handed over and counted.
    private var routedCount = 0
    /// The queued pushes. The first is being decompressed; the others are delivered after it.
    private var line: Deque<WaitingPush> = []
    private var lineBytes = 0
    /// The pushes that the delegate has not handled yet.
    private let backlog = CallbackBacklog()
    /// The number of subscribers that are so far behind that reading is suspended.
    private var holds = ReadingHolds()
    /// Whether no more pushes are delivered, because the client was released.
    private var isFinished = false

    /// A queued push: one that is being decompressed, or a later one.
    private struct WaitingPush: Sendable {
        /// The frame, whose payload is owned.
        var frame: Frame
        var metadata: [String: String]
        var endpoint: Endpoint
        /// Whether the frame's payload must be decompressed.
        var isCompressed: Bool
    }

    /// The size of the queued pushes above which reading is suspended: 1 MiB.
    private static let longestLine = 1 << 20

    init(
        _ configuration: SocketConfiguration,
        driver: any ConnectionDriver,
        bodies: BodyWork,
        reporter: CallReporter,
        audience: any ClientAudience,
        loop: SocketLoop
    ) {
        self.loop = loop
        self.driver = driver
        self.bodies = bodies
        self.reporter = reporter
        self.audience = audience
        self.format = configuration.wireFormat
        self.logger = configuration.logger
    }

    // MARK: Any thread

    /// Subscribes a new inbox to the pushes of `type`, or of every type if nil, until it is cancelled.
    func subscribe(to type: UInt32?, _ policy: PushBufferingPolicy) -> PushInbox {
        let inbox = PushInbox(policy.bounds, account: nil) { [weak self] inbox, change in
            self?.loop.submit { [weak self] in self?.inboxChanged(inbox, of: type, change, in: &$0) }
        }
        let isAlive = self.loop.submit { _ in
            if self.isFinished {
                inbox.finish()
            } else {
                self.router.add(inbox, type)
            }
        }
        if !isAlive { inbox.finish() }
        return inbox
    }

    /// Counts and logs an error that a handler of pushes threw.
    func handlerFailed(_ type: UInt32, _ error: any Error) {
        self.failed("a handler of pushes failed", type: type, because: error, counting: \.failedPushHandlers)
    }

    /// Counts and logs a push that is no message of its type.
    func isMalformed(_ type: UInt32, _ error: any Error) {
        self.failed("a push is not a message of its type", type: type, because: error, counting: \.malformedPushes)
    }

    private func failed(
        _ complaint: Logger.Message,
        type: UInt32,
        because error: any Error,
        counting counter: any WritableKeyPath<ClientStatistics, Int> & Sendable
    ) {
        self.loop.submit { _ in
            self.reporter.count(counter)
            // Only the error's type: its description may reveal the push's contents.
            self.logger?.warning(
                complaint,
                metadata: ["type": "\(type)", "error": "\(Swift.type(of: error))"]
            )
        }
    }

    // MARK: Reading

    private func inboxChanged(_ inbox: PushInbox, of type: UInt32?, _ change: InboxChange, in turn: inout Turn) {
        switch change {
        case .over: self.router.remove(inbox, type)
        case .releases: self.releaseReading(in: &turn)
        // Reported where pushes are handed over, in the turn: so a release, which is submitted, always follows.
        case .holds: break
        }
    }

    /// Suspends reading for one more subscriber that is too far behind, until ``releaseReading(in:)`` is called for it.
    private func holdReading(in turn: inout Turn) {
        if self.holds.hold() { self.driver.perform(.setReading(isSuspended: true), in: &turn) }
    }

    private func releaseReading(in turn: inout Turn) {
        if self.holds.release() { self.driver.perform(.setReading(isSuspended: false), in: &turn) }
    }

    /// The delegate has handled a push of this length. Any thread.
    fileprivate func delegateHandled(bytes length: Int) {
        guard self.backlog.remove(bytes: length) else { return }
        self.loop.submit { self.releaseReading(in: &$0) }
    }

    // MARK: Frames

    /// Receives a push. It is delivered by ``handOver(in:)``, which must be called after the last of several.
    func received(
        _ frame: consuming ArrivedFrame,
        _ metadata: [String: String],
        from endpoint: Endpoint,
        in turn: inout Turn
    ) {
        guard self.line.isEmpty else {
            return self.enqueue(
                WaitingPush(frame: frame.owned(), metadata: metadata, endpoint: endpoint, isCompressed: false),
                in: &turn
            )
        }
        self.deliver(frame.lend(), metadata, from: endpoint, in: &turn)
    }

    /// Receives a push whose body must be decompressed on another thread, and may be kept.
    func receivedCompressed(
        _ frame: Frame,
        _ metadata: [String: String],
        from endpoint: Endpoint,
        in turn: inout Turn
    ) {
        self.enqueue(
            WaitingPush(frame: frame, metadata: metadata, endpoint: endpoint, isCompressed: true),
            in: &turn
        )
    }

    /// Counts and logs a push whose envelope cannot be opened.
    func receivedUnreadable(_ type: UInt32, _ reason: EnvelopeError, from endpoint: Endpoint) {
        self.countMalformed(type, complaint: "a push cannot be read", because: "\(reason)", from: endpoint)
    }

    /// Counts and logs a push whose pieces cannot be joined.
    func receivedBroken(_ type: UInt32, _ reason: String, from endpoint: Endpoint) {
        self.countMalformed(type, complaint: "the pieces of a push cannot be joined", because: reason, from: endpoint)
    }

    private func countMalformed(
        _ type: UInt32,
        complaint: Logger.Message,
        because reason: String,
        from endpoint: Endpoint
    ) {
        self.reporter.count(\.pushes)
        self.reporter.count(\.malformedPushes)
        self.logger?.warning(
            complaint,
            metadata: ["type": "\(type)", "server": "\(endpoint)", "error": "\(reason)"]
        )
    }

    private func deliver(
        _ frame: Frame,
        _ metadata: [String: String],
        from endpoint: Endpoint,
        in turn: inout Turn
    ) {
        let push = SocketPush(
            type: frame.type,
            status: frame.status,
            body: frame.payload,
            header: self.format.header(of: frame),
            metadata: metadata,
            endpoint: endpoint
        )
        if let unclaimed = self.router.route(push) {
            self.reporter.count(\.pushes)
            self.notifyDelegate(of: unclaimed, in: &turn)
        } else {
            self.routedCount += 1
        }
    }

    /// Passes a push without a subscriber to the delegate.
    private func notifyDelegate(of push: SocketPush, in turn: inout Turn) {
        let length = push.body.readableBytes
        var push = push
        if self.backlog.isBehind { push.body = push.body.detached }
        guard let callback = self.audience.callback(for: push, PushReceipt(center: self, length: length)) else {
            return
        }
        if self.backlog.add(bytes: length) { self.holdReading(in: &turn) }
        turn.callBack(callback)
    }

    /// Hands all routed pushes to their subscribers together.
    @inline(__always)
    func handOver(in turn: inout Turn) {
        if self.routedCount > 0 { self.handOverRouted(in: &turn) }
    }

    private func handOverRouted(in turn: inout Turn) {
        self.reporter.count(\.pushes, by: self.routedCount)
        self.routedCount = 0
        let result = self.router.handOver()
        if result.dropped > 0 { self.reporter.count(\.droppedPushes, by: result.dropped) }
        for _ in 0..<result.newHolds { self.holdReading(in: &turn) }
    }

    /// Ends all subscriptions.
    func finish() {
        self.isFinished = true
        self.router.finish()
    }

    // MARK: The line behind a compressed push

    /// Whether reading should be suspended because of the pushes that are queued.
    private var lineIsFull: Bool { self.lineBytes > Self.longestLine }

    /// Delivers the push after earlier ones.
    private func enqueue(_ push: WaitingPush, in turn: inout Turn) {
        let wasFull = self.lineIsFull
        self.line.append(push)
        self.lineBytes += push.frame.payload.readableBytes
        if !wasFull, self.lineIsFull { self.holdReading(in: &turn) }
        // Otherwise the first push is being decompressed.
        if self.line.count == 1 { self.deliverLine(in: &turn) }
    }

    private func deliverLine(in turn: inout Turn) {
        while let first = self.line.first {
            guard !first.isCompressed else {
                return self.bodies.inflate(OwnedBytes(first.frame.payload)) { self.inflatedFirst($0, in: &$1) }
            }
            self.dequeue(in: &turn)
            self.deliver(first.frame, first.metadata, from: first.endpoint, in: &turn)
        }
    }

    private func inflatedFirst(_ body: Result<ByteBuffer, EnvelopeError>, in turn: inout Turn) {
        guard !self.isFinished, let first = self.line.first else { return }
        self.dequeue(in: &turn)
        switch body {
        case .success(let body):
            var frame = first.frame
            frame.payload = body
            self.deliver(frame, first.metadata, from: first.endpoint, in: &turn)
        case .failure(let reason):
            self.receivedUnreadable(first.frame.type, reason, from: first.endpoint)
        }
        self.deliverLine(in: &turn)
        self.handOver(in: &turn)
    }

    /// Removes the first push from the queue.
    private func dequeue(in turn: inout Turn) {
        guard let first = self.line.popFirst() else { return }
        let wasFull = self.lineIsFull
        self.lineBytes -= first.frame.payload.readableBytes
        if wasFull, !self.lineIsFull { self.releaseReading(in: &turn) }
    }
}

/// The place to which the handling of a push by the delegate is reported.
struct PushReceipt: Sendable {
    fileprivate let center: PushCenter
    fileprivate let length: Int

    /// Reports that the delegate has handled the push. Any thread.
    func isHandled() { self.center.delegateHandled(bytes: self.length) }
}
