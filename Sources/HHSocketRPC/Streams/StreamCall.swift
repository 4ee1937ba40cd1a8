// SPDX-License-Identifier: Apache-2.0
import Atomics
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The carrier of a stream, as its call sees it.
protocol StreamCallOwner: AnyObject, Sendable {
    var loop: SocketLoop { get }
    var reporter: CallReporter { get }
    /// The largest size of an item, in bytes.
    var maximumItemLength: Int { get }
    /// Processes the application's changes to a stream. Returns false if it is not open. Socket thread only.
    func visit(_ call: StreamCall, in turn: inout Turn) -> Bool
    /// Drops received items, which the application does not need. Returns false if the stream is not open. Socket
    /// thread only.
    func release(_ call: StreamCall, in turn: inout Turn) -> Bool
    /// Ends an open stream by an error of this side; without effect on any other. Socket thread only.
    func endByUser(_ call: StreamCall, _ error: SocketError, in turn: inout Turn)
    /// A stream has ended on its connection, after all of its items. Socket thread only.
    func ended(_ call: StreamCall, _ end: StreamEnd, in turn: inout Turn)
}

/// The state of a stream that its handle, its readers and its senders share with the socket thread, from its start to
/// its end.
///
/// Items pass through its ``/HHSocket/StreamPort``.
final class StreamCall: CallParty {
    struct State {
        /// Whether the opening has been handed to a connection.
        var isOpen = false
        /// The serial and the server of the opening that was handed to a connection last.
        var address: StreamAddress?
        /// The result, once there is one.
        var end: Result<SocketResponse, SocketError>?
        /// Whether the client is failing over, or the server is shutting down.
        var isDraining = false
        var drainHandlers: [@Sendable () -> Void] = []
        /// The waiters for the opening, or for an earlier end.
        var openers: [TurnWaiter] = []
        /// The waiters for the end.
        var enders: [TurnWaiter] = []

        // Receiving.
        /// The cost of the items that readers may have taken without a report: at the end of a batch, and before that.
        var reportLimits: (quiet: UInt64, most: UInt64) = (0, 0)

        // Callbacks.
        /// Whether they are running, or about to.
        var isCallingBack = false
        var wasEndReported = false
    }

    /// The socket thread's part.
    struct Flight {
        /// The connection that the stream is, or was last, open on.
        var connection = ConnectionID(number: 0)
        var id: StreamID?
        /// Whether an item was passed on for sending, or was received.
        var hasMoved = false
        /// The number of bytes of the items that were passed on for sending, in all attempts.
        var sentBytes = 0
        /// The identifier of the call's task.
        var identifier = 0
        /// Whether it is queued until a stream may be opened.
        var isInLine = false
        /// The error with which the last attempt ended, for interceptors that request another.
        var lastError: SocketError?

        /// Whether the stream may be opened again, on this connection or another.
        var mayOpenAgain: Bool { !self.hasMoved }
    }

    /// The largest amount that an outbox accepts without the socket thread, in bytes.
    static let maximumOutboxCost: UInt64 = 128 << 10

    private let carrier: any StreamCallOwner
    let loop: SocketLoop
    /// The largest size of an item, in bytes.
    let maximumItemLength: Int
    let kind: StreamKind
    let callbackQueue: CallbackQueue?
    let onItem: (@Sendable (ByteBuffer) -> Void)?
    let onEnd: (@Sendable (Result<SocketResponse, SocketError>) -> Void)?
    /// Called on the socket thread when the stream has been handed to a connection.
    let onOpen: (@Sendable (ConnectionID) -> Void)?
    let state = NIOLockedValueBox(State())
    let port: StreamPort
    /// Whether waiting items are no longer needed.
    let isCancelled = ManagedAtomic(false)
    /// Whether no callback may run.
    let isPaused = ManagedAtomic(false)
    /// Proof of `nonisolated(unsafe)`: accessed only on the socket thread.
    #if !DEBUG && !CHECKED_EXCLUSIVITY
    @exclusivity(unchecked)
    #endif
    private nonisolated(unsafe) var current = Flight()

    init(
        _ carrier: any StreamCallOwner,
        _ kind: StreamKind,
        callbackQueue: CallbackQueue?,
        onItem: (@Sendable (ByteBuffer) -> Void)? = nil,
        onEnd: (@Sendable (Result<SocketResponse, SocketError>) -> Void)? = nil,
        onOpen: (@Sendable (ConnectionID) -> Void)? = nil
    ) {
        self.carrier = carrier
        self.loop = carrier.loop
        self.port = StreamPort(
            inbox: Inbox(.items(detaching: .behind), account: nil, loop: carrier.loop),
            account: nil,
            largestRoom: Self.maximumOutboxCost
        )
        self.maximumItemLength = carrier.maximumItemLength
        self.kind = kind
        self.callbackQueue = callbackQueue
        self.onItem = onItem
        self.onEnd = onEnd
        self.onOpen = onOpen
    }

    // MARK: Visits

    enum Operation: UInt8 { case visit, release }

    /// Ends the stream by an error of this side. Any thread.
    func fail(_ error: SocketError) {
        self.loop.submit(.closure { self.carrier.endByUser(self, error, in: &$0) })
    }

    /// Submits a release of the received items to the socket thread.
    func submitRelease() { self.loop.submit(.work(self, Operation.release.rawValue)) }

    /// Submits a visit of the socket thread.
    func submitVisit() {
        // A client that was released has ended the stream, or does so now.
        self.loop.submit(.work(self, Operation.visit.rawValue))
    }

    // MARK: For its carrier, on the socket thread

    var flight: Flight { self.current }

    func begins(asTask identifier: Int) { self.current.identifier = identifier }

    func isQueued(_ isInLine: Bool) { self.current.isInLine = isInLine }

