// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The messages of one link whose sending has begun and whose outcome is awaited. On the socket's thread.
package final class BegunMessages<Language: LinkLanguage> where Language.Unit: MessageUnit {
    /// The largest capacity for sent messages that is kept.
    private static var largestKept: Int { 16 }

    private let link: Link<Language>
    /// The outcomes, in the order in which their messages are sent.
    private var outcomes: [MessageOutcome] = []
    /// The last message that was sent once the channel is empty; nil if that is not awaited.
    private var flushed: MessageOutcome?

    package init(_ link: Link<Language>) {
        self.link = link
        link.reportsRoom = true
    }

    /// Sends a message, which fails where the link closes or too much waits.
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool {
        let outcome = unit.outcome
        let isLong = unit.payload.readableBytes > Frame.unslicedLength
        switch self.link.send(unit, in: &turn) {
        case .sent:
            // A long message reports this itself, and may have done so.
            if let outcome { self.begin(outcome, isWhole: !isLong) }
            return true
        case .queued: return true
        case .refused: return false
        }
    }

    /// A waiting message is about to be sent.
    ///
    /// - Returns: False if it is no longer needed.
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
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

    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func progressed(_ outgoing: Outgoing<Language.Unit>) {
        if outgoing.sent == outgoing.unit.payload.readableBytes { outgoing.unit.outcome?.isWhole = true }
    }

    /// Completes the messages whose last byte was handed to the system, or arranges that for when it is.
    @_specialize(where Language == WebSocketLanguage)
    @_specialize(where Language == LineLanguage)
    package func completeSent() {
        guard !self.outcomes.isEmpty else { return }
        let count = self.outcomes.firstIndex { !$0.isWhole } ?? self.outcomes.count
        // If a write has failed, the link's end follows, and reports them.
        guard count > 0, let context = self.link.context, context.channel.isActive else { return }
        guard self.link.channelBytes > 0 else {
            for outcome in self.take(count) { outcome.complete(.success(())) }
            return
        }
        // After everything that the channel still has.
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

    /// The link has ended: it is not known whether these messages have arrived.
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
