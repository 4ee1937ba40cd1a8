import NIOConcurrencyHelpers
import NIOCore

/// One long connection to one of several servers, owned by a thread of its own: it connects, reconnects with jitter,
/// keeps the connection alive, and carries frames.
///
/// Use it alone to speak in frames. For calls with answers use `SocketClient` of HHSocketRPC, which is built on it.
///
/// All methods may be called from any thread and return at once. When the last reference goes the connection is closed
/// and the thread ends.
public final class Socket: Sendable {
    private let core: SocketCore
    private let bridge: DelegateBridge

    public init(configuration: SocketConfiguration) {
        self.core = SocketCore(configuration: configuration)
        self.bridge = DelegateBridge(core: self.core)
        self.core.setConsumer(self.bridge)
        self.bridge.setSocket(self)
    }

    deinit {
        self.core.invalidate()
    }

    /// Told what happens; held weakly.
    public var delegate: (any SocketDelegate)? {
        get { self.bridge.delegate }
        set { self.bridge.delegate = newValue }
    }

    /// What the socket is doing now.
    public var state: SocketState { self.core.state }

    /// What happens from now on. Each call makes a stream of its own, which keeps the latest 256 events for its reader
    /// and ends with the socket.
    public var events: AsyncStream<SocketEvent> { self.bridge.streams.makeStream() }

    /// Connects, and reconnects whenever the connection is lost, until ``disconnect()``. While waiting to reconnect it
    /// tries at once; connected or connecting already it does nothing. Where there is no network, by what the network monitor
    /// says, one round of attempts is made all the same: monitors err.
    public func connect() {
        self.core.submit(.closure { [core] in core.connect() })
    }

    /// The same as ``connect()``, but gives up after so many rounds without a ready connection, each of which tries every
    /// server once. With one server they are attempts. Once a connection is ready, ``Backoff/maximumRounds`` counts again.
    ///
    /// - Parameter attempts: 1 or more; less counts as 1.
    public func connect(attempts: Int) {
        self.core.submit(.closure { [core] in core.connect(attempts: attempts) })
    }

    /// Closes the connection, after what was sent has left (within a second), and stays closed until ``connect()``.
    public func disconnect() {
        self.core.submit(.closure { [core] in core.disconnect() })
    }

    /// Leaves the present server for the next best one, as soon as a connection to that is ready. If none can be reached
    /// the connection stays where it is.
    public func switchServer() {
        self.core.submit(.closure { [core] in core.switchServer(to: nil) })
    }

    /// Leaves the present server for `endpoint`, which is added to the list if it is new, as soon as a connection to it is
    /// ready. If it cannot be reached the connection stays where it is.
    public func switchServer(to endpoint: Endpoint) {
        self.core.submit(.closure { [core] in core.switchServer(to: endpoint) })
    }

    /// Replaces the list of servers. What is known of those that stay is kept. If the present one is not among them it is
    /// left, as by ``switchServer()``.
    public func setServers(_ servers: [Endpoint]) {
        self.core.submit(.closure { [core] in core.replaceServers(with: servers) })
    }

    /// To be called when the network has gone, has come back, or has changed its path.
    ///
    /// Without a network nothing is attempted, unless a server in the list is on this machine. When there is one again, or
    /// another, what waited connects at once, and a connection that looks alive is probed.
    ///
    /// For an app that knows better than ``SocketConfiguration/networkMonitor``; the last word counts, so it should then be
    /// nil.
    ///
    /// - Parameter name: What to call this network, such as the Wi-Fi's name; an adaptive heartbeat learns for each. Nil: as
    ///   before.
    public func networkDidChange(isReachable: Bool, name: String? = nil) {
        self.core.submit(.closure { [core] in core.networkChanged(isReachable: isReachable, label: name) })
    }

    /// To be called when the app goes into the background; what follows, ``SocketConfiguration/backgroundPolicy`` says.
    public func applicationDidEnterBackground() {
        self.core.submit(.closure { [core] in core.didEnterBackground() })
    }

    /// To be called when the app returns to the foreground: a connection that looks alive is probed, a dead one is made anew
    /// without waiting.
    public func applicationWillEnterForeground() {
        self.core.submit(.closure { [core] in core.willEnterForeground() })
    }

    /// Reads certificates and keys anew, on the calling thread: connections that are made from now on use them, the present one
    /// stays until it is lost or ``switchServer()`` is called. For client certificates that are replaced while the process runs.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` that says what cannot be read, or that the configuration has no
    ///   TLS; what was read before stays in use.
    public func reloadTLS() throws(SocketError) {
        try self.core.reloadTLS()
    }

    /// What happened to the connection lately, and why.
    public var history: ConnectionHistory { self.core.history }

