// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

/// The part of a ``Socket`` on its thread: sends frames, and notifies the delegate of received ones.
final class RawSession: DriverHost, FrameHost, TurnHost, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable or locked; the rest is accessed only on the socket thread.
    private struct State {
        weak var socket: Socket?
        weak var delegate: (any SocketDelegate)?
    }

    let streams = EventStreams()
    private let state = NIOLockedValueBox(State())
    private let backlog = CallbackBacklog()
    let rules: FrameRules
    /// Holds this object until it is invalidated. Afterwards only connections do that still close, whose links hold the
    /// driver.
    private unowned let driver: Driver
    private let encoder: FrameEncoder
    /// The connection that is ready.
    private var connection: RawConnection?
    /// Writers that wait for room, or for a connection.
    private var writers = WriterQueue()
    /// Whether attempts to connect begin later unless they are requested.
    private var isReconnectDeferred = false

    init(driver: Driver, rules: FrameRules) {
        self.driver = driver
        self.rules = rules
        self.encoder = FrameEncoder(direction: .request, format: rules.format)
    }

    func setSocket(_ socket: Socket) {
        self.state.withLockedValue { $0.socket = socket }
    }

    var delegate: (any SocketDelegate)? {
        get { self.state.withLockedValue { $0.delegate } }
        set { self.state.withLockedValue { $0.delegate = newValue } }
    }

    // MARK: Connections

    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .draining(let id):
            // Only the user of raw frames knows what is in flight: draining waits only until the sent bytes have been
            // flushed.
            self.driver.perform(.finishDraining(id), in: &turn)
        case .lost(let id, let error):
            self.lose(id, error, in: &turn)
        case .reconnectDeferred:
            self.isReconnectDeferred = true
            // Waiting frames are sent on the current connection, but they show that it is in use.
            if !self.writers.isEmpty { self.reconnectSooner(in: &turn) }
        case .happened(let event):
            self.happened(event, in: &turn)
        case .invalidated:
            self.streams.finish()
        case .beingMade, .goingAway, .offline:
            break
        }
    }

    func connectionIsReady(_ pending: PendingConnection, in turn: inout Turn) {
        self.isReconnectDeferred = false
        let connection = RawConnection(link: pending.link, endpoint: pending.endpoint, session: self)
        self.connection = connection
        pending.link.receiver = connection
        let unread = pending.finish(in: &turn)
        _ = self.admitWriters(to: connection, in: &turn)
        for frame in unread { self.receivedFrame(frame, in: &turn) }
    }

    private func lose(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        if self.connection?.link.id == id {
            self.connection?.link.releaseReceiver(in: &turn)
            self.connection = nil
        }
        guard self.connection == nil, self.rules.configuration.writePolicy.whenNotReady == .fail else { return }
        self.writers.failAll(error)
    }

    private func reconnectSooner(in turn: inout Turn) {
        self.isReconnectDeferred = false
        self.driver.perform(.reconnectSooner, in: &turn)
    }

    func turnEnds(in turn: inout Turn) {}

    func turnEnded() {
        self.driver.measure()
    }

    // MARK: Writers

    /// Sends the frame as soon as ``WritePolicy`` lets it, and completes `write` then.
    func perform(_ write: PendingWrite, in turn: inout Turn) {
        if self.isReconnectDeferred { self.reconnectSooner(in: &turn) }
        do throws(SocketError) {
            try self.rules.check(write.frame)
            if let connection = self.connection {
                try self.perform(write, on: connection, in: &turn)
            } else {
                guard self.rules.configuration.writePolicy.whenNotReady == .wait, !self.driver.isInvalidated,
                    !self.driver.isClosed
                else { throw self.driver.notConnected() }
                try self.wait(write)
            }
        } catch {
            write.complete(.failure(error))
        }
    }

    private func cost(of frame: Frame) -> Int {
        self.encoder.encodedLength(of: frame)
    }

    private func perform(_ write: PendingWrite, on connection: RawConnection, in turn: inout Turn) throws(SocketError) {
        let policy = self.rules.configuration.writePolicy
        if self.writers.isEmpty, connection.hasRoom(for: self.cost(of: write.frame)) {
            try connection.send(write, in: &turn)
            return write.complete(.success(()))
        }
        guard policy.whenFull == .wait else {
            throw FrameRules.queueFull(
                write.frame,
                to: connection.endpoint,
                bound: policy.highWaterMark,
                named: "WritePolicy.highWaterMark"
            )
        }
        try self.wait(write)
    }

    private func wait(_ write: PendingWrite) throws(SocketError) {
        let limit = self.rules.configuration.maximumQueuedBytes
        guard self.writers.append(write, length: self.cost(of: write.frame), limit: limit) else {
            throw FrameRules.queueFull(
                write.frame,
                to: self.connection?.endpoint,
                bound: limit,
                named: "maximumQueuedBytes"
            )
        }
    }

    /// The writer waits no longer.
    func cancel(_ write: PendingWrite) {
        self.writers.cancel(write)
    }

    /// Admits the writers for which there is room now. Returns whether there was one.
    func admitWriters(to connection: RawConnection, in turn: inout Turn) -> Bool {
        var isAdmitted = false
        while let write = self.writers.popFirst(where: { connection.hasRoom(for: $0) }) {
            isAdmitted = true
            do throws(SocketError) {
                try connection.send(write, in: &turn)
                write.complete(.success(()))
            } catch {
                write.complete(.failure(error))
            }
        }
        return isAdmitted
    }

    // MARK: Notifying the delegate

    private func notifyDelegate(in turn: inout Turn, _ body: @escaping @Sendable (any SocketDelegate, Socket) -> Void) {
        let (delegate, socket) = self.state.withLockedValue { ($0.delegate, $0.socket) }
        guard let delegate, let socket else { return }
        turn.callBack(.closure { body(delegate, socket) })
    }

    func receivedFrame(_ frame: Frame, in turn: inout Turn) {
        self.deliver(frame, in: &turn) { $0.socket($1, didReceive: $2) }
    }

    func receivedCorrupt(_ frame: Frame, in turn: inout Turn) {
        self.deliver(frame, in: &turn) { $0.socket($1, didReceiveCorrupt: $2) }
    }

    func receivedMalformed(_ error: FrameError, in turn: inout Turn) {
        self.notifyDelegate(in: &turn) { $0.socket($1, didReceiveMalformed: error) }
    }

    /// The contents of a go-away are ignored; the client only fails over.
    func receivedGoAway(_ frame: Frame, on id: ConnectionID, in turn: inout Turn) {
        self.driver.perform(.goAway(id, GoAway(), isAnnounced: true), in: &turn)
    }

    /// Notifies the delegate of a received frame, like ``notifyDelegate(in:_:)``; reading stops while the delegate's
    /// queue is behind.
    private func deliver(
        _ frame: Frame,
        in turn: inout Turn,
        _ body: @escaping @Sendable (any SocketDelegate, Socket, Frame) -> Void
    ) {
        let (delegate, socket) = self.state.withLockedValue { ($0.delegate, $0.socket) }
        guard let delegate, let socket else { return }
        let length = frame.payload.readableBytes
        var frame = frame
        if self.backlog.isBehind { frame.payload = frame.payload.detached }
        if self.backlog.add(bytes: length) { self.driver.perform(.setReading(isSuspended: true), in: &turn) }
        turn.callBack(
            .closure { [driver, backlog, frame] in
                body(delegate, socket, frame)
                guard backlog.remove(bytes: length) else { return }
                // Checked again: the queue may have fallen behind since this was submitted.
                driver.submit { driver.perform(.setReading(isSuspended: backlog.isFull), in: &$0) }
            }
        )
    }

    private func happened(_ event: SocketEvent, in turn: inout Turn) {
        switch event {
        // No reconnect will happen, so nothing waits for one.
        case .closed: self.writers.failAll(Driver.closedByUser)
        case .gaveUp(let error): self.writers.failAll(error)
        default: break
        }
        self.streams.yield(event)
        switch event {
        case .connected(let endpoint): self.notifyDelegate(in: &turn) { $0.socket($1, didConnectTo: endpoint) }
        case .connectFailed(let error): self.notifyDelegate(in: &turn) { $0.socket($1, didFailToConnectWith: error) }
        case .disconnected(let error): self.notifyDelegate(in: &turn) { $0.socket($1, didDisconnectWith: error) }
        case .gaveUp(let error): self.notifyDelegate(in: &turn) { $0.socket($1, didGiveUpWith: error) }
        case .closed: self.notifyDelegate(in: &turn) { $0.socketDidClose($1) }
        case .switched(let old, let new):
            let error = SocketError(
                .connectionLost,
                message: "the connection to \(old) was left for one to \(new)",
                endpoint: old
            )
            self.notifyDelegate(in: &turn) {
                $0.socket($1, didDisconnectWith: error)
                $0.socket($1, didConnectTo: new)
            }
        default: break
        }
    }
}