    func attemptFailed(_ error: SocketError) { self.current.lastError = error }

    // MARK: The opening

    /// The stream has been handed to a connection. Socket thread only.
    func opened(
        _ id: StreamID,
        on connection: ConnectionID,
        at address: StreamAddress,
        compression: CompressionPolicy?,
        limits: (quiet: UInt64, most: UInt64),
        in turn: inout Turn
    ) {
        self.current.connection = connection
        self.current.id = id
        let openers = self.state.withLockedValue { state in
            state.isOpen = true
            state.address = address
            state.reportLimits = limits
            state.isDraining = false
            defer { state.openers = [] }
            return state.openers
        }
        self.port.open(compression: compression)
        for opener in openers { turn.resume(opener) }
        if let onOpen = self.onOpen { turn.after { _ in onOpen(connection) } }
    }

    /// Registers a waiter until the stream has been opened, or has ended.
    ///
    /// - Returns: Whether there is something to wait for.
    func awaitOpening(_ waiter: TurnWaiter) -> Bool {
        self.state.withLockedValue { state in
            guard !state.isOpen, state.end == nil else { return false }
            state.openers.append(waiter)
            return true
        }
    }

    /// The result, if there is one and the stream was never opened.
    var endBeforeOpening: Result<SocketResponse, SocketError>? {
        self.state.withLockedValue { $0.isOpen ? nil : $0.end }
    }

    // MARK: The end

    var end: Result<SocketResponse, SocketError>? { self.state.withLockedValue { $0.end } }

    /// Registers a waiter until the stream has ended.
    ///
    /// - Returns: Whether there is something to wait for.
    func awaitEnd(_ waiter: TurnWaiter) -> Bool {
        self.state.withLockedValue { state in
            guard state.end == nil else { return false }
            state.enders.append(waiter)
            return true
        }
    }

    /// The stream has ended. Called once, on the socket thread, or on any if that has ended.
    ///
    /// - Parameter resume: Resumes a waiter.
    func ended(_ end: Result<SocketResponse, SocketError>, _ resume: (TurnWaiter) -> Void) {
        let (waiters, callsBack) = self.state.withLockedValue { state in
            guard state.end == nil else { return ([TurnWaiter](), false) }
            state.end = end
            let waiters = state.openers + state.enders
            state.openers = []
            state.enders = []
            state.drainHandlers = []
            return (waiters, self.mustCallBack(&state))
        }
        for waiter in waiters { resume(waiter) }
        if self.isCancelled.load(ordering: .relaxed) { self.port.inbox.discard() }
        // After the end is known, which readers and senders check.
        self.port.inbox.finish(resume: resume)
        self.port.end { sender in
            switch sender {
            case .task(let waiter): resume(waiter)
            case .handler(let handler):
                let error = self.noItemIsSent(after: end)
                self.callBack { handler(error) }
            }
        }
        if callsBack { self.scheduleCallbacks() }
    }

    /// The error of an item that cannot be sent, since the stream has ended this way.
    func noItemIsSent(after end: Result<SocketResponse, SocketError>) -> SocketError {
        switch end {
        case .failure(let error): error
        case .success(let response):
            SocketError(
                .cancelled,
                message: """
                    \(response.endpoint) has ended the stream of type \(response.type), serial \(response.serial), with \
                    status 200: it accepts no more items
                    """,
                endpoint: response.endpoint,
                serial: response.serial,
                delivery: .answered
            )
        }
    }

    // MARK: Draining

    /// The client is failing over, or the server is shutting down. Socket thread only.
    func drains() {
        let handlers = self.state.withLockedValue { state -> [@Sendable () -> Void] in
            guard !state.isDraining, state.end == nil else { return [] }
            state.isDraining = true
            defer { state.drainHandlers = [] }
            return state.drainHandlers
        }
        for handler in handlers { self.callBack(handler) }
    }

    func onDraining(_ handler: @escaping @Sendable () -> Void) {
        let isDraining = self.state.withLockedValue { state in
            if !state.isDraining, state.end == nil { state.drainHandlers.append(handler) }
            return state.isDraining && state.end == nil
        }
        if isDraining { self.callBack(handler) }
    }
}

extension StreamCall: SubmittedWork {
    func performOnSocketThread(_ operation: UInt8, in turn: inout Turn) {
        let isOpen: Bool
        switch Operation(rawValue: operation) {
        case .visit: isOpen = self.carrier.visit(self, in: &turn)
        case .release: isOpen = self.carrier.release(self, in: &turn)
        case nil: return assertionFailure("unknown operation \(operation)")
        }
        if !isOpen { self.port.visitFails() }
    }
}

extension StreamCall: StreamParty {
    func received(_ items: inout Deque<StreamItem>, in turn: inout Turn) {
        self.current.hasMoved = true
        self.carrier.reporter.count(\.receivedItems, by: items.count)
        self.port.inbox.append(contentsOf: &items) { turn.resume($0) }
        if self.hasCallbacks, self.state.withLockedValue({ self.mustCallBack(&$0) }) {
            turn.callBack(.work(self), on: self.callbackQueue)
        }
    }

    func sent(_ items: StreamPort.Settled) {
        self.current.hasMoved = true
        self.current.sentBytes += items.bytes
        self.carrier.reporter.count(\.sentItems, by: items.count)
    }

    func resume(_ sender: StreamPort.Sender, in turn: inout Turn) {
        switch sender {
        case .task(let waiter): turn.resume(waiter)
        case .handler(let handler): self.callBack { handler(nil) }
        }
    }

    func ended(_ end: StreamEnd, in turn: inout Turn) {
        self.current.hasMoved = self.current.hasMoved || end.hasMoved
        self.carrier.ended(self, end, in: &turn)
    }
}
