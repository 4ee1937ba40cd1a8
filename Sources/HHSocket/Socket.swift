// SPDX-License-Identifier: Apache-2.0
/// A long connection to one of several servers, on its own thread: it connects, reconnects with jitter, sends
/// heartbeats, and carries frames.
///
/// Use it to exchange frames. For calls with answers use `SocketClient` of HHSocketRPC, which has its own connection.
///
/// All methods may be called from any thread and return at once. When the last reference is released the connection is
/// closed and the thread ends.
public final class Socket: ConnectionControl {
    private let driver: Driver
    private let session: RawSession

    public init(configuration: SocketConfiguration) {
        let rules = FrameRules(configuration)
        let connector = FrameConnector(rules)
        self.driver = Driver(configuration: configuration, maker: connector, refusal: rules.refusal)
        self.session = RawSession(driver: self.driver, rules: rules)
        connector.attach(to: self.driver, self.session)
        self.driver.setHost(self.session)
        self.session.setSocket(self)
    }

    deinit {
        self.driver.invalidate()
    }

    public var _driver: ControlledDriver { ControlledDriver(self.driver) }

    /// The delegate, which is notified of events; held weakly.
    public var delegate: (any SocketDelegate)? {
        get { self.session.delegate }
        set { self.session.delegate = newValue }
    }

    /// A new stream of events, from now on, which keeps the latest 256 for its reader and ends with the socket.
    public var events: AsyncStream<SocketEvent> { self.session.streams.makeStream() }

    /// Sends a frame, and returns once it is sent or queued within the high-water mark. If there is no room, or no
    /// connection, it waits or fails according to ``SocketConfiguration/writePolicy``. Frames sent shortly before the
    /// connection is lost may be lost with it.
    ///
    /// - Parameters:
    ///   - frame: The frame.
    ///   - priority: The frame's priority among those that wait.
    /// - Throws: ``SocketError``; the frame was not sent. Codes: `notConnected`, `networkUnreachable` (there is no
    ///   network), `frameTooLarge`, `invalidArgument` (custom fields of the wrong width), `queueFull`; after a wait
    ///   also the code with which attempts stopped, or `cancelled` if the Swift task was cancelled meanwhile.
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
            // Capturing the isolation makes this closure inherit it, which avoids a hop to another executor and back.
            _ = isolation
            return await withCheckedContinuation { (writer: CheckedContinuation<Result<Void, SocketError>, Never>) in
                // Never refused: the queue closes only in this object's `deinit`.
                self.driver.submit { [session] turn in
                    if write.begin({ writer.resume(returning: $0) }) { session.perform(write, in: &turn) }
                }
            }
        } onCancel: {
            self.driver.submit { [session] _ in session.cancel(write) }
        }
    }
}
