// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// One event loop's share of a server: its connections, their turns, and the counters of both.
///
/// Connections are accessed only in turns of the event loop.
final class ServerLoop: Sendable {
    /// A push to all connections that has not reached all of them yet.
    private struct Broadcast {
        /// A number that is greater than that of every earlier broadcast.
        var number: UInt64
        /// The push for each listener.
        var pushes: [PushQueue.Push?]
        /// The place up to which connections have not received it; nil before the first one has.
        var place: Int?
        var count = 0
        var promise: EventLoopPromise<Int>
    }

    private struct Connections {
        var open = SessionList<ServerConnection>()
        /// WebSockets that carry messages.
        var messages = SessionList<MessageSession>()
        /// Connections beyond the limit, which are being sent away.
        var refused = SessionList<ServerConnection>()
        /// The broadcasts; the first is under way.
        var broadcasts: Deque<Broadcast> = []
        var lastBroadcast: UInt64 = 0
        /// Channels whose TLS handshake, or opening of a WebSocket, is not over.
        var handshakes: [ObjectIdentifier: Handshake] = [:]
        var draining: ShutdownPolicy?
        /// Whether the shutdown's grace period is over: connections have been closed, and new ones must not remain.
        var graceIsOver = false
        var empty: EventLoopPromise<Void>?
        /// Whether the last connection has closed: connections accepted from now on are not checked.
        var isOver = false

        var isEmpty: Bool { self.open.isEmpty && self.refused.isEmpty && self.messages.isEmpty }
    }

