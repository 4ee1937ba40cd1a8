import NIOConcurrencyHelpers
import NIOCore

/// One event loop's share of a server: its sessions and its counters.
///
/// Sessions are touched on the event loop alone; the counters have a lock that no other event loop contends for.
final class ServerLoop: Sendable {
    private struct Sessions {
        var open: [ObjectIdentifier: ServerSession] = [:]
        /// Channels whose TLS handshake is not over.
        var handshakes: [ObjectIdentifier: any Channel] = [:]
        var isDraining = false
        var empty: EventLoopPromise<Void>?
    }

    private struct Counters {
        var statistics = ServerStatistics()
        var connections = 0
    }

    let eventLoop: any EventLoop
    private let sessions: NIOLoopBoundBox<Sessions>
    private let counters = NIOLockedValueBox(Counters())
    private let connectionIDs: NIOLockedValueBox<UInt64>

    /// - Parameter connectionIDs: The last number given to a connection of the server.
    init(eventLoop: any EventLoop, connectionIDs: NIOLockedValueBox<UInt64>) {
        self.eventLoop = eventLoop
        self.sessions = .makeBoxSendingValue(Sessions(), eventLoop: eventLoop)
        self.connectionIDs = connectionIDs
    }

    // MARK: From any thread

    var statistics: ServerStatistics { self.counters.withLockedValue { $0.statistics } }
    var connectionCount: Int { self.counters.withLockedValue { $0.connections } }

    func add(_ statistics: ServerStatistics) {
        self.counters.withLockedValue { $0.statistics += statistics }
    }

    func nextConnectionID() -> UInt64 {
        self.connectionIDs.withLockedValue {
            $0 += 1
            return $0
        }
    }

    /// Hands `frame` to every session. How many took it.
    func push(_ frame: ByteBuffer) -> EventLoopFuture<Int> {
        self.eventLoop.submit {
            self.sessions.value.open.values.reduce(into: 0) { count, session in
                if session.push(frame) { count += 1 }
            }
        }
    }

    /// Lets every session finish what is in flight. Succeeds when the last one is gone.
    func drain() -> EventLoopFuture<Void> {
        self.eventLoop.flatSubmit {
            self.sessions.value.isDraining = true
            self.closeHandshakes()
            for session in Array(self.sessions.value.open.values) { session.drain() }
            guard !self.sessions.value.open.isEmpty else { return self.eventLoop.makeSucceededVoidFuture() }
            let empty = self.sessions.value.empty ?? self.eventLoop.makePromise(of: Void.self)
            self.sessions.value.empty = empty
            return empty.futureResult
        }
    }

    /// Closes every session at once.
    func kill() {
        self.eventLoop.execute {
            self.sessions.value.isDraining = true
            self.closeHandshakes()
            for session in Array(self.sessions.value.open.values) { session.kill() }
        }
    }

    // MARK: On the event loop

    var isDraining: Bool { self.sessions.value.isDraining }

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

    func add(_ session: ServerSession) {
        self.sessions.value.open[ObjectIdentifier(session)] = session
        self.counters.withLockedValue { $0.connections += 1 }
    }

    func remove(_ session: ServerSession) {
        guard self.sessions.value.open.removeValue(forKey: ObjectIdentifier(session)) != nil else { return }
        self.counters.withLockedValue { $0.connections -= 1 }
        if self.sessions.value.open.isEmpty {
            self.sessions.value.empty?.succeed()
            self.sessions.value.empty = nil
        }
    }
}