    /// Sends a frame, and returns once it is on its way or queued within the high-water mark. Where there is no room, or no
    /// connection, it waits or fails as ``SocketConfiguration/writePolicy`` says. What is on its way when the connection is
    /// lost may be lost with it.
    ///
    /// - Parameter priority: Which of the frames that wait leaves first.
    /// - Throws: ``SocketError``; the frame was not sent. Codes: `notConnected`, `networkUnreachable` (there is no
    ///   network), `frameTooLarge`, `invalidArgument` (custom fields of the wrong width), `queueFull`; after a wait also why
    ///   there will be no connection, or `cancelled` when the Swift task was cancelled meanwhile.
    public func send(_ frame: Frame, priority: FramePriority = .default) async throws(SocketError) {
        let write = PendingWrite(frame, priority)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (writer: CheckedContinuation<Result<Void, SocketError>, Never>) in
                // Never refused: only the end of this object, which is still in use here, closes the queue.
                self.core.submit(
                    .closure { [core] in
                        if write.begin({ writer.resume(returning: $0) }) { core.perform(write) }
                    }
                )
            }
        } onCancel: {
            self.core.submit(.closure { [core] in core.cancel(write) })
        }
        try result.get()
    }
}

/// Turns what the core says into delegate callbacks and events.
private final class DelegateBridge: FrameConsumer, Sendable {
    private struct State {
        weak var socket: Socket?
        weak var delegate: (any SocketDelegate)?
    }

    let streams = EventStreams()
    private let state = NIOLockedValueBox(State())
    private let backlog = CallbackBacklog()
    // The core holds the bridge until it is invalidated.
    private unowned let core: SocketCore

    init(core: SocketCore) {
        self.core = core
    }

    func setSocket(_ socket: Socket) {
        self.state.withLockedValue { $0.socket = socket }
    }

    var delegate: (any SocketDelegate)? {
        get { self.state.withLockedValue { $0.delegate } }
        set { self.state.withLockedValue { $0.delegate = newValue } }
    }

    private func tell(_ body: @escaping @Sendable (any SocketDelegate, Socket) -> Void) {
        let (delegate, socket) = self.state.withLockedValue { ($0.delegate, $0.socket) }
        guard let delegate, let socket else { return }
        self.core.callBack(.closure { body(delegate, socket) })
    }

    func received(_ frame: Frame, on id: ConnectionID) {
        self.deliver(frame) { $0.socket($1, didReceive: frame) }
    }

    func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch, on id: ConnectionID) {
        self.deliver(frame) { $0.socket($1, didReceiveCorrupt: frame) }
    }

    /// The same as ``tell(_:)`` for what the server sends, which is not read while the delegate's queue is behind.
    private func deliver(_ frame: Frame, _ body: @escaping @Sendable (any SocketDelegate, Socket) -> Void) {
        let (delegate, socket) = self.state.withLockedValue { ($0.delegate, $0.socket) }
        guard let delegate, let socket else { return }
        let length = frame.payload.readableBytes
        if self.backlog.add(bytes: length) { self.core.setReading(isSuspended: true) }
        self.core.callBack(
            .closure { [core, backlog] in
                body(delegate, socket)
                guard backlog.remove(bytes: length) else { return }
                // Asked anew: since this was submitted the queue may have fallen behind again.
                core.submit(.closure { core.setReading(isSuspended: backlog.isFull) })
            }
        )
    }

    func happened(_ event: SocketEvent) {
        self.streams.yield(event)
        switch event {
        case .connected(let endpoint): self.tell { $0.socket($1, didConnectTo: endpoint) }
        case .connectFailed(let error): self.tell { $0.socket($1, didFailToConnectWith: error) }
        case .disconnected(let error): self.tell { $0.socket($1, didDisconnectWith: error) }
        case .gaveUp(let error): self.tell { $0.socket($1, didGiveUpWith: error) }
        case .closed: self.tell { $0.socketDidClose($1) }
        case .switched(let old, let new):
            let error = SocketError(
                .connectionLost,
                message: "the connection to \(old) was left for one to \(new)",
                endpoint: old
            )
            self.tell {
                $0.socket($1, didDisconnectWith: error)
                $0.socket($1, didConnectTo: new)
            }
        default: break
        }
    }

    func socketWasInvalidated() {
        self.streams.finish()
    }

    // Whoever speaks in frames knows alone what is in flight: what was sent has left, and that is all that is waited for.
    func connectionDrains(_ id: ConnectionID) { self.core.finishDraining(id) }
    func connectionIsReady(_ id: ConnectionID, _ endpoint: Endpoint, _ agreement: Agreement?) {}
    func connectionWasLost(_ id: ConnectionID, _ error: SocketError) {}
    func connectionIsOffline(_ error: SocketError) {}
    func connectionIsBeingMade() {}
    func isReceiving(_ arriving: FrameDecoder.Arriving) {}
    func timerFired() {}
    func turnEnded() {}
    func frameWillLeave(type: UInt32, serial: UInt32, on id: ConnectionID) -> Bool { true }
    func frameProgressed(type: UInt32, serial: UInt32, payloadBytes: Int) {}
}
