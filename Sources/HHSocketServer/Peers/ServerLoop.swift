// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketLink
import Logging
import NIOCore

/// A peer, as its event loop knows it.
protocol LoopPeer: SilentConnection {
    /// Whether nothing is served yet: it is closed at once where the server shuts down.
    var isArriving: Bool { get }
    /// Checks the rules of progress.
    func check(in turn: inout Turn)
    /// Sends a broadcast, encoded for each listener, unless it is older than the peer.
    ///
    /// - Returns: Whether it was accepted.
    func push(_ pushes: [PushQueue.Push?], number: UInt64, in turn: inout Turn) -> Bool
    /// Finishes the work in progress, and then closes.
    func drain(_ policy: ShutdownPolicy, in turn: inout Turn)
    /// The shutdown's patience is over.
    func stop(in turn: inout Turn)
    /// Closes at once.
    func kill()
}

/// One event loop's share of a server: its peers, their turns, and the counters of both.
///
/// Peers are accessed only in turns of the event loop.
final class ServerLoop: Sendable {
    /// A push to all connections that has not reached all of them yet.
    private struct Broadcast {
        /// A number that is greater than that of every earlier broadcast.
        var number: UInt64
        /// The push for each listener.
        var pushes: [PushQueue.Push?]
        /// The position up to which connections have not received it; nil before the first one has.
        var position: Int?
        var count = 0
        var promise: EventLoopPromise<Int>
    }

    private struct Peers {
        var list = SessionList<any LoopPeer>()
        /// The broadcasts; the first is under way.
        var broadcasts: Deque<Broadcast> = []
        var lastBroadcast: UInt64 = 0
        var draining: ShutdownPolicy?
        /// Whether the shutdown's grace period is over: connections have been closed, and new ones must not remain.
        var graceIsOver = false
        var empty: EventLoopPromise<Void>?
        /// Whether the last connection has closed: connections accepted from now on are not checked.
        var isOver = false
    }

    /// Its place among the event loops of the server.
    let index: Int
    let socketLoop: SocketLoop
    let time: SocketTime
    let executor: SocketExecutor
    let counters = LoopCounters()
    let sessionCounts = SessionCounts()
    /// Which connections have been silent longest.
    let silence: LoopSilence
    /// The turns of TLS handshakes.
    let handshakes: LoopHandshakes
    private let peers: NIOLoopBoundBox<Peers>

    /// The largest number of connections that are processed before the duration of the turn is checked.
    private static let sliceLength = 64

    /// - Parameter time: The clock by which clients are judged.
    init(index: Int, eventLoop: any EventLoop, logger: Logger, maximumHandshakes: Int, time: SocketTime) {
        self.index = index
        self.time = time
        self.socketLoop = SocketLoop(eventLoop: eventLoop, time: time, logger: logger)
        self.silence = LoopSilence(eventLoop)
        self.handshakes = LoopHandshakes(self.socketLoop, maximum: maximumHandshakes)
        self.executor = SocketExecutor(self.socketLoop)
        self.peers = .makeBoxSendingValue(Peers(), eventLoop: eventLoop)
    }

    var eventLoop: any EventLoop { self.socketLoop.eventLoop }

    // MARK: From any thread

    /// Hands every connection the push of its listener. Succeeds with the number of connections that accepted it.
    func push(_ pushes: [PushQueue.Push?]) -> EventLoopFuture<Int> {
        let promise = self.eventLoop.makePromise(of: Int.self)
        let isSubmitted = self.socketLoop.submit { turn in
            self.peers.value.lastBroadcast += 1
            let number = self.peers.value.lastBroadcast
            self.peers.value.broadcasts.append(Broadcast(number: number, pushes: pushes, promise: promise))
            // Each connection gets one before the next.
            guard self.peers.value.broadcasts.count == 1 else { return }
            let isOver = self.socketLoop.turnIsOver(turn)
            if isOver { self.deferBroadcasts(in: &turn) } else { self.broadcast(in: &turn) }
        }
        if !isSubmitted { promise.succeed(0) }
        return promise.futureResult
    }

    /// Continues the broadcasts for a short time.
    private func broadcast(in turn: inout Turn) {
        while var broadcast = self.peers.value.broadcasts.first {
            let end = broadcast.position ?? self.peers.value.list.count
            let (peers, position) = self.peers.value.list.slice(before: end, count: Self.sliceLength)
            for peer in peers where peer.push(broadcast.pushes, number: broadcast.number, in: &turn) {
                broadcast.count += 1
            }
            broadcast.position = position
            if position == 0 {
                self.peers.value.broadcasts.removeFirst()
                broadcast.promise.succeed(broadcast.count)
            } else {
                self.peers.value.broadcasts[0] = broadcast
            }
            guard !self.socketLoop.turnIsOver(turn) else { break }
        }
        if !self.peers.value.broadcasts.isEmpty { self.deferBroadcasts(in: &turn) }
    }

