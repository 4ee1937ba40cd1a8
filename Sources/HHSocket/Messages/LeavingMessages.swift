// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The messages that have begun to leave on one link, and of which somebody waits for the end. On the socket's thread.
package final class LeavingMessages<Language: LinkLanguage> where Language.Unit: MessageUnit {
    /// The memory of more places for messages that leave than these is not kept.
    private static var largestKept: Int { 16 }

    private let link: Link<Language>
    /// The outcomes, in the order in which their messages leave.
    private var outcomes: [MessageOutcome] = []
    /// The last message that has left when the channel has nothing any more; nil where that is not waited for.
    private var flushed: MessageOutcome?

    package init(_ link: Link<Language>) {
        self.link = link
        link.tellsOfRoom = true
    }

    /// Sends a message, which fails where the link closes or too much waits.
    package func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool {
        let outcome = unit.outcome
        let isLong = unit.payload.readableBytes > Frame.unslicedLength
        switch self.link.send(unit, in: &turn) {
        case .sent:
            // A long one says so itself, and may have done so.
            if let outcome { self.begin(outcome, isWhole: !isLong) }
            return true
        case .queued: return true
        case .refused: return false
        }
    }

    /// A message that had to wait is about to leave.
    ///
    /// - Returns: False if nobody wants that any more.
    package func willBeSent(_ unit: Language.Unit) -> Bool {
        guard let outcome = unit.outcome else { return true }
        guard outcome.isOpen else { return false }
        self.begin(outcome, isWhole: unit.payload.readableBytes <= Frame.unslicedLength)
        return true
    }

    private func begin(_ outcome: MessageOutcome, isWhole: Bool) {
        outcome.hasBegun = true
        if isWhole { outcome.isWhole = true }
        self.outcomes.append(outcome)
    }

    package func progressed(_ outgoing: Outgoing<Language.Unit>) {
        if outgoing.sent == outgoing.unit.payload.readableBytes { outgoing.unit.outcome?.isWhole = true }
    }

    /// Completes the messages of which the last byte was handed to the system, or has that done when it is.
    package func completeSent() {
        guard !self.outcomes.isEmpty else { return }
        let count = self.outcomes.firstIndex { !$0.isWhole } ?? self.outcomes.count
        // Where a write has failed, the end of the link is still to be told, and tells of them.
        guard count > 0, let context = self.link.context, context.channel.isActive else { return }
        guard self.link.channelBytes > 0 else {
            for outcome in self.take(count) { outcome.complete(.success(())) }
            return
        }
        // Behind what the channel still has.
        guard self.flushed == nil else { return }
        let flushed = context.eventLoop.makePromise(of: Void.self)
        self.flushed = self.outcomes[count - 1]
        context.writeAndFlush(NIOAny(ByteBuffer()), promise: flushed)
        flushed.futureResult.assumeIsolated().whenSuccess { self.completeFlushed() }
    }

    private func completeFlushed() {
        guard let last = self.flushed.take(), let index = self.outcomes.firstIndex(where: { $0 === last }) else {
            return
        }
        for outcome in self.take(index + 1) { outcome.complete(.success(())) }
        if !self.outcomes.isEmpty { self.link.loop.enter { _ in self.completeSent() } }
    }

    private func take(_ count: Int) -> [MessageOutcome] {
        let gone = Array(self.outcomes.prefix(count))
        self.outcomes.removeFirst(count)
        // There may have been very many.
        if self.outcomes.isEmpty, self.outcomes.capacity > Self.largestKept { self.outcomes = [] }
        return gone
    }

    /// The link has ended: whether these messages have arrived is not known.
    package func fail() {
        let error = SocketError(
            .connectionLost,
            message: "the connection was lost while the message was being sent",
            delivery: .sentUnknown
        )
        let lost = self.outcomes
        self.outcomes = []
        self.flushed = nil
        for outcome in lost { outcome.complete(.failure(error)) }
    }
}
