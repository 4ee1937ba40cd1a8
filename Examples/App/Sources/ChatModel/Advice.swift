// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// The reaction of an app to an error of a call.
package enum Advice: Hashable, Sendable {
    /// Do nothing: the call was cancelled on purpose.
    case ignore
    /// Keep the request for the next connection. The banner shows the reason.
    case waitForConnection
    /// Offer to try again, with the same idempotency key.
    case offerRetry
    /// Ask the user to sign in.
    case signIn
    /// Show an empty list, or the end of one.
    case showEmpty
    /// Report a fault of the app, the server or their settings: the same request fails again.
    case report

    package init(_ error: SocketError) {
        switch error.code {
        case .cancelled:
            self = .ignore
        case .notConnected, .networkUnreachable, .connectionLost, .connectionRefused, .connectTimeout, .hostNotFound,
            .proxyFailed, .connectFailed, .handshakeTimeout, .noServerReachable, .draining:
            self = .waitForConnection
        case .timeout, .deadlineExceeded, .overloaded, .cancelledByServer, .serverLostConnection, .database, .unknown,
            .lostPacket, .checksumMismatch, .tooManyInFlight, .queueFull:
            self = .offerRetry
        case .noPermission, .handshakeRefused:
            self = .signIn
        case .noData, .noMoreData, .notModified:
            self = .showEmpty
        // Codes may be added, and a server may define its own statuses.
        default:
            self = .report
        }
    }
}
