import Dispatch
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// One event loop's share of a server: its sessions and its counters.
///
/// Sessions are touched on the event loop alone; the counters have a lock that no other event loop contends for.
final class ServerLoop: Sendable {
    private struct Sessions {
        var open: [ObjectIdentifier: SessionHandler] = [:]
        /// Those that are told that they are too many.
        var refused: [ObjectIdentifier: SessionHandler] = [:]
        /// Channels whose TLS handshake is not over.
        var handshakes: [ObjectIdentifier: any Channel] = [:]
        var draining: ShutdownPolicy?
        var empty: EventLoopPromise<Void>?

        var isEmpty: Bool { self.open.isEmpty && self.refused.isEmpty }
    }

    private struct Counters {
        var statistics = ServerStatistics()
        var connections = 0
        /// Whether somebody looks after what takes too long: from the first connection on, until a look finds none.
        var isWatched = false
    }

    let eventLoop: any EventLoop
    private let sweepInterval: TimeAmount
    private let sessions: NIOLoopBoundBox<Sessions>
    private let counters = NIOLockedValueBox(Counters())

    /// - Parameter sweepInterval: How often to look after what takes too long.
    init(eventLoop: any EventLoop, sweepInterval: TimeAmount) {
        self.eventLoop = eventLoop
        self.sweepInterval = sweepInterval
        self.sessions = .makeBoxSendingValue(Sessions(), eventLoop: eventLoop)
    }

    // MARK: From any thread

    var statistics: ServerStatistics { self.counters.withLockedValue { $0.statistics } }
    var connectionCount: Int { self.counters.withLockedValue { $0.connections } }

    func add(_ statistics: ServerStatistics) {
        self.counters.withLockedValue { $0.statistics += statistics }
    }

    func count(_ number: WritableKeyPath<ServerStatistics, Int>) {
        self.counters.withLockedValue { $0.statistics[keyPath: number] += 1 }
    }

    /// Hands every session the frame of its listener. How many took it.
    func push(_ frames: [ByteBuffer?]) -> EventLoopFuture<Int> {
        self.eventLoop.submit {
            self.sessions.value.open.values.reduce(into: 0) { count, session in
                if let frame = frames[session.listener.index], session.push(frame) { count += 1 }
            }
        }
    }

    /// Lets every session finish what is in flight. Succeeds when the last one is gone.
    func drain(_ policy: ShutdownPolicy) -> EventLoopFuture<Void> {
        self.eventLoop.flatSubmit {
            self.sessions.value.draining = policy
            self.closeHandshakes()
            for session in Array(self.sessions.value.open.values) { session.drain(policy) }
            guard !self.sessions.value.isEmpty else { return self.eventLoop.makeSucceededVoidFuture() }
            let empty = self.sessions.value.empty ?? self.eventLoop.makePromise(of: Void.self)
            self.sessions.value.empty = empty
            return empty.futureResult
        }
    }

    /// Closes every session at once.
    func kill() {
        self.eventLoop.execute {
            if self.sessions.value.draining == nil { self.sessions.value.draining = ShutdownPolicy() }
            self.closeHandshakes()
            for session in Array(self.sessions.value.open.values) { session.kill() }
            for session in Array(self.sessions.value.refused.values) { session.kill() }
        }
    }

    // MARK: On the event loop

    /// How the server shuts down, once it does.
    var draining: ShutdownPolicy? { self.sessions.value.draining }

    func addHandshake(on channel: any Channel) {
        self.sessions.value.handshakes[ObjectIdentifier(channel)] = channel
    }

    func removeHandshake(on channel: any Channel) {
        self.sessions.value.handshakes[ObjectIdentifier(channel)] = nil
    }

    /// Nothing is in flight on them.
    private func closeHandshakes() {
        for channel in Array(self.sessions.value.handshakes.values) { channel.close(promise: nil) }
    }

    func add(_ session: SessionHandler) {
        self.sessions.value.open[ObjectIdentifier(session)] = session
        let begins = self.counters.withLockedValue { counters in
            counters.connections += 1
            defer { counters.isWatched = true }
            return !counters.isWatched
        }
        if begins { self.scheduleSweep() }
    }

    func addRefused(_ session: SessionHandler) {
        self.sessions.value.refused[ObjectIdentifier(session)] = session
    }

    func remove(_ session: SessionHandler) {
        let id = ObjectIdentifier(session)
        if self.sessions.value.open.removeValue(forKey: id) != nil {
            self.counters.withLockedValue { $0.connections -= 1 }
        } else if self.sessions.value.refused.removeValue(forKey: id) == nil {
            return
        }
        if self.sessions.value.isEmpty {
            self.sessions.value.empty?.succeed()
            self.sessions.value.empty = nil
        }
    }

    /// Not by a timer of the event loop: while one is set, each turn of the loop reads the clock three times.
    private func scheduleSweep() {
        let time = DispatchTime.now() + .nanoseconds(Int(self.sweepInterval.nanoseconds))
        DispatchQueue.global(qos: .utility).asyncAfter(deadline: time) { [weak self] in self?.sweepIsDue() }
    }

    private func sweepIsDue() {
        self.counters.withLockedValue { counters in
            counters.isWatched = counters.connections > 0
            // Inside the lock: as long as there is a connection the event loop has not been shut down.
            if counters.isWatched { self.eventLoop.execute { self.sweep() } }
        }
    }

    /// Looks after what takes too long.
    private func sweep() {
        let now = NIODeadline.now()
        for session in Array(self.sessions.value.open.values) { session.look(now: now) }
        self.scheduleSweep()
    }
}
