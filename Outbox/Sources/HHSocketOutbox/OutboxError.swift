#if Outbox
import Foundation
public import FoundationEssentials

/// Why an outbox cannot be opened, or does not take a message.
///
/// Compare ``code``; read ``message``, which says what failed and what can be done.
public struct OutboxError: Error, Sendable {
    /// What kind of failure it is. New codes may be added; always have a default case.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Name: String, Hashable, Sendable {
            case full, deadLettersFull, invalidMessage, keyInUse, closed
            case inUse, corrupted, notAnOutbox, newerVersion
            case readOnly, diskFull, storageFailed
        }

        private let name: Name

        private init(_ name: Name) { self.name = name }

        /// As many messages, or bytes, as allowed are waiting.
        public static let full = Self(.full)
        /// There are as many dead letters as ``OutboxConfiguration/maximumDeadLetters`` allows: resend or remove some.
        public static let deadLettersFull = Self(.deadLettersFull)
        /// The message cannot be kept, or sent, as it is.
        public static let invalidMessage = Self(.invalidMessage)
        /// Another message with this key is waiting.
        public static let keyInUse = Self(.keyInUse)
        /// The outbox has been closed.
        public static let closed = Self(.closed)
        /// Another outbox, of this process or another, has the file open.
        public static let inUse = Self(.inUse)
        /// The file is damaged. See ``OutboxConfiguration/whenCorrupted``.
        public static let corrupted = Self(.corrupted)
        /// The file is a database of something else.
        public static let notAnOutbox = Self(.notAnOutbox)
        /// The file was written by a later version of this library.
        public static let newerVersion = Self(.newerVersion)
        /// The file may not be written.
        public static let readOnly = Self(.readOnly)
        /// There is no room on the disk.
        public static let diskFull = Self(.diskFull)
        /// Reading or writing failed in another way; see ``OutboxError/underlying``.
        public static let storageFailed = Self(.storageFailed)

        public var description: String { self.name.rawValue }
    }

    public var code: Code
    /// What failed, and what can be done, in one line.
    public var message: String
    /// The error that caused this one, such as SQLite's.
    public var underlying: (any Error)?

    public init(_ code: Code, message: String, underlying: (any Error)? = nil) {
        self.code = code
        self.message = message
        self.underlying = underlying
    }
}

extension OutboxError: LocalizedError {
    public var errorDescription: String? { self.message }
}

extension OutboxError: CustomStringConvertible {
    public var description: String { "\(self.code): \(self.message)" }
}
#endif
