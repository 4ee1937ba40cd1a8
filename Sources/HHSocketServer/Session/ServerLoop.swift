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
        /// Whether the last one has gone: nobody looks after what comes now.
        var isOver = false

        var isEmpty: Bool { self.open.isEmpty && self.refused.isEmpty }
    }

    private typealias Timers = TimerTable<() -> Void>

    private struct Alarm {
        var timers = Timers()
        /// The event loop's own timer, and when it is due.
        var set: (deadline: NIODeadline, timer: Scheduled<Void>)?
    }

    private struct Counters {
        var statistics = ServerStatistics()
        var connections = 0
        /// Whether a look after what takes too long has been asked for and has not ended.
        var isSweeping = false
    }

    let eventLoop: any EventLoop
    private let sessions: NIOLoopBoundBox<Sessions>
    private let alarm: NIOLoopBoundBox<Alarm>
    private let counters = NIOLockedValueBox(Counters())

    init(eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
        self.sessions = .makeBoxSendingValue(Sessions(), eventLoop: eventLoop)
        self.alarm = .makeBoxSendingValue(Alarm(), eventLoop: eventLoop)
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
            self.drain(Array(self.sessions.value.open.values)[...], policy)
            guard !self.sessions.value.isEmpty else {
                self.sessions.value.isOver = true
                return self.eventLoop.makeSucceededVoidFuture()
            }
            let empty = self.sessions.value.empty ?? self.eventLoop.makePromise(of: Void.self)
            self.sessions.value.empty = empty
            return empty.futureResult
        }
    }

    /// So many are told in one turn of the event loop, at least.
    static let drainStep = 64
    private static let drainInterval = TimeAmount.milliseconds(20)

    /// Tells sessions to finish, in steps that take ``ShutdownPolicy/tellingTime`` together. Few are told at once.
    private func drain(_ sessions: ArraySlice<SessionHandler>, _ policy: ShutdownPolicy, step: Int? = nil) {
        let steps = max(1, policy.tellingTime.nanoseconds / Self.drainInterval.nanoseconds)
        let step = step ?? max(Self.drainStep, sessions.count / Int(clamping: steps))
        for session in sessions.prefix(step) { session.drain(policy) }
        let rest = sessions.dropFirst(step)
        guard !rest.isEmpty else { return }
        _ = self.setTimer(.now() + Self.drainInterval) { self.drain(rest, policy, step: step) }
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

    /// Whether the server has shut down, so that no session may begin.
    var isOver: Bool { self.sessions.value.isOver }

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
        self.counters.withLockedValue { $0.connections += 1 }
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
        if self.sessions.value.isEmpty, let empty = self.sessions.value.empty {
            self.sessions.value.isOver = true
            self.sessions.value.empty = nil
            empty.succeed()
        }
    }

    // MARK: Timers

    typealias TimerID = TimerTable<() -> Void>.ID

    /// Calls `action` at `deadline`, on the event loop. All sessions share one timer of it.
    func setTimer(_ deadline: NIODeadline, _ action: @escaping () -> Void) -> TimerID {
        defer { self.setAlarm() }
        return self.alarm.value.timers.set(deadline, action)
    }

    func removeTimer(_ id: TimerID) {
        self.alarm.value.timers.remove(id)
        guard self.alarm.value.timers.count == 0 else { return }
        // While one is set, each turn of the event loop reads the clock.
        self.alarm.value.set?.timer.cancel()
        self.alarm.value.set = nil
    }

    /// Sees to it that the event loop wakes for the next timer.
    private func setAlarm() {
        guard let deadline = self.alarm.value.timers.nextDeadline else { return }
        // One that is due before is set again when it is.
        if let set = self.alarm.value.set, set.deadline <= deadline { return }
        self.alarm.value.set?.timer.cancel()
        let timer = self.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) { self.alarmRings() }
        self.alarm.value.set = (deadline, timer)
    }

    private func alarmRings() {
        self.alarm.value.set = nil
        let now = NIODeadline.now()
        while let action = self.alarm.value.timers.popDue(now: now) { action() }
        self.setAlarm()
    }

    // MARK: What takes too long

    /// Any thread: has the sessions looked after, unless that is under way.
    func sweepIsDue() {
        self.counters.withLockedValue { counters in
            guard counters.connections > 0, !counters.isSweeping else { return }
            counters.isSweeping = true
            // Inside the lock: as long as there is a connection the event loop has not been shut down.
            self.eventLoop.execute { self.sweep() }
        }
    }

    private func sweep() {
        let now = NIODeadline.now()
        for session in Array(self.sessions.value.open.values) { session.look(now: now) }
        self.counters.withLockedValue { $0.isSweeping = false }
    }
}
