// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues

/// The consequence of a stream's error: whether its transfer is tried again.
enum TransferVerdict: Sendable {
    case tryAgain
    case end(TransferError)

    /// The verdict on an error that is not explained by a failure of the peer.
    ///
    /// - Parameter what: The transfer, for the message.
    init(_ error: SocketError, of what: String) {
        func end(_ code: TransferError.Code, _ why: String) -> Self {
            .end(TransferError(code, "\(what): \(why)", underlying: error))
        }
        switch error.code {
        case .undefinedType:
            self = end(
                .noStore,
                "the server has no store, or not under these type numbers (TransferTypes): \(error.message)"
            )
        case .unknown: self = end(.notFound, error.message)
        case .noPermission: self = end(.denied, error.message)
        case .database: self = end(.storeFailed, error.message)
        case .illegalFormat, .illegalLength, .protobufFailed: self = end(.invalidRequest, error.message)
        case .serverLostConnection, .cancelledByServer, .overloaded, .draining, .lostPacket:
            self = .tryAgain
        case .notConnected, .timeout, .networkUnreachable, .cancelled, .connectionLost, .connectionRefused,
            .connectTimeout, .hostNotFound, .proxyFailed, .tlsFailed, .connectFailed, .handshakeTimeout,
            .noServerReachable, .checksumMismatch, .protocolViolation, .tooManyInFlight, .queueFull:
            self = .tryAgain
        case .interceptorFailed:
            // An interceptor that makes calls fails with their error.
            guard let cause = error.underlying as? SocketError, cause.code != .interceptorFailed else {
                self = end(.connectionFailed, error.message)
                return
            }
            self = Self(cause, of: what)
        default: self = end(.connectionFailed, error.message)
        }
    }
}
