// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL

/// Closing a link.
extension Link {
    /// The progress of closing.
    struct Parting {
        /// Succeeds when the channel is closed.
        var promise: EventLoopPromise<Void>?
        var reason = CloseReason.done
        /// The language's way to close, once it has been determined.
        var closing: Closing?
        /// Whether the peer's answer to a close is no longer awaited.
        var peerHasAnswered = false
        /// Whether the time for the peer's answer runs.
        var awaitsPeer = false
        var outputIsClosed = false
        /// Closes the channel at its deadline, whatever is still in progress.
        var timer: SocketLoop.TimerID?
    }

    /// Ends the link by choice: queued units are sent first, then the language's last unit, then our direction is
    /// closed. Until the peer's end, units are still received, unless they are discarded.
    @discardableResult
    package func close(_ reason: CloseReason, in turn: inout Turn) -> EventLoopFuture<Void>? {
        self.close(reason, within: self.settings.partingTime, in: &turn)
    }

    /// - Parameter time: The time limit; nil for none.
    @discardableResult
    package func close(_ reason: CloseReason, within time: TimeAmount?, in turn: inout Turn) -> EventLoopFuture<Void>? {
        if let promise = self.parting.promise { return promise.futureResult }
        guard let context = self.context, self.hot.phase == .open else { return nil }
        let promise = context.eventLoop.makePromise(of: Void.self)
        self.parting.promise = promise
        self.hot.phase = .closing
        self.removeTimers()
        if let time { self.closeChannel(in: time, in: &turn) }
        self.parting.reason = reason
        self.touch(in: &turn)
        self.resumeReading(in: &turn)
        // The peer's end follows everything that it has sent.
        if self.hot.reading.isSuspended || self.hot.reading.hasLeft { self.setAutoRead(true) }
        self.releaseRead()
        return promise.futureResult
    }

    /// The receiver is done with the link, which is about to close: queued units that are no longer needed are
    /// dropped, and received bytes are discarded.
    package func releaseReceiver(in turn: inout Turn) {
        guard let receiver = self.receiver else { return }
        for (unit, priority) in self.hot.out.takeWaitingUnits() where receiver.unitWillBeSent(unit, in: &turn) {
            _ = self.hot.append(unit, priority)
        }
        self.receiver = nil
        self.discardIncoming(in: &turn)
    }

    /// Closes our direction once everything has been sent. Half-closing lets the peer read everything before it sees
    /// the end; closing at once could reset the connection and discard what the peer has not read yet. The peer's own
    /// end then closes the channel.
    func closeOutputIfDone(_ context: ChannelHandlerContext, in turn: inout Turn) {
        guard self.hot.out.isEmpty, self.hot.out.bytes.count == 0, !self.parting.outputIsClosed else { return }
        if self.parting.closing == nil {
            // After all units that waited.
            self.parting.closing = self.hot.close(self.parting.reason)
            if self.hot.out.bytes.count > 0 { self.drain(context, in: &turn) }
        }
        if case .awaitPeer(let time) = self.parting.closing, !self.parting.peerHasAnswered,
            !self.hot.reading.inputIsClosed
        {
            // Its answer, and our time for that, end it.
            if !self.parting.awaitsPeer { self.closeChannel(in: time, in: &turn) }
            self.parting.awaitsPeer = true
            return
        }
        self.parting.outputIsClosed = true
        self.sayReason(self.parting.reason, context)
        if self.hot.reading.inputIsClosed {
            // Both directions are done once the channel has been flushed.
            let flushed = context.eventLoop.makePromise(of: Void.self)
            context.writeAndFlush(self.wrapOutboundOut(ByteBuffer()), promise: flushed)
            flushed.futureResult.assumeIsolated().whenComplete { _ in self.context?.close(promise: nil) }
        } else if let linger = self.settings.lingerTime {
            let closed = context.eventLoop.makePromise(of: Void.self)
            context.close(mode: .output, promise: closed)
            closed.futureResult.assumeIsolated().whenComplete { _ in
                self.loop.enter { self.closeChannel(in: linger, in: &$0) }
            }
        } else {
            context.close(mode: .output, promise: nil)
        }
    }

