// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOCore

/// A connection that may be closed when connections run short.
protocol SilentConnection: AnyObject {
    /// The number of received bytes, which only grows.
    var bytesReceived: Int { get }
    /// Whether the server is at work for the client, so that it has a right to be silent.
    var isBusy: Bool { get }
    /// Its place in the order of silence.
    var silenceSlot: SlotKey? { get set }
    /// Closes it for a newcomer.
    func closeForNewcomer(in turn: inout Turn)
}

/// The order of silence of one event loop's connections.
final class LoopSilence: Sendable {
    /// The largest number of connections that are examined to find one to close.
    private static let maximumChecks = 64
    /// The time within which the last frame to a client must be sent.
    static let lastWordTime = TimeAmount.milliseconds(50)

    private let order: NIOLoopBoundBox<SilenceOrder<any SilentConnection>>
    /// The time since which the longest silent connection is silent, in nanoseconds; `max` if there is none.
    private let oldest = ManagedAtomic(UInt64.max)

    init(_ eventLoop: any EventLoop) {
        self.order = .makeBoxSendingValue(SilenceOrder(), eventLoop: eventLoop)
    }

    // MARK: From any thread

    /// The time since which the longest silent connection is silent, as far as it is known; nil if there is none.
    var silentSince: NIODeadline? {
        let time = self.oldest.load(ordering: .relaxed)
        return time == .max ? nil : .uptimeNanoseconds(time)
    }

    // MARK: On the event loop

    func add(_ connection: any SilentConnection, now: NIODeadline) {
        guard connection.silenceSlot == nil else { return }
        connection.silenceSlot = self.order.value.insert(
            connection,
            bytesReceived: connection.bytesReceived,
            now: now
        )
        self.publish()
    }

    func remove(_ connection: any SilentConnection) {
        guard let slot = connection.silenceSlot else { return }
        connection.silenceSlot = nil
        self.order.value.remove(slot)
        self.publish()
    }

    /// Checks whether a connection is silent; called periodically.
    func check(_ connection: any SilentConnection, now: NIODeadline) {
        guard let slot = connection.silenceSlot else { return }
        self.check(slot, connection, now: now)
        self.publish()
    }

    @discardableResult
    private func check(
        _ slot: SlotKey,
        _ connection: any SilentConnection,
        now: NIODeadline
    ) -> Bool {
        let (bytes, isBusy) = (connection.bytesReceived, connection.isBusy)
        return self.order.value.check(slot, bytesReceived: bytes, isBusy: isBusy, now: now)
    }

    /// Closes the connection that has been silent longest, if that is at least `minimum`.
    ///
    /// - Returns: False if none has, or not among the first.
    func closeOldest(silentFor minimum: TimeAmount, in turn: inout Turn) -> Bool {
        for _ in 0..<Self.maximumChecks {
            guard let oldest = self.order.value.oldest, turn.now - oldest.since >= minimum else { return false }
            guard self.check(oldest.slot, oldest.element, now: turn.now) else { continue }
            self.remove(oldest.element)
            oldest.element.closeForNewcomer(in: &turn)
            return true
        }
        self.publish()
        return false
    }

    private func publish() {
        let since = self.order.value.oldest?.since.uptimeNanoseconds ?? .max
        self.oldest.store(since, ordering: .relaxed)
    }
}
