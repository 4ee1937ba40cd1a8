// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// CONNECT, and the heart-beats that are agreed on.
extension STOMPCore {
    /// Sends CONNECT on a new connection.
    func connect(
        _ peer: STOMPPeer,
        in turn: inout Turn,
        _ completion: @escaping (GateRefusal?, inout Turn) -> Void
    ) {
        peer.connectAnswered = completion
        guard !peer.isOfAnotherOrigin || !self.configuration.hasSecrets else {
            return self.refuse(peer, Self.elsewhere, .tryAnotherServer, &turn)
        }
        guard let credentials = self.configuration.credentials else { return self.connect(peer, nil, in: &turn) }
        let loop = peer.link.loop
        let place = NIOLoopBound(peer, eventLoop: loop.eventLoop)
        peer.credentials = Task {
            let result: Result<STOMPCredentials?, any Error>
            do { result = .success(try await credentials()) } catch { result = .failure(error) }
            loop.submit(
                .closure { turn in
                    switch result {
                    case .success(let credentials): self.connect(place.value, credentials, in: &turn)
                    case .failure(let error): self.refuse(place.value, Self.noCredentials(error), .trySameServer, &turn)
                    }
                }
            )
        }
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
        guard peer.link.phase == .open, peer.connectAnswered != nil else { return }
        self.connecting = peer
        let frame = self.machine.begin(peer.endpoint, credentials)
        if let refusal = STOMPEncoder.refusal(of: frame, version: nil) {
            return self.refuse(peer, SocketError(.invalidArgument, message: "\(refusal)"), .stop, &turn)
        }
        _ = peer.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn)
    }

    func refuse(
        _ peer: STOMPPeer,
        _ error: SocketError,
        _ remedy: HandshakeRefusal.Remedy,
        _ turn: inout Turn
    ) {
        var error = error
        error.endpoint = peer.endpoint
        peer.connectAnswered.take()?(GateRefusal(error: error, remedy: remedy), &turn)
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
}
