import NIOConcurrencyHelpers
import NIOCore

/// One long connection to one of several servers, owned by a thread of its own: it connects, reconnects with jitter,
/// keeps the connection alive, and carries frames.
///
/// Use it alone to speak in frames. For calls with answers use `SocketClient` of HHSocketRPC, which is built on it.
///
/// All methods may be called from any thread and return at once. When the last reference goes the connection is closed
/// and the thread ends.
public final class Socket: ConnectionControl {
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

    public var _driver: ControlledDriver { ControlledDriver(self.driver) }

    /// The socket's thread, for Swift tasks and actors that are to run there.
    public var executor: SocketExecutor { self.driver.executor }

    /// Told what happens; held weakly.
    public var delegate: (any SocketDelegate)? {
        get { self.session.delegate }
        set { self.session.delegate = newValue }
    }

    /// What happens from now on. Each call makes a stream of its own, which keeps the latest 256 events for its reader
    /// and ends with the socket.
    public var events: AsyncStream<SocketEvent> { self.session.streams.makeStream() }

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