    /// Its place among the event loops of the server.
    let index: Int
    let socketLoop: SocketLoop
    let time: SocketTime
    let executor: SocketExecutor
    let counters = LoopCounters()
    /// Which connections have been silent longest.
    let silence: LoopSilence
    /// The turns of TLS handshakes.
    let handshakes: LoopHandshakes
    private let connections: NIOLoopBoundBox<Connections>

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
        self.connections = .makeBoxSendingValue(Connections(), eventLoop: eventLoop)
    }

    var eventLoop: any EventLoop { self.socketLoop.eventLoop }

    // MARK: From any thread

    /// Hands every connection the push of its listener. Succeeds with the number of connections that accepted it.
    func push(_ pushes: [PushQueue.Push?]) -> EventLoopFuture<Int> {
        let promise = self.eventLoop.makePromise(of: Int.self)
        let isSubmitted = self.socketLoop.submit(
            .closure { turn in
                self.connections.value.lastBroadcast += 1
                let number = self.connections.value.lastBroadcast
                self.connections.value.broadcasts.append(Broadcast(number: number, pushes: pushes, promise: promise))
                // Each connection gets one before the next.
                guard self.connections.value.broadcasts.count == 1 else { return }
                let isOver = self.socketLoop.turnIsOver(turn)
                if isOver { self.leaveBroadcasts(in: &turn) } else { self.broadcast(in: &turn) }
            }
        )
        if !isSubmitted { promise.succeed(0) }
        return promise.futureResult
    }

    /// Continues the broadcasts for a short time.
    private func broadcast(in turn: inout Turn) {
        while var broadcast = self.connections.value.broadcasts.first {
            let end = broadcast.place ?? self.connections.value.open.count
            let (connections, place) = self.connections.value.open.slice(before: end, count: Self.sliceLength)
            for connection in connections where connection.lastBroadcast < broadcast.number {
                connection.lastBroadcast = broadcast.number
                if let push = broadcast.pushes[connection.listener.index], connection.push(push, in: &turn) {
                    broadcast.count += 1
                }
            }
            broadcast.place = place
            if place == 0 {
                self.connections.value.broadcasts.removeFirst()
                broadcast.promise.succeed(broadcast.count)
            } else {
                self.connections.value.broadcasts[0] = broadcast
            }
            guard !self.socketLoop.turnIsOver(turn) else { break }
        }
        if !self.connections.value.broadcasts.isEmpty { self.leaveBroadcasts(in: &turn) }
    }

    private func leaveBroadcasts(in turn: inout Turn) {
        self.socketLoop.afterOtherChannels(in: &turn) { self.broadcast(in: &$0) }
    }

    /// Ends the broadcasts, since no receiver is left.
    private func endBroadcasts() {
        let broadcasts = self.connections.value.broadcasts
        self.connections.value.broadcasts = []
        for broadcast in broadcasts { broadcast.promise.succeed(broadcast.count) }
    }

    /// Lets every connection finish its requests in flight. Succeeds when the last one is closed; from then on nothing
    /// is submitted to the event loop, which may be gone.
    func drain(_ policy: ShutdownPolicy) -> EventLoopFuture<Void> {
        let empty = self.eventLoop.makePromise(of: Void.self)
        let isSubmitted = self.socketLoop.submit(
            .closure { turn in
                self.connections.value.draining = policy
                self.closeHandshakes()
                self.connections.value.empty = empty
                for session in self.connections.value.messages.all { session.drain(in: &turn) }
                self.drain(self.connections.value.open.all[...], policy, in: &turn)
                self.endIfEmpty()
            }
        )
        if !isSubmitted { empty.succeed() }
        return empty.futureResult
    }

    /// The least number of connections that are notified in one turn of the event loop.
    static let drainStep = 64
    private static let drainInterval = TimeAmount.milliseconds(20)

    /// Tells connections to finish, in steps that take ``ShutdownPolicy/tellingTime`` together. Each step notifies a
    /// few.
    private func drain(
        _ connections: ArraySlice<ServerConnection>,
        _ policy: ShutdownPolicy,
        step: Int? = nil,
        in turn: inout Turn
    ) {
        let steps = max(1, policy.tellingTime.nanoseconds / Self.drainInterval.nanoseconds)
        let step = step ?? max(Self.drainStep, connections.count / Int(clamping: steps))
        for connection in connections.prefix(step) { connection.drain(policy, in: &turn) }
        let rest = connections.dropFirst(step)
        guard !rest.isEmpty else { return }
        _ = self.socketLoop.setTimer(turn.now + Self.drainInterval) { self.drain(rest, policy, step: step, in: &$0) }
    }

    /// Closes every connection immediately, except that connections with streams are notified of their end.
    func kill() {
        self.socketLoop.submit(
            .closure { turn in
                if self.connections.value.draining == nil { self.connections.value.draining = ShutdownPolicy() }
                self.connections.value.graceIsOver = true
                self.closeHandshakes()
                for connection in self.connections.value.open.all { connection.endPatience(in: &turn) }
                for connection in self.connections.value.refused.all { connection.kill() }
                for session in self.connections.value.messages.all { session.kill() }
            }
        )
    }

    // MARK: On the event loop

    /// Whether a connection may begin: the server has not shut down, and the grace period of its shutdown is not over.
    var mayBegin: Bool { !self.connections.value.isOver && !self.connections.value.graceIsOver }

    /// The shutdown's policy, once the server shuts down.
    var draining: ShutdownPolicy? { self.connections.value.draining }

    /// Adds a connection that is not agreed on yet.
    ///
    /// - Parameters:
    ///   - cost: The memory that is charged for it until it is removed, in bytes.
    ///   - address: The client's, if it is known.
    func addHandshake(on channel: any Channel, _ cost: Int, from address: ClientAddress?, _ core: ServerCore) {
        self.removeHandshake(on: channel)
        let account = LedgerAccount(core.ledger, shard: self.index, baseCost: cost)
        account.open(from: address, holder: HandshakeEnd(channel))
        let handshake = Handshake(channel, account)
        self.connections.value.handshakes[ObjectIdentifier(channel)] = handshake
        self.silence.add(handshake, now: self.time.now())
    }

    func removeHandshake(on channel: any Channel) {
        guard let handshake = self.connections.value.handshakes.removeValue(forKey: ObjectIdentifier(channel)) else {
            return
        }
        self.silence.remove(handshake)
        handshake.account.close()
    }

    /// Nothing is in flight on them.
    private func closeHandshakes() {
        self.handshakes.closeWaiting()
        for handshake in Array(self.connections.value.handshakes.values) { handshake.close() }
    }

    func add(_ connection: ServerConnection) {
        // Earlier broadcasts are not meant for it.
        connection.lastBroadcast = self.connections.value.lastBroadcast
        self.connections.value.open.append(connection)
        self.silence.add(connection, now: self.time.now())
        self.counters.connectionBegan()
    }

    func addRefused(_ connection: ServerConnection) {
        self.connections.value.refused.append(connection)
    }

    func add(_ session: MessageSession) {
        self.connections.value.messages.append(session)
        self.silence.add(session, now: self.time.now())
        self.counters.connectionBegan()
    }

    func remove(_ session: MessageSession) {
        guard self.connections.value.messages.remove(session) else { return }
        self.silence.remove(session)
        self.counters.connectionEnded()
        self.endIfEmpty()
    }

    func remove(_ connection: ServerConnection) {
        self.silence.remove(connection)
        if self.connections.value.open.remove(connection) {
            self.counters.connectionEnded()
        } else if !self.connections.value.refused.remove(connection) {
            return
        }
        self.endIfEmpty()
    }

    /// Notifies the waiting futures that the last connection is closed.
    private func endIfEmpty() {
        guard self.connections.value.isEmpty, let empty = self.connections.value.empty else { return }
        self.connections.value.isOver = true
        self.connections.value.empty = nil
        self.endBroadcasts()
        self.socketLoop.close { empty.succeed() }
    }

    // MARK: What takes too long

    /// Schedules a check of the connections, unless one is in progress. May be called on any thread.
    func sweepIsDue() {
        // Submitted inside the lock: as long as there is a connection the event loop has not been shut down.
        self.counters.beginSweep { self.socketLoop.submit(.closure { self.sweep(in: &$0) }) }
    }

    /// Checks the connections before these places, for a short time in each turn.
    private func sweep(_ place: Int = .max, _ messagesPlace: Int = .max, in turn: inout Turn) {
        var (place, messagesPlace) = (place, messagesPlace)
        while place > 0 || messagesPlace > 0, !self.connections.value.isOver {
            let (connections, next) = self.connections.value.open.slice(before: place, count: Self.sliceLength)
            for connection in connections { connection.checkTimeouts(in: &turn) }
            let (sessions, nextMessages) = self.connections.value.messages
                .slice(before: messagesPlace, count: Self.sliceLength)
            for session in sessions { session.checkTimeouts(in: &turn) }
            (place, messagesPlace) = (next, nextMessages)
            guard !self.socketLoop.turnIsOver(turn) else { break }
        }
        guard place > 0 || messagesPlace > 0, !self.connections.value.isOver else { return self.counters.endSweep() }
        self.socketLoop.afterOtherChannels(in: &turn) { [place, messagesPlace] in
            self.sweep(place, messagesPlace, in: &$0)
        }
    }
}

/// Closes a channel on which something is being agreed on.
private final class HandshakeEnd: LedgerHolder {
    private let channel: any Channel

    init(_ channel: any Channel) {
        self.channel = channel
    }

    func evict() { self.channel.close(promise: nil) }
}

/// A channel on which TLS or a WebSocket is being agreed on.
private final class Handshake: SilentConnection {
    private let channel: any Channel
    let account: LedgerAccount
    var placeOfSilence: SilenceOrder<any SilentConnection>.Place?
    // It has a short time in any case.
    let bytesReceived = 0
    let isBusy = false

    init(_ channel: any Channel, _ account: LedgerAccount) {
        self.channel = channel
        self.account = account
    }

    func close() { self.channel.close(promise: nil) }

    func closeForNewcomer(in turn: inout Turn) { self.close() }
}
