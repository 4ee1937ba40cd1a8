// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import HHSocketFoundation

/// The failure of an operation on an outbox.
///
/// Compare ``code``; read ``message``, which describes the failure and the remedy.
public struct OutboxError: Error, Sendable {
    /// The kind of failure. New codes may be added; always have a default case.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        private enum Name: String, Hashable, Sendable {
            case full, deadLettersFull, invalidMessage, keyInUse, closed
            case inUse, corrupted, notAnOutbox, newerVersion
            case readOnly, diskFull, storageFailed
        }

        private let name: Name

        private init(_ name: Name) { self.name = name }

        /// The limit of waiting messages, or of their bytes, is reached.
        public static let full = Self(.full)
        /// There are as many dead letters as ``OutboxConfiguration/maximumDeadLetters`` allows: resend or remove some.
        public static let deadLettersFull = Self(.deadLettersFull)
        /// The message cannot be stored or sent.
        public static let invalidMessage = Self(.invalidMessage)
        /// Another message with this key is waiting.
        public static let keyInUse = Self(.keyInUse)
        /// The outbox has been closed.
        public static let closed = Self(.closed)
        /// Another outbox, of this process or another, has the file open.
        public static let inUse = Self(.inUse)
        /// The file is damaged. See ``OutboxConfiguration/whenCorrupted``.
        public static let corrupted = Self(.corrupted)
        /// The file is another kind of database.
        public static let notAnOutbox = Self(.notAnOutbox)
        /// The file was written by a later version of this library.
        public static let newerVersion = Self(.newerVersion)
        /// The file is not writable.
        public static let readOnly = Self(.readOnly)
        /// The disk is full.
        public static let diskFull = Self(.diskFull)
        /// Reading or writing failed in another way; see ``OutboxError/underlying``.
        public static let storageFailed = Self(.storageFailed)

        public var description: String { self.name.rawValue }
    }

    public package(set) var code: Code
    /// A description of the failure, and of the remedy, in one line.
    public package(set) var message: String
    /// The error that caused this one, such as SQLite's.
    public package(set) var underlying: (any Error)?

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