    private func deferBroadcasts(in turn: inout Turn) {
        self.socketLoop.afterOtherChannels(in: &turn) { self.broadcast(in: &$0) }
    }

    /// Ends the broadcasts, since no receiver is left.
    private func endBroadcasts() {
        let broadcasts = self.peers.value.broadcasts
        self.peers.value.broadcasts = []
        for broadcast in broadcasts { broadcast.promise.succeed(broadcast.count) }
    }

    /// Lets every connection finish its requests in flight. Succeeds when the last one is closed; from then on nothing
    /// is submitted to the event loop, which may be gone.
    func drain(_ policy: ShutdownPolicy) -> EventLoopFuture<Void> {
        let empty = self.eventLoop.makePromise(of: Void.self)
        let isSubmitted = self.socketLoop.submit { turn in
            self.peers.value.draining = policy
            self.closeArriving()
            self.peers.value.empty = empty
            self.drain(self.peers.value.list.all[...], policy, in: &turn)
            self.endIfEmpty()
        }
        if !isSubmitted { empty.succeed() }
        return empty.futureResult
    }

    /// The least number of connections that are notified in one turn of the event loop.
    static let drainStep = 64
    private static let drainInterval = TimeAmount.milliseconds(20)

    /// Asks connections to finish, in steps that take ``ShutdownPolicy/announcingTime`` together. Each step notifies a
    /// few.
    private func drain(
        _ peers: ArraySlice<any LoopPeer>,
        _ policy: ShutdownPolicy,
        step: Int? = nil,
        in turn: inout Turn
    ) {
        let steps = max(1, policy.announcingTime.nanoseconds / Self.drainInterval.nanoseconds)
        let step = step ?? max(Self.drainStep, peers.count / Int(clamping: steps))
        for peer in peers.prefix(step) { peer.drain(policy, in: &turn) }
        let rest = peers.dropFirst(step)
        guard !rest.isEmpty else { return }
        _ = self.socketLoop.setTimer(turn.now + Self.drainInterval) { self.drain(rest, policy, step: step, in: &$0) }
    }

    /// Closes every connection immediately, except that connections with streams are notified of their end.
    func kill() {
        self.socketLoop.submit { turn in
            if self.peers.value.draining == nil { self.peers.value.draining = ShutdownPolicy() }
            self.peers.value.graceIsOver = true
            self.closeArriving()
            for peer in self.peers.value.list.all { peer.stop(in: &turn) }
        }
    }

    // MARK: On the event loop

    /// Whether a connection may begin: the server has not shut down, and the grace period of its shutdown is not over.
    var mayBegin: Bool { !self.peers.value.isOver && !self.peers.value.graceIsOver }

    /// The shutdown's policy, once the server shuts down.
    var draining: ShutdownPolicy? { self.peers.value.draining }

    /// Nothing is in flight on them.
    private func closeArriving() {
        self.handshakes.closeWaiting()
        for peer in self.peers.value.list.all where peer.isArriving { peer.kill() }
    }

    /// Adds a peer, or notes that it is open now.
    ///
    /// - Returns: The number of the last broadcast, which is not meant for it.
    @discardableResult
    func add(_ peer: any LoopPeer, isOpen: Bool) -> UInt64 {
        self.peers.value.list.append(peer)
        // It has not been silent so far.
        self.silence.remove(peer)
        self.silence.add(peer, now: self.time.now())
        if isOpen { self.counters.connectionBegan() }
        return self.peers.value.lastBroadcast
    }

    func remove(_ peer: any LoopPeer, wasOpen: Bool) {
        guard self.peers.value.list.remove(peer) else { return }
        self.silence.remove(peer)
        if wasOpen { self.counters.connectionEnded() }
        self.endIfEmpty()
    }

    /// Notifies the waiting futures that the last connection is closed.
    private func endIfEmpty() {
        guard self.peers.value.list.isEmpty, let empty = self.peers.value.empty else { return }
        self.peers.value.isOver = true
        self.peers.value.empty = nil
        self.endBroadcasts()
        self.socketLoop.close { empty.succeed() }
    }

    // MARK: What takes too long

    /// Schedules a check of the connections, unless one is in progress. May be called on any thread.
    func sweepIsDue() {
        // Submitted inside the lock: as long as there is a connection the event loop has not been shut down.
        self.counters.beginSweep { self.socketLoop.submit { self.sweep(in: &$0) } }
    }

    /// Checks the peers before this place, for a short time in each turn.
    private func sweep(_ position: Int = .max, in turn: inout Turn) {
        var position = position
        while position > 0, !self.peers.value.isOver {
            let (peers, next) = self.peers.value.list.slice(before: position, count: Self.sliceLength)
            for peer in peers { peer.check(in: &turn) }
            position = next
            guard !self.socketLoop.turnIsOver(turn) else { break }
        }
        guard position > 0, !self.peers.value.isOver else { return self.counters.endSweep() }
        self.socketLoop.afterOtherChannels(in: &turn) { [position] in self.sweep(position, in: &$0) }
    }
}
