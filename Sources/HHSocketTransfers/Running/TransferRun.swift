// SPDX-License-Identifier: Apache-2.0
import Atomics
import DequeModule
import HHSocketRPC
import HHSocketTransferValues
import NIOCore

/// The control that a ``Transfer`` has over its work.
protocol TransferControl: Sendable {
    func start()
    func cancel(discarding: Bool)
}

/// The surroundings of a transfer.
struct TransferSetting: Sendable {
    var client: FollowedClient
    var types: TransferTypes
    var options: TransferClient.Options
    var work: FileWork
    var state: TransferState
}

/// A transfer in progress. Performs the decisions of its machine: subclasses have its actions, this class has streams,
/// timers, and the connection that it depends on.
///
/// Everything happens on the socket thread, except the work on files, which is submitted to ``work`` and reported by
/// ``post(_:)``.
class TransferRun<Machine: TransferMachine>: ConnectionFollower, TransferControl, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable, the variables are accessed only on the socket thread.

    let setting: TransferSetting
    private var machine: Machine
    private var actions: Deque<Machine.Action> = []
    private var isPerforming = false
    /// Whether the transfer's work in progress is no longer needed.
    let isUnwanted = ManagedAtomic(false)
    /// The stream of the current attempt, or of the last.
    private var current: FollowedStream?
    /// The connection that it is open on.
    private var connection: ConnectionID?
    /// The number of the current attempt. Events of others are stale.
    private var attempt = 0
    private var timer: (id: SocketLoop.TimerID, deadline: NIODeadline)?
    private var hasEnded = false

    init(_ machine: Machine, _ setting: TransferSetting) {
        self.machine = machine
        self.setting = setting
    }

    private var client: FollowedClient { self.setting.client }
    /// Whether the transfer has ended.
    var isOver: Bool { self.hasEnded }

    // MARK: For subclasses

    func perform(_ action: Machine.Action, in turn: inout Turn) {}
    func streamOpened(in turn: inout Turn) {}
    func receivedItem(_ item: ByteBuffer, in turn: inout Turn) {}
    /// Reports the progress of the stream to the machine.
    func checkTraffic(in turn: inout Turn) {}
    func cancelled(discarding: Bool, in turn: inout Turn) {}
    /// Ends the work on files; the unfinished file is kept.
    func closeFiles() {}

    /// The content that was sent or received.
    final var bytesMoved: UInt64 { self.machine.bytesMoved }

    final func failed(_ error: TransferError, in turn: inout Turn) {
        self.decide(in: &turn) { machine, _ in machine.failed(error) }
    }

    /// Passes an event to the machine, and performs its actions after those that are being performed.
    final func decide(in turn: inout Turn, _ event: (inout Machine, NIODeadline) -> [Machine.Action]) {
        self.actions.append(contentsOf: event(&self.machine, turn.now))
        guard !self.isPerforming else { return }
        self.isPerforming = true
        while let action = self.actions.popFirst() { self.perform(action, in: &turn) }
        self.isPerforming = false
    }

    // MARK: From any thread

    /// Begins the transfer.
    func start() {
        let isSubmitted = self.client.loop.submit { turn in
            guard self.client.acceptsCalls else {
                return self.over(.failure(Self.clientIsGone))
            }
            self.client.add(self)
            self.decide(in: &turn) { machine, _ in machine.start() }
            self.armTimer()
        }
        if !isSubmitted { self.setting.state.end(.failure(Self.clientIsGone)) }
    }

    /// Runs work for the transfer on the socket thread, unless the transfer has ended.
    func post(_ body: @escaping @Sendable (inout Turn) -> Void) {
        self.client.loop.submit { turn in
            guard !self.isOver else { return }
            body(&turn)
            self.armTimer()
        }
    }

    func cancel(discarding: Bool) {
        self.post { self.cancelled(discarding: discarding, in: &$0) }
    }

    private static var clientIsGone: TransferError {
        TransferError(.cancelled, "the client was released, or invalidated, before the transfer had ended")
    }

    // MARK: Streams

    var stream: FollowedStream? { self.current }

    /// Opens the stream of another attempt.
    func openStream(_ type: UInt32, _ kind: StreamKind, body: ByteBuffer = ByteBuffer()) {
        self.abandonStream()
        self.attempt += 1
        let attempt = self.attempt
        var request = SocketRequest(type: type, body: body, options: self.setting.options.call)
        request.priority = self.setting.options.priority
        request.waitsForConnectivity = true
        // Files rarely become smaller, and compressing them would process each byte twice.
        request.compresses = false
        request.timeout = nil
        request.deadline = nil
        self.current = self.client.openStream(request, kind) { item in
            self.postOfStream(attempt) { self.receivedItem(item, in: &$0) }
        } onEnd: { result in
            self.streamEnded(result, attempt)
        } onOpen: { connection in
            self.postOfStream(attempt) { turn in
                self.connection = connection
                self.machine.opened(now: turn.now)
                self.streamOpened(in: &turn)
            }
        }
    }

    private func postOfStream(_ attempt: Int, _ body: @escaping @Sendable (inout Turn) -> Void) {
        self.post { turn in
            if self.attempt == attempt { body(&turn) }
        }
    }

    /// A stream has ended, perhaps after the transfer.
    private func streamEnded(_ result: Result<SocketResponse, SocketError>, _ attempt: Int) {
        self.client.loop.submit { turn in
            guard self.attempt == attempt else { return }
            // It keeps this object.
            self.current = nil
            guard !self.isOver else { return }
            self.decide(in: &turn) { $0.streamEnded(result.error, now: $1) }
            self.armTimer()
        }
    }

    /// Cancels the stream, if there is one.
    func abandonStream() {
        self.attempt += 1
        guard let stream = self.current.take() else { return }
        stream.cancel()
    }

    /// The traffic of the stream so far; nil while it is not open.
    ///
    /// - Parameter asksSystem: Whether to query the system for the bytes that the peer has acknowledged.
    func traffic(asksSystem: Bool) -> StreamTraffic? {
        guard let connection = self.connection else { return nil }
        return self.stream?.traffic(on: connection, asksSystem: asksSystem)
    }

    /// Allows the server to send more than the window of hello before that is taken.
    func widenWindow(in turn: inout Turn) {
        guard let connection = self.connection else { return }
        self.stream?.widen(on: connection, to: TransferPart.window, in: &turn)
    }

    // MARK: The connection

    func replaceConnection(in turn: inout Turn) {
        guard let connection = self.connection.take(), self.client.replace(connection, in: &turn) else {
            // It has been replaced already.
            return self.post { self.connectionChanged(in: &$0) }
        }
    }

    func proveConnection(in turn: inout Turn) {
        if let connection = self.connection { self.client.prove(connection, in: &turn) }
    }

    // MARK: Time

    private func armTimer() {
        let deadline = self.isOver ? nil : self.machine.nextDeadline
        guard deadline != self.timer?.deadline else { return }
        if let timer = self.timer { self.client.loop.removeTimer(timer.id) }
        self.timer = deadline.map { deadline in
            let id = self.client.loop.setTimer(deadline) { turn in
                self.timer = nil
                guard !self.isOver else { return }
                self.checkTraffic(in: &turn)
                self.decide(in: &turn) { $0.timePassed(now: $1) }
                self.armTimer()
            }
            return (id, deadline)
        }
    }

    // MARK: The end

    /// The transfer has ended. `lastWork` is the remaining work on files before that is reported.
    func end(_ outcome: TransferState.Outcome, after lastWork: @escaping @Sendable () -> Void) {
        guard !self.isOver else { return }
        self.hasEnded = true
        self.isUnwanted.store(true, ordering: .relaxed)
        self.client.remove(self)
        self.armTimer()
        let (state, work) = (self.setting.state, self.setting.work)
        work.submit {
            lastWork()
            state.end(outcome)
        }
    }

    private func over(_ outcome: TransferState.Outcome) {
        self.hasEnded = true
        self.setting.state.end(outcome)
    }

    // MARK: The connection

    func happened(_ event: SocketEvent) {
        switch event {
        case .connected, .switched, .switchFailed, .disconnected:
            self.post { self.connectionChanged(in: &$0) }
        case .gaveUp(let error):
            self.post { self.decide(in: &$0) { machine, _ in machine.clientGaveUp(error) } }
        default: break
        }
    }

    private func connectionChanged(in turn: inout Turn) {
        self.decide(in: &turn) { $0.connectionChanged(now: $1) }
    }

    func clientIsGone() {
        // Its stream has been ended with it.
        self.current = nil
        self.timer = nil
        guard !self.isOver else { return }
        self.hasEnded = true
        self.isUnwanted.store(true, ordering: .relaxed)
        let state = self.setting.state
        self.setting.work.submit {
            self.closeFiles()
            state.end(.failure(Self.clientIsGone))
        }
    }
}
