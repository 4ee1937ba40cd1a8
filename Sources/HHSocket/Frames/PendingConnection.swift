// SPDX-License-Identifier: Apache-2.0
/// A connection that is made and not ready yet, with the gate that decides on it.
package final class PendingConnection: LinkReceiver, MadeLink, @unchecked Sendable {
    // Proof of Sendable: other threads only have references to it; everything is accessed on the socket thread.
    package typealias Language = FrameLanguage

    /// The number of pings received during the handshake that are answered after it.
    static let maximumHeldAnswers = 16

    package let link: Link<FrameLanguage>
    package let endpoint: Endpoint
    /// The agreement with the server on the WebSocket that carries the frames, if one does.
    private let opening: OpeningAgreement?
    private let rules: FrameRules
    /// Weak: a gate may return just after the driver was released.
    private weak var driver: (any ConnectionDriver)?
    /// The floor above, until this connection is ready or has ended.
    private unowned let host: (any FrameHost)?
    /// The gate's view of this connection, until it is over.
    private var handshake: Handshake?
    private var task: Task<Void, Never>?
    /// Answers to pings, which wait for the end of the handshake: until then only its own frames are sent.
    private var heldAnswers: [Frame] = []

    init(
        link: Link<FrameLanguage>,
        endpoint: Endpoint,
        agreement: OpeningAgreement?,
        rules: FrameRules,
        driver: (any ConnectionDriver)?,
        host: (any FrameHost)?
    ) {
        self.link = link
        self.endpoint = endpoint
        self.opening = agreement
        self.rules = rules
        self.driver = driver
        self.host = host
    }

    // MARK: The driver

    package func shakeHands(attempt: Int, in turn: inout Turn) {
        guard let gate = self.rules.configuration.gate else { return }
        let (loop, endpoint) = (self.link.loop, self.endpoint)
        let handshake = self.begin(attempt: attempt) { [weak self] frame, completion in
            let send = Submission.closure { [weak self] turn in
                guard let self else { return completion(.failure(Self.isOver(endpoint))) }
                self.send(frame, in: &turn, completion)
            }
            if !loop.submit(send) { completion(.failure(Self.isOver(endpoint))) }
        }
        self.task = Task { [weak self] in
            let refusal: GateRefusal?
            do {
                try await gate.run(handshake)
                refusal = nil
            } catch {
                refusal = Self.refusal(error, endpoint)
            }
            loop.submit { [weak self] turn in self?.gateReturned(refusal, in: &turn) }
        }
    }

    package func isReady(in turn: inout Turn) { self.host?.connectionIsReady(self, in: &turn) }

    package func ended(_ error: SocketError, in turn: inout Turn) {
        self.link.releaseReceiver(in: &turn)
        self.end(error)
    }

    // MARK: The gate

    /// Begins a handshake, for its owner to end.
    ///
    /// - Parameter transmit: Sends a frame of the gate and reports the outcome; called on any thread.
    package func begin(
        attempt: Int,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void
    ) -> Handshake {
        let handshake = Handshake(
            endpoint: self.endpoint,
            attempt: attempt,
            isCompressed: self.opening?.deflate != nil,
            isOfAnotherOrigin: self.opening?.isOfAnotherOrigin ?? false,
            lastSerial: self.rules.format.layout.requestSerials.upperBound,
            transmit: transmit
        )
        self.handshake = handshake
        return handshake
    }

    /// Sends a frame of the gate.
    private func send(_ frame: Frame, in turn: inout Turn, _ completion: (Result<Void, SocketError>) -> Void) {
        guard self.handshake != nil else { return completion(.failure(Self.isOver(self.endpoint))) }
        do throws(SocketError) {
            try self.rules.check(frame)
            if frame.type == FrameType.hello, self.awaitsHello {
                // Its answer may be right before frames that have them.
                self.link.expectFlags(FrameType.allFlags)
                self.driver?.perform(.awaitHello(true), in: &turn)
            }
            _ = try self.rules.send(frame, .default, on: self.link, to: self.endpoint, in: &turn)
            completion(.success(()))
        } catch {
            completion(.failure(error))
        }
    }

    private func gateReturned(_ refusal: GateRefusal?, in turn: inout Turn) {
        self.driver?.perform(.gateReturned(self.link.id, refusal), in: &turn)
    }

    private static func refusal(_ error: any Error, _ endpoint: Endpoint) -> GateRefusal {
        let refusal = error as? HandshakeRefusal
        let reason = refusal?.reason ?? "\(error)"
        let refused = SocketError(
            .handshakeRefused,
            message: "cannot use the connection to \(endpoint): the handshake failed: \(reason)",
            underlying: refusal?.underlying ?? error,
            endpoint: endpoint
        )
        return GateRefusal(error: refused, remedy: refusal?.remedy ?? .tryAnotherServer)
    }

    /// Whether the gate waits for the answer to hello.
    private var awaitsHello: Bool { self.handshake?.awaitsHello ?? false }
    /// The agreement that hello has led to so far.
    package var agreement: Agreement? { self.handshake?.agreement }

    /// Ends the handshake, failing every wait in it.
    ///
    /// - Returns: The frames that the gate did not take.
    @discardableResult
    private func end(_ error: SocketError) -> [Frame] {
        // First, so that the gate's waits fail with this reason.
        let unread = self.handshake.take()?.end(error) ?? []
        self.task?.cancel()
        return unread
    }

    /// Finishes once the connection is ready: sends the held answers.
    ///
    /// - Returns: The frames that the gate did not take, for the next receiver.
    package func finish(in turn: inout Turn) -> [Frame] {
        self.link.expectFlags(self.agreement?.flags ?? 0)
        for answer in self.heldAnswers { self.link.send(answer, .control, in: &turn) }
        self.heldAnswers = []
        return self.end(Self.isOver(self.endpoint))
    }

    /// The error of a gate that continues after its connection is no longer its own.
    private static func isOver(_ endpoint: Endpoint) -> SocketError {
        SocketError(.notConnected, message: "the handshake with \(endpoint) is over", endpoint: endpoint)
    }

    // MARK: Received frames

    package func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        // Every end of the handshake gives the link another receiver, or none.
        while batch.continues, self.link.receiver === self {
            var frame = ArrivedFrame()
            switch try batch.nextFrame(into: &frame) {
            case .nothing: return
            case .sound: self.receivedFrame(frame.owned(), in: &turn)
            case .corrupt(let mismatch): self.receivedCorrupt(frame, mismatch)
            case .malformed(let error): self.receivedMalformed(error)
            }
        }
    }

    private func receivedFrame(_ frame: Frame, in turn: inout Turn) {
        guard self.rules.format.isControlType(frame.type) else { return self.deliver(frame, in: &turn) }
        if frame.type == FrameType.hello, frame.serial == FrameSerial.hello, self.awaitsHello {
            self.driver?.perform(.awaitHello(false), in: &turn)
            // At once, because the server closes the connection next, which would be taken for the reason.
            if frame.status == .noPermission,
                let refusal = self.rules.configuration.gate?.admission?.tokenWasRefused()
            {
                return self.gateReturned(Self.refusal(refusal, self.endpoint), in: &turn)
            }
            self.handshake?.endHello(.success(frame))
        } else if self.rules.format.isGoAway(frame) {
            self.host?.receivedGoAway(frame, on: self.link.id, in: &turn)
        } else if self.rules.format.isServerPing(frame), self.heldAnswers.count < Self.maximumHeldAnswers {
            self.heldAnswers.append(self.rules.format.heartbeatAnswer(to: frame))
        }
    }

    /// A frame for the gate, or for later.
    private func deliver(_ frame: Frame, in turn: inout Turn) {
        guard let handshake = self.handshake, !handshake.receive(frame) else { return }
        let error = SocketError(
            .handshakeRefused,
            message: """
                cannot use the connection to \(self.endpoint): over \(Handshake.maximumWaitingFrames) frames, or \
                \(Handshake.maximumWaitingBytes >> 20) MiB of them, came during the handshake
                """,
            endpoint: self.endpoint
        )
        self.gateReturned(GateRefusal(error: error, remedy: .tryAnotherServer), in: &turn)
    }

    /// During the handshake it is ignored: the gate's time limit applies. No further answer to hello can arrive, and
    /// the meaning of a later one is not known.
    private func receivedCorrupt(_ frame: borrowing ArrivedFrame, _ mismatch: FrameDecoder.ChecksumMismatch) {
        guard frame.type == FrameType.hello else { return }
        let length = frame.length
        let error = SocketError(
            .checksumMismatch,
            message: """
                the answer of \(self.endpoint) to hello, \(length) bytes, came with a wrong checksum: \(mismatch)
                """,
            endpoint: self.endpoint,
            serial: frame.serial
        )
        self.handshake?.endHello(.failure(error))
    }

    /// Handled like a frame with a wrong checksum.
    private func receivedMalformed(_ error: FrameError) {
        guard error.type == FrameType.hello else { return }
        let error = SocketError(
            .illegalFormat,
            message: "the answer of \(self.endpoint) to hello is malformed: \(error.message)",
            underlying: error,
            endpoint: self.endpoint,
            serial: error.serial
        )
        self.handshake?.endHello(.failure(error))
    }
}
