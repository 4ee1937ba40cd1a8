// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The connection to a broker, and the machine that decides on it: CONNECT, and the heart-beats that are agreed on.
final class STOMPConnection: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the rest is accessed only on the socket's thread.
    private let credentials: (@Sendable () async throws -> STOMPCredentials)?
    /// Whether CONNECT has something that a broker of another origin must not get.
    private let hasSecrets: Bool
    private var machine: STOMPMachine
    /// The connection on which CONNECT was sent last.
    private var connecting: STOMPPeer?
    private var accepted: STOMPPeer?
    /// The number of the accepted connection, for other threads; 0 if there is none.
    private let current = NIOLockedValueBox<UInt64>(0)
    /// Whether the broker has answered the latest DISCONNECT.
    private let hasParted = NIOLockedValueBox(false)

    init(_ configuration: STOMPConfiguration) {
        self.credentials = configuration.credentials
        self.hasSecrets = configuration.hasSecrets
        var settings = STOMPMachine.Settings()
        settings.versions = configuration.versions.sorted()
        settings.heartbeats = configuration.heartbeats
        settings.host = configuration.host
        settings.headers = configuration.connectHeaders
        self.machine = STOMPMachine(settings)
    }

    // MARK: From any thread

    /// The number of the accepted connection; 0 if there is none.
    var number: UInt64 { self.current.withLockedValue { $0 } }

    /// Whether the broker has confirmed the latest DISCONNECT.
    var hasConfirmedDisconnect: Bool { self.hasParted.withLockedValue { $0 } }

    // MARK: State

    /// The accepted connection.
    var peer: STOMPPeer? { self.accepted }

    /// The accepted connection, unless it is being closed.
    var openPeer: STOMPPeer? {
        guard let peer = self.accepted, peer.link.phase == .open else { return nil }
        return peer
    }

    var agreement: STOMPAgreement? { self.machine.agreement }

    /// Whether so many messages are unsettled that reading should be suspended.
    var isOverdrawn: Bool { self.machine.isOverdrawn }

    /// Asks the machine for a decision, which `body` returns.
    func decide<Decision, Failure: Error>(
        _ body: (inout STOMPMachine) throws(Failure) -> Decision
    ) throws(Failure) -> Decision {
        try body(&self.machine)
    }

    // MARK: CONNECT

    /// Sends CONNECT on a new connection.
    func connect(
        _ peer: STOMPPeer,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        peer.beginHandshake(completion)
        guard !peer.isOfAnotherOrigin || !self.hasSecrets else {
            return peer.refuse(Self.elsewhere, .tryAnotherServer, in: &turn)
        }
        guard let credentials = self.credentials else { return self.connect(peer, nil, in: &turn) }
        let loop = peer.link.loop
        let bound = NIOLoopBound(peer, eventLoop: loop.eventLoop)
        let task = Task {
            let result: Result<STOMPCredentials?, any Error> = await .of { try await credentials() }
            loop.submit { turn in
                switch result {
                case .success(let credentials): self.connect(bound.value, credentials, in: &turn)
                case .failure(let error):
                    bound.value.refuse(Self.noCredentials(error), .trySameServer, in: &turn)
                }
            }
        }
        peer.awaitCredentials(task)
    }

    private static let elsewhere = SocketError(
        .handshakeRefused,
        message: """
            the server has redirected to another origin, which must not get the credentials or further headers \
            (STOMPClient.Configuration.credentials, connectHeaders)
            """
    )

    private static func noCredentials(_ error: any Error) -> SocketError {
        SocketError(
            .handshakeRefused,
            message: "no credentials for the broker (STOMPClient.Configuration.credentials): \(error)",
            underlying: error
        )
    }

    private func connect(_ peer: STOMPPeer, _ credentials: STOMPCredentials?, in turn: inout Turn) {
        guard peer.link.phase == .open, peer.isInHandshake else { return }
        self.connecting = peer
        let frame = self.machine.begin(peer.endpoint, credentials)
        if let refusal = STOMPEncoder.refusal(of: frame, version: nil) {
            return peer.refuse(SocketError.invalid("\(refusal)"), .stop, in: &turn)
        }
        _ = peer.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn)
    }

    /// Heart-beats as they were agreed on; nil: none.
    func beats(now: NIODeadline) -> Beats? {
        guard let agreed = self.machine.agreement?.heartbeats, agreed != .off else { return nil }
        // Ours are sent within the interval even if timers are late; the broker's may be late by as much again.
        return Beats(
            ourSilence: agreed.send > .zero ? TimeAmount(clamping: agreed.send / 10 * 9) : nil,
            theirSilence: agreed.receive > .zero ? TimeAmount(clamping: agreed.receive * 2) : nil,
            now: now
        )
    }

    // MARK: Changes

    /// Takes a frame.
    ///
    /// - Returns: Its news; nil for a frame that is of no interest any more.
    func received(_ frame: STOMPFrame, from peer: STOMPPeer) throws(STOMPMachine.Failure) -> STOMPMachine.News? {
        // The end of a connection that was never accepted is not reported.
        guard peer === self.accepted || (peer === self.connecting && peer.link.phase == .open) else { return nil }
        return try self.machine.received(frame)
    }

    /// The broker has accepted the connection.
    func wasAccepted(_ peer: STOMPPeer, in turn: inout Turn) {
        self.connecting = nil
        self.accepted = peer
        self.current.withLockedValue { $0 = self.machine.connection }
        self.hasParted.withLockedValue { $0 = false }
        peer.finishHandshake(nil, in: &turn)
    }

    /// The broker has answered DISCONNECT.
    func wasConfirmed() { self.hasParted.withLockedValue { $0 = true } }

    /// A connection has ended.
    ///
    /// - Returns: Whether it was the accepted one.
    func ended(_ peer: STOMPPeer) -> Bool {
        peer.abandonHandshake()
        if self.connecting === peer { self.connecting = nil }
        guard self.accepted === peer else { return false }
        self.accepted = nil
        self.current.withLockedValue { $0 = 0 }
        self.machine.end()
        return true
    }
}