    /// The peer has sent its last unit, or has answered ours: nothing more is awaited from it.
    package func peerAnsweredClose(in turn: inout Turn) {
        self.parting.peerHasAnswered = true
        guard self.hot.phase == .closing else { return }
        self.touch(in: &turn)
    }

    private func closeChannel(in time: TimeAmount, in turn: inout Turn) {
        guard self.context != nil else { return }
        if let timer = self.parting.timer { self.loop.removeTimer(timer) }
        // The loop may be closed before: a released client's peer may never close the connection.
        self.parting.timer = self.loop.setEndTimer(turn.now.advanced(clamping: time)) { _ in self.kill() }
    }

    /// Closes the channel at once.
    package func kill() {
        self.context?.close(promise: nil)
    }

    /// Ends the link because of the peer, which is notified in its language: the host treats it as ended at once, while
    /// queued units and the language's last unit are still sent.
    ///
    /// - Parameter time: The time limit.
    package func part(_ end: LinkEnd, _ reason: CloseReason, within time: TimeAmount, in turn: inout Turn) {
        guard self.hot.phase == .open, self.context != nil else { return }
        self.reportBeatLost(in: &turn)
        self.close(reason, within: time, in: &turn)
        self.notifyHost(of: .ended(end), in: &turn)
    }

    /// Ends the link for a reason that its language gives.
    package func end(_ end: LinkEnd, in turn: inout Turn) {
        let wasOpen = self.hot.phase == .open
        guard self.hot.phase != .ended else { return }
        if wasOpen { self.reportBeatLost(in: &turn) }
        let end = self.receiver?.explain(end) ?? end
        self.finish(in: &turn)
        // Before the channel closes: a peer that sees the end may immediately query values that the notification
        // updates.
        if wasOpen { self.notifyHost(of: .ended(end), in: &turn) }
        guard let context = self.context else { return }
        if case .protocolViolation(let error) = end.cause { self.sayReason(error.reason, context) }
        context.close(promise: nil)
    }

    /// Passes the reason for closing to the transport of the link, if it can notify the peer. TCP cannot.
    private func sayReason(_ reason: CloseReason, _ context: ChannelHandlerContext) {
        context.triggerUserOutboundEvent(reason, promise: nil)
    }

    func end(_ cause: LinkEnd.Cause, in turn: inout Turn) {
        self.end(LinkEnd(cause), in: &turn)
    }

    private func finish(in turn: inout Turn) {
        self.hot.phase = .ended
        self.removeTimers()
        let units = self.hot.out.removeAll()
        self.receiver?.linkEnded(returning: units, in: &turn)
    }

    // MARK: Channel events

    package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            self.hot.reading.inputIsClosed = true
            self.loop.enter { self.reportInputClosed(in: &$0) }
        }
        context.fireUserInboundEventTriggered(event)
    }

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A missing `close_notify` of TLS is ignored: units are delimited, so an incomplete one is never taken for
        // complete. The following end is treated like that of any other connection.
        if case NIOSSLError.uncleanShutdown = error { return }
        let end = (error as? LinkEndError)?.end ?? LinkEnd(.failed(error))
        self.loop.enter { turn in
            self.takeLastUnits(in: &turn)
            self.end(end, in: &turn)
        }
    }

    package func channelInactive(context: ChannelHandlerContext) {
        // Later handlers in the pipeline may be notified before the turn: nothing more can be sent.
        let unfinished = self.hot.language.unfinishedBytes
        self.loop.enter { turn in
            self.takeLastUnits(in: &turn)
            self.end(
                .closedByPeer(unfinishedBytes: unfinished, hasReceived: self.hot.reading.hasReceived),
                in: &turn
            )
        }
        context.fireChannelInactive()
    }
}
