// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink

/// The reason why a transfer has ended without a complete file at its destination.
public struct TransferError: Error, Sendable {
    /// The kind of failure.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Name: String {
            case invalidID, notFound, denied, superseded, noRoom, readOnly, quota, wrongHash, invalidRequest,
                storeFailed
            case noStore, sourceChanged, fileFailed, stalled, cancelled, connectionFailed
        }

        private let name: Name

        private init(_ name: Name) { self.name = name }

        /// The id is no id, or one that the store cannot keep apart from another.
        public static let invalidID = Self(.invalidID)
        /// The store has no such file.
        public static let notFound = Self(.notFound)
        /// The server's application does not allow the request.
        public static let denied = Self(.denied)
        /// Another writer has begun to put a file under this id.
        public static let superseded = Self(.superseded)
        /// The disk is full, the server's or this machine's.
        public static let noRoom = Self(.noRoom)
        /// The store, or the local file's folder, cannot be written.
        public static let readOnly = Self(.readOnly)
        /// It would exceed the limits of the store.
        public static let quota = Self(.quota)
        /// The received content has another SHA-256 than announced.
        public static let wrongHash = Self(.wrongHash)
        /// The peer broke the rules of transfers.
        public static let invalidRequest = Self(.invalidRequest)
        /// The store failed otherwise.
        public static let storeFailed = Self(.storeFailed)
        /// The server has no store, or not under these type numbers.
        public static let noStore = Self(.noStore)
        /// The local file changed while it was sent.
        public static let sourceChanged = Self(.sourceChanged)
        /// A local file could not be read or written.
        public static let fileFailed = Self(.fileFailed)
        /// Nothing moved for the time that was allowed.
        public static let stalled = Self(.stalled)
        /// The transfer was cancelled here.
        public static let cancelled = Self(.cancelled)
        /// The connection failed in a way that is not retried; ``TransferError/underlying`` has the error.
        public static let connectionFailed = Self(.connectionFailed)

        public var description: String { self.name.rawValue }
    }

    public var code: Code
    /// The description of the failure: where, why, and what to do.
    public var message: String
    /// The error of the connection or of the stream, if there is one.
    public var underlying: SocketError?

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
