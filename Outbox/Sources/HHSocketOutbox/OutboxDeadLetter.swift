// SPDX-License-Identifier: Apache-2.0
#if Outbox
public import Foundation
public import HHSocketRPC

/// A message that the outbox has given up, and keeps on disk until the app resends or removes it.
///
/// ``Outbox/deadLetters()`` lists them. They do not expire, and only the app removes them.
public struct OutboxDeadLetter: Sendable, Hashable, Identifiable {
    /// The reason why a message was given up. New reasons may be added; always have a default case.
    public struct Reason: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The verdict on an attempt was ``OutboxVerdict/deadLetter``: by default because the server's answer is final,
        /// or because the message is too large to be sent.
        public static let refused = Self(rawValue: "refused")
        /// ``OutboxConfiguration/maximumAttempts`` attempts failed.
        public static let exhausted = Self(rawValue: "exhausted")
        /// Its row on disk is damaged.
        public static let unreadable = Self(rawValue: "unreadable")

        public var description: String { self.rawValue }
    }

    /// The identifier that the message had when it waited.
    public let id: OutboxEntry.ID
    /// The message without its body. It does not expire: ``OutboxEntry/expires`` is nil. The entry is nil if the row on
    /// disk is too damaged for anything but removal.
    public let entry: OutboxEntry?
    public let reason: Reason
    /// The status of the last answer; nil if there was none.
    public let status: Status?
    /// The error of the last attempt, or the damage, in one line.
    public let explanation: String
    /// The time at which it was given up, by the clock of this device.
    public let date: Date
    /// The lengths of body, metadata, topic and key in bytes.
    public let byteCount: Int

    /// The longest explanation, in characters. Longer ones are cut, to bound the file.
    private static let maximumExplanationLength = 1_000

    init(
        id: OutboxEntry.ID,
        entry: OutboxEntry?,
        reason: Reason,
        status: Status?,
        explanation: String,
        date: Date,
        byteCount: Int
    ) {
        self.id = id
        self.entry = entry
        self.reason = reason
        self.status = status
        self.explanation = String(explanation.prefix(Self.maximumExplanationLength))
        self.date = date
        self.byteCount = byteCount
    }

    /// Creates a dead letter of a message that waited.
    init(_ entry: OutboxEntry, _ reason: Reason, status: Status? = nil, explanation: String, date: Date) {
        var entry = entry
        entry.expires = nil
        self.init(
            id: entry.id,
            entry: entry,
            reason: reason,
            status: status,
            explanation: explanation,
            date: date,
            byteCount: entry.byteCount
        )
    }
}

extension OutboxDeadLetter: CustomStringConvertible {
    public var description: String {
        "\(self.reason) \(self.entry.map { "\($0)" } ?? "message \(self.id)"): \(self.explanation)"
    }
}
#endif
