// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A connection that is made and not ready yet, with the gate that decides on it.
package final class PendingConnection: LinkReceiver {
    package typealias Language = FrameLanguage

    /// The number of pings received during the handshake that are answered after it.
    static let maximumHeldAnswers = 16

    package let link: Link<FrameLanguage>
    package let endpoint: Endpoint
    /// Whether the transport of the frames compresses them.
    private let isCompressed: Bool
    /// Whether a redirect has led to a server of another origin.
    private let isOfAnotherOrigin: Bool
    private unowned let connector: FrameConnector
    private let format: WireFormat
    private var handshake: Handshake?
    private var task: Task<Void, Never>?
    /// Answers to pings, which wait for the end of the handshake: until then only its own frames are sent.
    private var heldAnswers: [Frame] = []

    init(
        link: Link<FrameLanguage>,
        endpoint: Endpoint,
        isCompressed: Bool = false,
        isOfAnotherOrigin: Bool = false,
        connector: FrameConnector
    ) {
        self.link = link
        self.endpoint = endpoint
        self.isCompressed = isCompressed
        self.isOfAnotherOrigin = isOfAnotherOrigin
        self.connector = connector
        self.format = connector.rules.format
    }

    // MARK: The gate

    /// Runs the gate.
    ///
    /// - Parameters:
    ///   - transmit: Sends a frame of the gate and reports the outcome; called on any thread.
    ///   - completion: Called once the gate has returned, on any thread; nil means that it accepts the connection.
    func run(
        _ gate: HandshakeGate,
        attempt: Int,
        lastSerial: UInt32,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void,
        completion: @escaping @Sendable (GateRefusal?) -> Void
    ) {
        let handshake = self.begin(attempt: attempt, lastSerial: lastSerial, transmit: transmit)
        self.task = Self.task(gate, handshake, completion)
    }

    /// Begins a handshake, for its owner to end.
    package func begin(
        attempt: Int,
        lastSerial: UInt32,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void
    ) -> Handshake {
        let handshake = Handshake(
            endpoint: self.endpoint,
            attempt: attempt,
            isCompressed: self.isCompressed,
            isOfAnotherOrigin: self.isOfAnotherOrigin,
            lastSerial: lastSerial,
            transmit: transmit
        )
        self.handshake = handshake
        return handshake
    }

    private static func task(
        _ gate: HandshakeGate,
        _ handshake: Handshake,
        _ completion: @escaping @Sendable (GateRefusal?) -> Void
    ) -> Task<Void, Never> {
        Task {
            do {
                try await gate.run(handshake)
                completion(nil)
            } catch {
                completion(Self.refusal(error, handshake.endpoint))
            }
        }
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
    var awaitsHello: Bool { self.handshake?.awaitsHello ?? false }
    /// The agreement that hello has led to so far.
    package var agreement: Agreement? { self.handshake?.agreement }

    /// Ends the handshake, failing every wait in it.
    ///
    /// - Returns: The frames that the gate did not take.
    @discardableResult
    func end(_ error: SocketError) -> [Frame] {
        // First, so that the gate's waits fail with this reason.
        let unread = self.handshake?.end(error) ?? []
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
    static func isOver(_ endpoint: Endpoint) -> SocketError {
        SocketError(.notConnected, message: "the handshake with \(endpoint) is over", endpoint: endpoint)
    }

    // MARK: Received frames

    package func received(_ batch: inout Batch<FrameLanguage>, in turn: inout Turn) throws(LinkError) {
        var frame = Frame(type: 0, serial: 0)
        // Every end of the handshake gives the link another receiver, or none.
        while batch.goesOn, self.link.receiver === self {
            switch try batch.nextFrame(into: &frame) {
            case .nothing: return
            case .sound: self.received(frame, in: &turn)
            case .corrupt(let mismatch): self.received(corrupt: frame, mismatch)
            case .malformed(let error): self.received(malformed: error)
            }
        }
    }

    private func received(_ frame: Frame, in turn: inout Turn) {
        guard self.format.isControlType(frame.type) else { return self.deliver(frame, in: &turn) }
        if frame.type == FrameType.hello, frame.serial == FrameSerial.hello, self.awaitsHello {
            self.connector.helloCame(in: &turn)
            // At once, because the server closes the connection next, which would be taken for the reason.
            if frame.status == .noPermission, let refusal = self.connector.tokenWasRefused() {
                let refusal = Self.refusal(refusal, self.endpoint)
                return self.connector.handshakeFailed(self.link.id, refusal.error, refusal.remedy, in: &turn)
            }
            self.handshake?.endHello(.success(frame))
        } else if self.format.isGoAway(frame) {
            self.connector.goAwayCame(frame, self.link.id, in: &turn)
        } else if self.format.isServerPing(frame), self.heldAnswers.count < Self.maximumHeldAnswers {
            var ping = frame
            ping.payload = frame.payload.detached
            self.heldAnswers.append(self.format.heartbeatAnswer(to: ping))
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
        self.connector.handshakeFailed(self.link.id, error, in: &turn)
    }

    /// During the handshake it is ignored: the gate's time limit applies. No further answer to hello can arrive, and
    /// the meaning of a later one is not known.
    private func received(corrupt frame: Frame, _ mismatch: FrameDecoder.ChecksumMismatch) {
        guard frame.type == FrameType.hello else { return }
        let error = SocketError(
            .checksumMismatch,
            message: """
                the answer of \(self.endpoint) to hello came with checksum \(mismatch.received) where its \
                \(frame.payload.readableBytes) bytes amount to \(mismatch.computed)
                """,
            endpoint: self.endpoint,
            serial: frame.serial
        )
        self.handshake?.endHello(.failure(error))
    }

    /// Handled like a frame with a wrong checksum.
    private func received(malformed error: FrameError) {
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

extension LinkError {
    /// Converts the error of bytes that are no valid frames.
    package init(_ error: FrameError) {
        self.init(
            "\(error)",
            underlying: error,
            reason: error.code == .payloadTooLarge ? .tooLarge : .protocolViolation
        )
    }
}
