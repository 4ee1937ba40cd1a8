// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import HHSocketRPC

/// The state of the connection, as far as a screen shows it.
package enum ConnectionStatus: Hashable, Sendable {
    /// The first connection is being made.
    case connecting
    case online
    /// The connection was lost, or cannot be made; the client keeps trying.
    case offline
    /// The client has stopped trying, because the user has to sign in.
    case signedOut
    /// The client has stopped trying for another reason.
    case stopped(reason: String)

    /// Takes an event of the connection into account.
    package mutating func apply(_ event: SocketEvent) {
        switch event {
        case .connected, .switched: self = .online
        case .disconnected, .waiting: self = .offline
        case .gaveUp(let error) where error.code == .handshakeRefused: self = .signedOut
        case .gaveUp(let error): self = .stopped(reason: error.message)
        // Attempts, drained connections and news of the network change nothing that the user can see.
        default: break
        }
    }

    /// The text of a banner; nil while none is shown.
    package var banner: String? {
        switch self {
        case .connecting, .online: nil
        case .offline: "Offline. Messages are sent when the connection is back."
        case .signedOut: "Please sign in again."
        case .stopped(let reason): reason
        }
    }
}
