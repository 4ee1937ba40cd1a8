import NIOCore

/// The floor below a ``FrameConsumer``: what it may ask of a connection. On the socket thread, where nothing else is said.
///
/// ``SocketCore`` is the one. It is a protocol so that what decides about calls can be tested on a connection in virtual
/// time.
package protocol FrameCarrier: AnyObject, Sendable {
    /// How frames are laid out.
    var format: WireFormat { get }
    /// The largest payload that can be sent, in bytes.
    var maximumPayloadLength: Int { get }
    /// Where delegate callbacks and completion handlers run.
    var callbackQueue: CallbackQueue { get }

    // MARK: From any thread

    /// Has `submission` run on the socket thread, after all that was submitted before.
    ///
    /// - Returns: False if the socket was invalidated and nothing runs any more.
    @discardableResult
    func submit(_ submission: Submission) -> Bool

    // MARK: The connection

    /// When the present turn or read began: the time for all that it does.
    var now: NIODeadline { get }
    /// The server connected to, or being connected to.
    var currentEndpoint: Endpoint? { get }
    /// The last attempt's.
    var lastError: SocketError? { get }
    /// Whether nobody reconnects any more: the user has disconnected, or attempts have stopped.
    var isClosed: Bool { get }
    /// Whether there is a network, as far as is known.
    var isNetworkReachable: Bool { get }
    /// Why nothing can be sent now.
    func notConnected() -> SocketError
    /// What those who wait are told after the user has disconnected.
    var closedByUser: SocketError { get }

    /// Whether bytes that come are left where they are, on every connection there is and will be.
    func setReading(isSuspended: Bool)

    // MARK: Turns

    /// Runs `body` as one turn: what it sends leaves together, what it calls back is handed over together.
    func turn(_ body: () -> Void)
    /// Has ``FrameConsumer/timerFired()`` called at `deadline` instead of at the moment asked for before.
    func setConsumerTimer(_ deadline: NIODeadline)
    /// Hands `callback` to the user's queue with the others of this turn, or runs it here where the user asked for that.
    func callBack(_ callback: SocketCallback)
    /// Resumes `continuation` when this turn ends, or this read: what waits for it then does not take the processor from
    /// what is still to be delivered.
    func resume(_ continuation: UnsafeContinuation<Void, Never>)

    // MARK: Frames

    /// The custom fields of a request with these values over the configuration's, for a frame.
    ///
    /// - Throws: `invalidArgument` if the format has no such fields, or if the configuration's are wrong.
    func customFields(_ header: [String: [UInt8]]) throws(SocketError) -> [UInt8]?
    /// Sends the frame with this turn's flush, or queues it while the peer does not read.
    ///
    /// - Returns: Whether it is leaving already.
    func send(_ frame: Frame, _ priority: FramePriority) throws(SocketError) -> Bool
    /// The same by the connection that another frame left by, which may be draining. Without that connection nothing
    /// happens.
    func send(_ frame: Frame, _ priority: FramePriority, on id: ConnectionID)

    /// Whether this is the socket thread, and answers are delivered, and nothing that was submitted meanwhile waits for the
    /// end of that: what is done now need not be submitted. From any thread.
    var isDelivering: Bool { get }
    /// Whether ``sendAtOnce(type:serial:_:)`` is possible for a payload of `length` bytes, because the peer reads.
    func canSendAtOnce(length: Int) -> Bool
    /// Sends a frame of the standard format with this turn's flush, or this read's, without making one.
    func sendAtOnce(type: UInt32, serial: UInt32, _ payload: ByteBuffer)

    // MARK: What the calls show

    /// A call found no connection that it could leave by and would like one soon.
    func pullForward()
    /// A call was not answered in time: finds out whether the connection still lives. One dead call does not kill it.
    func suspect(_ id: ConnectionID)
    /// Too many calls to the present server go wrong: leaves it, if there is another.
    func serverFails(_ endpoint: Endpoint, wrong: Int, calls: Int)
    /// The server of this connection is about to end, as its answers say: leaves it as after a go-away.
    func leave(_ id: ConnectionID, _ departure: ServerDeparture)
    /// Nothing is in flight any more on a connection that drains.
    func finishDraining(_ id: ConnectionID)
}
