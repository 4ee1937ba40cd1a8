/// A connection that is made and not ready yet, with the gate that decides on it.
struct Greeting {
    let link: Link
    private var handshake: Handshake?
    private var task: Task<Void, Never>?

    init(link: Link) {
        self.link = link
    }

    /// Why the gate let nobody through.
    struct Refusal: Sendable {
        var error: SocketError
        var remedy: HandshakeRefusal.Remedy
    }

    /// Runs the gate.
    ///
    /// - Parameters:
    ///   - transmit: Sends a frame of the gate's and tells what became of it; called on any thread.
    ///   - completion: Called once the gate has returned, on any thread; nil: it lets calls through.
    mutating func run(
        _ gate: HandshakeGate,
        attempt: Int,
        lastSerial: UInt32,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void,
        completion: @escaping @Sendable (Refusal?) -> Void
    ) {
        let endpoint = self.link.endpoint
        let handshake = Handshake(endpoint: endpoint, attempt: attempt, lastSerial: lastSerial, transmit: transmit)
        self.handshake = handshake
        self.task = Task {
            do {
                try await gate.run(handshake)
                completion(nil)
            } catch {
                completion(Self.refusal(error, endpoint))
            }
        }
    }

    private static func refusal(_ error: any Error, _ endpoint: Endpoint) -> Refusal {
        let refusal = error as? HandshakeRefusal
        let reason = refusal?.reason ?? "\(error)"
        let refused = SocketError(
            .handshakeRefused,
            message: "cannot use the connection to \(endpoint): the handshake failed: \(reason)",
            underlying: refusal?.underlying ?? error,
            endpoint: endpoint
        )
        return Refusal(error: refused, remedy: refusal?.remedy ?? .tryAnotherServer)
    }

    /// A frame that came during the handshake, for the gate or for later.
    ///
    /// - Throws: If too many wait.
    func receive(_ frame: Frame) throws(SocketError) {
        guard let handshake = self.handshake, !handshake.receive(frame) else { return }
        throw SocketError(
            .handshakeRefused,
            message: """
                cannot use the connection to \(self.link.endpoint): over \(Handshake.maximumWaitingFrames) frames came \
                during the handshake
                """,
            endpoint: self.link.endpoint
        )
    }

    /// Whether the gate waits for the answer to hello.
    var awaitsHello: Bool { self.handshake?.awaitsHello ?? false }
    /// What hello has led to so far.
    var agreement: Agreement? { self.handshake?.agreement }

    /// The answer to hello, for the gate that waits for it; with the two checksums if they differ.
    func receiveHello(_ frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch?) {
        guard let mismatch else {
            self.handshake?.endHello(.success(frame))
            return
        }
        let error = SocketError(
            .checksumMismatch,
            message: """
                the answer of \(self.link.endpoint) to hello came with checksum \(mismatch.received) where its \
                \(frame.payload.readableBytes) bytes amount to \(mismatch.computed)
                """,
            endpoint: self.link.endpoint,
            serial: frame.serial
        )
        self.handshake?.endHello(.failure(error))
    }

    /// Ends the handshake for whoever still waits in it.
    ///
    /// - Returns: The frames that the gate did not take.
    @discardableResult
    func end(_ error: SocketError) -> [Frame] {
        // First, so that what waits in the gate learns why.
        let unread = self.handshake?.end(error) ?? []
        self.task?.cancel()
        return unread
    }

    /// What the gate is told that goes on when its connection is not its any more.
    static func isOver(_ endpoint: Endpoint) -> SocketError {
        SocketError(.notConnected, message: "the handshake with \(endpoint) is over", endpoint: endpoint)
    }
}