/// A ready connection of a ``Socket``.
final class RawConnection: LinkReceiver {
    typealias Language = FrameLanguage

    let link: Link<FrameLanguage>
    let endpoint: Endpoint
    /// Retained until the link is closed, which still receives frames when the session has another connection, or none.
    private let session: RawSession
    private let format: WireFormat
    private let policy: WritePolicy

    init(link: Link<FrameLanguage>, endpoint: Endpoint, session: RawSession) {
        self.link = link
        self.endpoint = endpoint
        self.session = session
        self.format = session.rules.format
        self.policy = session.rules.configuration.writePolicy
        link.reportsRoom = true
    }

    /// Whether a frame of this length on the wire stays within the high-water mark.
    func hasRoom(for length: Int) -> Bool {
        let waiting = self.link.waitingBytes
        return waiting == 0 || length <= self.policy.highWaterMark - waiting
    }

    func send(_ write: PendingWrite, in turn: inout Turn) throws(SocketError) {
        _ = try self.session.rules.send(write.frame, write.priority, on: self.link, to: self.endpoint, in: &turn)
    }

    func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        while batch.continues {
            var frame = ArrivedFrame()
            switch try batch.nextFrame(into: &frame) {
            case .nothing: return
            case .sound: self.receivedFrame(frame.lend(), in: &turn)
            case .corrupt: self.session.receivedCorrupt(frame.lend(), in: &turn)
            case .malformed(let error): self.session.receivedMalformed(error, in: &turn)
            }
        }
    }

    private func receivedFrame(_ frame: Frame, in turn: inout Turn) {
        guard self.format.isControlType(frame.type) else { return self.session.receivedFrame(frame, in: &turn) }
        if self.format.isGoAway(frame) { self.session.receivedGoAway(frame, on: self.link.id, in: &turn) }
        if self.format.isServerPing(frame) { self.link.answer(ping: frame, self.format, in: &turn) }
    }

    func hasRoom(in turn: inout Turn) -> Bool {
        guard self.link.waitingBytes <= self.policy.lowWaterMark else { return false }
        return self.session.admitWriters(to: self, in: &turn)
    }
}

extension Link where Language == FrameLanguage {
    /// Answers a server's ping. A refused answer means that the server does not read: the write-stall timeout applies
    /// then.
    package func answer(ping: Frame, _ format: WireFormat, in turn: inout Turn) {
        self.send(format.heartbeatAnswer(to: ping), .control, in: &turn)
    }
}
