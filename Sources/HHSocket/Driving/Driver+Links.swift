// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Notifications of links.
extension Driver: LinkHost {
    package func linkChanged(_ change: LinkChange, _ id: ConnectionID, in turn: inout Turn) {
        switch change {
        case .ended(let end):
            self.linkEnded(end, id, in: &turn)
        case .alive:
            self.machine.connectionIsAlive(id)
        case .beat(let outcome):
            if let time = outcome.roundTripTime { self.metrics?.heartbeatWasAnswered(after: time) }
            guard outcome.testedInterval != nil else { return }
            self.tuner?.observe(outcome)
            self.updateHeartbeatInterval(in: &turn)
        case .beatFailed(let error):
            self.log?.beatFailed(error)
        case .active, .inputClosed, .beatSent:
            break
        case .gone:
            self.linkIsGone(id, in: &turn)
        }
    }

    private func linkEnded(_ end: LinkEnd, _ id: ConnectionID, in turn: inout Turn) {
        guard let entry = self.take(id) else { return }
        let error = self.error(end, entry.endpoint)
        entry.made?.ended(error, in: &turn)
        self.measure(entry.link)
        // Its last frame may still have to be sent.
        self.close(entry.link, in: &turn)
        self.apply(in: &turn) { $0.connectionLost(id, because: error, verdict: end.verdict, now: $1) }
    }

    private func error(_ end: LinkEnd, _ endpoint: Endpoint) -> SocketError {
        switch end.cause {
        case .closedByPeer(let unfinishedBytes, let hasReceived):
            return Self.lost(
                endpoint,
                because: "the server closed it\(self.circumstance(unfinishedBytes, hasReceived))"
            )
        case .failed(let error):
            // In TLS 1.3 a server may reject our certificate after the handshake is complete for us.
            if let failure = TLSFailure(error) {
                return Self.lost(endpoint, because: failure.description, underlying: failure, code: .tlsFailed)
            }
            return Self.lost(endpoint, because: (error as? IOError)?.systemReason ?? "\(error)", underlying: error)
        case .protocolViolation(let error):
            return Self.lost(
                endpoint,
                because: error.description,
                underlying: error.underlying ?? error,
                code: .protocolViolation
            )
        case .writeStalled:
            let window = self.configuration.writeStallTimeout
            let rate = "less than \(StallWatch.minimumRate) bytes a second"
            return Self.lost(endpoint, because: "the server took \(rate) for \(window) (writeStallTimeout)")
        case .peerIsDead(let silence, let wePing):
            let verb = wePing ? "answered" : "sent"
            return Self.lost(endpoint, because: "the server \(verb) no heartbeat, silent for \(Duration(silence))")
        case .said(var error):
            error.endpoint = endpoint
            return error
        }
    }

    /// Returns circumstances that may explain why the server closed the connection.
    private func circumstance(_ unfinishedBytes: Int, _ hasReceived: Bool) -> String {
        if unfinishedBytes > 0 { return " in the middle of a frame, after \(unfinishedBytes) bytes of it" }
        if self.configuration.tls != nil, !hasReceived {
            return " without a word; one that wants another client certificate (ClientTLS.identity) may do so"
        }
        return ""
    }

    private static func lost(
        _ endpoint: Endpoint,
        because reason: String,
        underlying: (any Error)? = nil,
        code: SocketError.Code = .connectionLost
    ) -> SocketError {
        SocketError(
            code,
            message: "the connection to \(endpoint) was lost: \(reason)",
            underlying: underlying,
            endpoint: endpoint,
            delivery: .sentUnknown
        )
    }
}
