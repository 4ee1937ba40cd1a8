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
    private let driver: Driver
    private let session: RawSession

    public init(configuration: SocketConfiguration) {
        let rules = FrameRules(configuration)
        let connector = FrameConnector(rules)
        self.driver = Driver(configuration: configuration, maker: connector, refusal: rules.refusal)
        self.session = RawSession(driver: self.driver, connector: connector)
        // What a server says of its end is not looked at: it is left.
        connector.attach(to: self.driver) { _, _, _ in ServerDeparture() }
        self.driver.setHost(self.session)
        self.session.setSocket(self)
    }

    deinit {
        self.driver.invalidate()
    }

    /// The socket's thread, for Swift tasks and actors that are to run there.
    public var executor: SocketExecutor { self.driver.executor }

    /// Told what happens; held weakly.
    public var delegate: (any SocketDelegate)? {
        get { self.session.delegate }
        set { self.session.delegate = newValue }
    }

    /// What the socket is doing now.
    public var state: SocketState { self.driver.state }

    /// What happens from now on. Each call makes a stream of its own, which keeps the latest 256 events for its reader
    /// and ends with the socket.
    public var events: AsyncStream<SocketEvent> { self.session.streams.makeStream() }

    /// Connects, and reconnects whenever the connection is lost, until ``disconnect()``. While waiting to reconnect it
    /// tries at once; connected or connecting already it does nothing. Where there is no network, by what the network
    /// monitor says, one round of attempts is made all the same: monitors err.
    public func connect() {
        self.driver.submit(.closure { [driver] in driver.connect(in: &$0) })
    }

    /// Connects as ``connect()`` does, but gives up after a number of rounds without a ready connection, each of which
    /// tries every server once. With one server they are attempts. Once a connection is ready,
    /// ``Backoff/maximumRounds`` counts again.
    ///
    /// - Parameter attempts: 1 or more; less counts as 1.
    public func connect(attempts: Int) {
        self.driver.submit(.closure { [driver] in driver.connect(attempts: attempts, in: &$0) })
    }

    /// Closes the connection, after what was sent has left (within a second), and stays closed until ``connect()``.
    public func disconnect() {
        self.driver.submit(.closure { [driver] in driver.disconnect(in: &$0) })
    }

    /// Leaves the present server for the next best one, as soon as a connection to that is ready. If none can be
    /// reached the connection stays where it is.
    public func switchServer() {
        self.driver.submit(.closure { [driver] in driver.switchServer(to: nil, in: &$0) })
    }

    /// Leaves the present server for `endpoint`, which is added to the list if it is new, as soon as a connection to it
    /// is ready. If it cannot be reached the connection stays where it is.
    public func switchServer(to endpoint: Endpoint) {
        self.driver.submit(.closure { [driver] in driver.switchServer(to: endpoint, in: &$0) })
    }

    /// Replaces the list of servers. What is known of those that stay is kept. If the present one is not among them it
    /// is left, as by ``switchServer()``.
    public func setServers(_ servers: [Endpoint]) {
        self.driver.submit(.closure { [driver] in driver.replaceServers(with: servers, in: &$0) })
    }

    /// To be called when the network has gone, has come back, or has changed its path.
    ///
    /// Without a network nothing is attempted, unless a server in the list is on this machine. When there is one again,
    /// or another, what waited connects at once, and a connection that looks alive is probed.
    ///
    /// For an app that knows better than ``SocketConfiguration/networkMonitor``; the last word counts, so it should
    /// then be nil.
    ///
    /// - Parameter name: What to call this network, such as the Wi-Fi's name; an adaptive heartbeat learns for each.
    ///   Nil: as before.
    public func networkDidChange(isReachable: Bool, name: String? = nil) {
        self.driver.submit(
            .closure { [driver] in driver.networkChanged(isReachable: isReachable, label: name, in: &$0) }
        )
    }

    /// To be called when the app goes into the background; what follows, ``SocketConfiguration/backgroundPolicy`` says.
    public func applicationDidEnterBackground() {
        self.driver.submit(.closure { [driver] in driver.didEnterBackground(in: &$0) })
    }

    /// To be called when the app returns to the foreground: a connection that looks alive is probed, a dead one is made
    /// anew without waiting.
    public func applicationWillEnterForeground() {
        self.driver.submit(.closure { [driver] in driver.willEnterForeground(in: &$0) })
    }

    /// Reads certificates and keys anew, on the calling thread: connections that are made from now on use them, the
    /// present one stays until it is lost or ``switchServer()`` is called. For client certificates that are replaced
    /// while the process runs.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` that says what cannot be read, or that the configuration
    ///   has no TLS; what was read before stays in use.
    public func reloadTLS() throws(SocketError) {
        try self.driver.reloadTLS()
    }

    /// What happened to the connection lately, and why.
    public var history: ConnectionHistory { self.driver.history }

    /// Sends a frame, and returns once it is on its way or queued within the high-water mark. Where there is no room,
    /// or no connection, it waits or fails as ``SocketConfiguration/writePolicy`` says. What is on its way when the
    /// connection is lost may be lost with it.
    ///
    /// - Parameter priority: Which of the frames that wait leaves first.
    /// - Throws: ``SocketError``; the frame was not sent. Codes: `notConnected`, `networkUnreachable` (there is no
    ///   network), `frameTooLarge`, `invalidArgument` (custom fields of the wrong width), `queueFull`; after a wait
    ///   also why there will be no connection, or `cancelled` when the Swift task was cancelled meanwhile.
    public nonisolated(nonsending) func send(
        _ frame: Frame,
        priority: FramePriority = .default
    ) async throws(SocketError) {
        try await self.perform(PendingWrite(frame, priority)).get()
    }

    private func perform(
        _ write: PendingWrite,
        isolation: isolated (any Actor)? = #isolation
    ) async -> Result<Void, SocketError> {
        await withTaskCancellationHandler {
            // What captures the isolation has it. Else it would begin elsewhere, and come back.
            _ = isolation
            return await withCheckedContinuation { (writer: CheckedContinuation<Result<Void, SocketError>, Never>) in
                // Never refused: only the end of this object, which is still in use here, closes the queue.
                self.driver.submit(
                    .closure { [session] turn in
                        if write.begin({ writer.resume(returning: $0) }) { session.perform(write, in: &turn) }
                    }
                )
            }
        } onCancel: {
            self.driver.submit(.closure { [session] _ in session.cancel(write) })
        }
    }
}
