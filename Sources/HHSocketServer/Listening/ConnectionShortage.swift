// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOCore

/// A connection that may be closed when connections run short.
protocol SilentConnection: AnyObject {
    /// The number of received bytes, which only grows.
    var bytesReceived: Int { get }
    /// Whether the server is at work for the client, so that it has a right to be silent.
    var isBusy: Bool { get }
    /// Its place in the order of silence.
    var placeOfSilence: SilenceOrder<any SilentConnection>.Place? { get set }
    /// Closes it for a newcomer.
    func closeForNewcomer(in turn: inout Turn)
}

/// The order of silence of one event loop's connections.
final class LoopSilence: Sendable {
    /// The largest number of connections that are examined to find one to close.
    private static let maximumLooks = 64
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
        guard connection.placeOfSilence == nil else { return }
        connection.placeOfSilence = self.order.value.insert(
            connection,
            bytesReceived: connection.bytesReceived,
            now: now
        )
        self.publish()
    }

    func remove(_ connection: any SilentConnection) {
        guard let place = connection.placeOfSilence else { return }
        connection.placeOfSilence = nil
        self.order.value.remove(place)
        self.publish()
    }

    /// Checks whether a connection is silent; called periodically.
    func look(at connection: any SilentConnection, now: NIODeadline) {
        guard let place = connection.placeOfSilence else { return }
        self.look(place, connection, now: now)
        self.publish()
    }

    @discardableResult
    private func look(
        _ place: SilenceOrder<any SilentConnection>.Place,
        _ connection: any SilentConnection,
        now: NIODeadline
    ) -> Bool {
        let (bytes, isBusy) = (connection.bytesReceived, connection.isBusy)
        return self.order.value.look(place, bytesReceived: bytes, isBusy: isBusy, now: now)
    }

    /// Closes the connection that has been silent longest, if that is at least `minimum`.
    ///
    /// - Returns: False if none has, or not among the first.
    func closeOldest(silentFor minimum: TimeAmount, in turn: inout Turn) -> Bool {
        for _ in 0..<Self.maximumLooks {
            guard let oldest = self.order.value.oldest, turn.now - oldest.since >= minimum else { return false }
            guard self.look(oldest.place, oldest.element, now: turn.now) else { continue }
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

/// Makes room for new connections when the server has reached its limit: the connection of all event loops that has
/// been silent longest is closed.
final class ConnectionShortage: Sendable {
    private let loops: [ServerLoop]
    /// Nil: none is closed.
    private let minimumSilence: TimeAmount?
    private let time: SocketTime
    /// The time within which a connection that is being closed has ended, in nanoseconds.
    private static let closingTime: UInt64 = 1_000_000_000
    /// The time of the last request to close a connection, in nanoseconds.
    private let lastClosing = ManagedAtomic<UInt64>(0)

    init(_ loops: [ServerLoop], minimumSilence: Duration?, time: SocketTime) {
        self.loops = loops
        self.time = time
        self.minimumSilence = minimumSilence.map { TimeAmount(clamping: $0) }
    }

    /// Requests that a connection be closed soon. Any thread.
    ///
    /// - Returns: False if none has been silent for long enough.
    func makeRoom() -> Bool {
        self.makeRoom(tries: self.loops.count + 1)
    }

    /// Closes connections beyond the maximum, periodically: a new one was admitted for one on which bytes had meanwhile
    /// arrived.
    func closeExcess(_ count: Int) {
        guard count > 0 else { return }
        // Others may just be closing.
        let last = self.lastClosing.load(ordering: .relaxed)
        guard self.time.now().uptimeNanoseconds >= last + Self.closingTime else { return }
        for _ in 0..<count {
            guard self.makeRoom() else { return }
        }
    }

    private func makeRoom(tries: Int) -> Bool {
        guard tries > 0, let minimum = self.minimumSilence else { return false }
        var longest: (loop: ServerLoop, since: NIODeadline)?
        for loop in self.loops {
            guard let since = loop.silence.silentSince, since < longest?.since ?? .distantFuture else { continue }
            longest = (loop, since)
        }
        let now = self.time.now()
        guard let (loop, since) = longest, now - since >= minimum else { return false }
        self.lastClosing.store(now.uptimeNanoseconds, ordering: .relaxed)
        return loop.socketLoop.submit(
            .closure { turn in
                guard !loop.silence.closeOldest(silentFor: minimum, in: &turn) else { return }
                // Bytes have arrived on all of them meanwhile.
                _ = self.makeRoom(tries: tries - 1)
            }
        )
    }
}
