import HHSocket
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// One event loop's share of a server: its connections, their turns, and the counters of both.
///
/// Connections are touched in turns of the event loop alone.
final class ServerLoop: Sendable {
    private struct Connections {
        var open: [ObjectIdentifier: ServerConnection] = [:]
        /// WebSockets that carry messages.
        var messages: [ObjectIdentifier: MessageSession] = [:]
        /// Connections beyond the limit, which are being sent away.
        var refused: [ObjectIdentifier: ServerConnection] = [:]
        /// Channels whose TLS handshake, or opening of a WebSocket, is not over.
        var handshakes: [ObjectIdentifier: Handshake] = [:]
        var draining: ShutdownPolicy?
        var empty: EventLoopPromise<Void>?
        /// Whether the last one has gone: nobody looks after what comes now.
        var isOver = false

        var isEmpty: Bool { self.open.isEmpty && self.refused.isEmpty && self.messages.isEmpty }
    }

    let socketLoop: SocketLoop
    let executor: SocketExecutor
    let counters = LoopCounters()
    /// Which connections have been silent longest.
    let silence: LoopSilence
    /// The turns of TLS handshakes.
    let handshakes: LoopHandshakes
    private let connections: NIOLoopBoundBox<Connections>

    init(eventLoop: any EventLoop, logger: Logger, maximumHandshakes: Int) {
        self.socketLoop = SocketLoop(eventLoop: eventLoop, logger: logger)
        self.silence = LoopSilence(eventLoop)
        self.handshakes = LoopHandshakes(self.socketLoop, maximum: maximumHandshakes)
        self.executor = SocketExecutor(self.socketLoop)
        self.connections = .makeBoxSendingValue(Connections(), eventLoop: eventLoop)
    }

    var eventLoop: any EventLoop { self.socketLoop.eventLoop }

    // MARK: From any thread

    /// Hands every connection the frame of its listener. How many took it.
    func push(_ frames: [ByteBuffer?]) -> EventLoopFuture<Int> {
        let promise = self.eventLoop.makePromise(of: Int.self)
        let isSubmitted = self.socketLoop.submit(
            .closure { turn in
                var count = 0
                for connection in self.connections.value.open.values {
                    if let frame = frames[connection.listener.index], connection.push(frame, in: &turn) { count += 1 }
                }
                promise.succeed(count)
            }
        )
        if !isSubmitted { promise.succeed(0) }
        return promise.futureResult
    }

    /// Lets every connection finish what is in flight. Succeeds when the last one is gone; from then on nothing is
    /// submitted to the event loop, which may be gone, too.
    func drain(_ policy: ShutdownPolicy) -> EventLoopFuture<Void> {
        let empty = self.eventLoop.makePromise(of: Void.self)
        let isSubmitted = self.socketLoop.submit(
            .closure { turn in
                self.connections.value.draining = policy
                self.closeHandshakes()
                self.connections.value.empty = empty
                for session in Array(self.connections.value.messages.values) { session.drain(in: &turn) }
                self.drain(Array(self.connections.value.open.values)[...], policy, in: &turn)
                self.endIfEmpty()
            }
        )
        if !isSubmitted { empty.succeed() }
        return empty.futureResult
    }

    /// The least number of connections that are notified in one turn of the event loop.
    static let drainStep = 64
    private static let drainInterval = TimeAmount.milliseconds(20)

    /// Tells connections to finish, in steps that take ``ShutdownPolicy/tellingTime`` together. Few are notified at
    /// once.
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

    /// Closes every connection at once.
    func kill() {
        self.socketLoop.submit(
            .closure { _ in
                if self.connections.value.draining == nil { self.connections.value.draining = ShutdownPolicy() }
                self.closeHandshakes()
                for connection in Array(self.connections.value.open.values) { connection.kill() }
                for connection in Array(self.connections.value.refused.values) { connection.kill() }
                for session in Array(self.connections.value.messages.values) { session.kill() }
            }
        )
    }

    // MARK: On the event loop

    /// Whether the server has shut down, so that no connection may begin.
    var isOver: Bool { self.connections.value.isOver }

    /// How the server shuts down, once it does.
    var draining: ShutdownPolicy? { self.connections.value.draining }

    func addHandshake(on channel: any Channel) {
        let handshake = Handshake(channel)
        self.connections.value.handshakes[ObjectIdentifier(channel)] = handshake
        self.silence.add(handshake, now: .now())
    }

    func removeHandshake(on channel: any Channel) {
        guard let handshake = self.connections.value.handshakes.removeValue(forKey: ObjectIdentifier(channel)) else {
            return
        }
        self.silence.remove(handshake)
    }

    /// Nothing is in flight on them.
    private func closeHandshakes() {
        self.handshakes.closeWaiting()
        for handshake in Array(self.connections.value.handshakes.values) { handshake.close() }
    }

    func add(_ connection: ServerConnection) {
        self.connections.value.open[ObjectIdentifier(connection)] = connection
        self.silence.add(connection, now: .now())
        self.counters.connectionBegan()
    }

    func addRefused(_ connection: ServerConnection) {
        self.connections.value.refused[ObjectIdentifier(connection)] = connection
    }

    func add(_ session: MessageSession) {
        self.connections.value.messages[ObjectIdentifier(session)] = session
        self.silence.add(session, now: .now())
        self.counters.connectionBegan()
    }

    func remove(_ session: MessageSession) {
        guard self.connections.value.messages.removeValue(forKey: ObjectIdentifier(session)) != nil else { return }
        self.silence.remove(session)
        self.counters.connectionEnded()
        self.endIfEmpty()
    }

    func remove(_ connection: ServerConnection) {
        let id = ObjectIdentifier(connection)
        self.silence.remove(connection)
        if self.connections.value.open.removeValue(forKey: id) != nil {
            self.counters.connectionEnded()
        } else if self.connections.value.refused.removeValue(forKey: id) == nil {
            return
        }
        self.endIfEmpty()
    }

    /// Tells whoever waits for the last connection that it is gone.
    private func endIfEmpty() {
        guard self.connections.value.isEmpty, let empty = self.connections.value.empty else { return }
        self.connections.value.isOver = true
        self.connections.value.empty = nil
        self.socketLoop.close { empty.succeed() }
    }

    // MARK: What takes too long

    /// Any thread: has the connections looked after, unless that is under way.
    func sweepIsDue() {
        // Submitted inside the lock: as long as there is a connection the event loop has not been shut down.
        self.counters.beginSweep { self.socketLoop.submit(.closure { self.sweep(in: &$0) }) }
    }

    private func sweep(in turn: inout Turn) {
        for connection in Array(self.connections.value.open.values) { connection.checkTimeouts(in: &turn) }
        for session in Array(self.connections.value.messages.values) { session.checkTimeouts(in: &turn) }
        self.counters.endSweep()
    }
}

/// A channel on which TLS or a WebSocket is being agreed on.
private final class Handshake: SilentConnection {
    private let channel: any Channel
    var placeOfSilence: SilenceOrder<any SilentConnection>.Place?
    // It has a short time in any case.
    let bytesReceived = 0
    let isBusy = false

    init(_ channel: any Channel) {
        self.channel = channel
    }

    func close() { self.channel.close(promise: nil) }

    func closeForNewcomer(in turn: inout Turn) { self.close() }
}
