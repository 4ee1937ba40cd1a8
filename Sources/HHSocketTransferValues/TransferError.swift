// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink

/// The reason why a transfer has ended without a complete file at its destination.
public struct TransferError: Error, Sendable {
    /// The kind of failure. Cases may be added; have a default when you switch over it.
    public enum Code: Hashable, Sendable {
        /// The id is no id, or one that the store cannot keep apart from another.
        case invalidID
        /// The store has no such file.
        case notFound
        /// The server's application does not allow the request.
        case denied
        /// Another writer has begun to put a file under this id.
        case superseded
        /// The disk is full, the server's or this machine's.
        case noRoom
        /// The store, or the local file's folder, cannot be written.
        case readOnly
        /// It would exceed the limits of the store.
        case quota
        /// The received content has another SHA-256 than announced.
        case wrongHash
        /// The peer broke the rules of transfers.
        case invalidRequest
        /// The store failed otherwise.
        case storeFailed
        /// The server has no store, or not under these type numbers.
        case noStore
        /// The local file changed while it was sent.
        case sourceChanged
        /// A local file could not be read or written.
        case fileFailed
        /// Nothing moved for the time that was allowed.
        case stalled
        /// The transfer was cancelled here.
        case cancelled
        /// The connection failed in a way that is not retried; ``TransferError/underlying`` has the error.
        case connectionFailed
    }

    public let code: Code
    /// The description of the failure: where, why, and what to do.
    public let message: String
    /// The error of the connection or of the stream, if there is one.
    public let underlying: SocketError?

    public init(_ code: Code, _ message: String, underlying: SocketError? = nil) {
        self.code = code
        self.message = message
        self.underlying = underlying
    }
}

extension TransferError: CustomStringConvertible {
    public var description: String { "\(self.code): \(self.message)" }
}

extension TransferError {
    /// The codes that a server sends.
    private static let sentCodes: [(code: Code, sent: Hhsocket_TransferCode)] = [
        (.invalidID, .invalidID), (.notFound, .notFound), (.denied, .denied), (.superseded, .superseded),
        (.noRoom, .noRoom), (.readOnly, .readOnly), (.quota, .quota), (.wrongHash, .wrongHash),
        (.invalidRequest, .invalidRequest), (.storeFailed, .storeFailed),
    ]

    /// Creates the error from a server's message, which may be displayed to users.
    package init(_ failure: Hhsocket_TransferFailure) {
        let code = Self.sentCodes.first { $0.sent == failure.code }?.code
        self.init(code ?? .storeFailed, String(failure.message.prefix(1_024)))
    }

    /// The message that a server sends; a code of clients becomes `storeFailed`.
    package var failure: Hhsocket_TransferFailure {
        var failure = Hhsocket_TransferFailure()
        failure.message = self.message
        failure.code = Self.sentCodes.first { $0.code == self.code }?.sent ?? .storeFailed
        return failure
    }
}
