// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import GRDB
import HHSocketRPC
import NIOCore

extension OutboxStore {
    enum Insertion: Sendable {
        case added(OutboxEntry)
        /// An equal message with the same key was there before.
        case existing(OutboxEntry.ID)
        case refused(OutboxError)
    }

    /// The result of resending a dead letter.
    struct Resending: Sendable {
        var insertion: Insertion
        /// The ``OutboxDeadLetter/byteCount`` that it had.
        var deadLetterBytes: Int
    }

    /// The outcome of reading a message.
    enum Reading: Sendable {
        case found(Content)
        /// Its row is invalid.
        case damaged(OutboxError)
        /// It is not there.
        case missing
    }

    typealias Content = (body: ByteBuffer, metadata: [String: String])

    /// A database transaction for one account.
    struct Transaction {
        let db: Database
        let path: String
        let account: String

        // MARK: Opening

        /// Assigns messages and dead letters without an account to this one. A message whose key the account already
        /// has stays without one.
        func adoptMessagesWithoutAccount() throws {
            try self.db.execute(
                sql: "UPDATE OR IGNORE message SET account = ? WHERE account = ''",
                arguments: [self.account]
            )
            try self.db.execute(sql: "UPDATE deadLetter SET account = ? WHERE account = ''", arguments: [self.account])
        }

        /// Reads all messages. Invalid rows become dead letters, so that they do not block the others.
        func load(_ now: Date) throws -> Contents {
            var contents = Contents()
            let rows = try Row.fetchAll(
                self.db,
                sql: """
                    SELECT id, key, topic, type, byteCount, enqueued, expires, attempts, NULL AS mayHaveBeenSent,
                        length(key) + length(topic) + length(body) + length(metadata) AS stored
                    FROM message WHERE account = ? ORDER BY id
                    """,
                arguments: [self.account]
            )
            for row in rows {
                // The primary key of a table is always an integer, even if other columns are damaged.
                let id = OutboxEntry.ID(rawValue: row["id"])
                if let entry = Self.entry(row, id) {
                    contents.entries.append(entry)
                } else {
                    let letter = OutboxDeadLetter(
                        id: id,
                        entry: nil,
                        reason: .unreadable,
                        status: nil,
                        explanation: "the row of message \(id) in \(self.path) is invalid",
                        date: now,
                        byteCount: Int.fromDatabaseValue(row["stored"]) ?? 0
                    )
                    try self.bury(letter)
                }
            }
            let sums = try Row.fetchOne(
                self.db,
                sql: "SELECT count(*) AS count, total(byteCount) AS bytes FROM deadLetter WHERE account = ?",
                arguments: [self.account]
            )
            contents.deadLetterCount = sums.flatMap { Int.fromDatabaseValue($0["count"]) } ?? 0
            contents.deadLetterBytes = sums.flatMap { Double.fromDatabaseValue($0["bytes"]) }.map(Self.bytes) ?? 0
            return contents
        }

        /// Decodes a row.
        ///
        /// - Returns: Nil if it is invalid.
        private static func entry(_ row: Row, _ id: OutboxEntry.ID) -> OutboxEntry? {
            guard let key = String.fromDatabaseValue(row["key"]),
                let topic = String.fromDatabaseValue(row["topic"]),
                let type = UInt32.fromDatabaseValue(row["type"]),
                let byteCount = Int.fromDatabaseValue(row["byteCount"]), byteCount >= 0, byteCount <= Self.maximumBytes,
                let enqueued = Int64.fromDatabaseValue(row["enqueued"]),
                let attempts = Int.fromDatabaseValue(row["attempts"]), attempts >= 0, attempts <= Self.maximumAttempts
            else { return nil }
            return OutboxEntry(
                id: id,
                topic: topic,
                key: key,
                type: type,
                byteCount: byteCount,
                enqueued: Self.date(enqueued),
                // An invalid time counts as none: the message itself is valid.
                expires: Int64.fromDatabaseValue(row["expires"]).map(Self.date),
                attempts: attempts,
                // An earlier process may have sent it. Only dead letters have the flag on disk.
                mayHaveBeenSent: Bool.fromDatabaseValue(row["mayHaveBeenSent"]) ?? true
            )
        }

        // MARK: Messages

        /// Inserts a message, unless an equal one with its key waits.
        ///
        /// - Parameter removal: Returns the removal of a message that is not known to be on disk; nil if it waits. Such
        ///   a message is removed first: its row would otherwise be taken for a message that waits, and be removed
        ///   later.
        func insert(
            _ message: OutboxMessage,
            enqueued: Date,
            expires: Date?,
            removal: (OutboxEntry.ID) -> OutboxMachine.Action? = { _ in nil }
        ) throws -> Insertion {
            let metadata = try Self.encode(message.metadata)
            let body = Data(message.body.readableBytesView)
            let same = try Row.fetchOne(
                self.db,
                sql: """
                    SELECT id, topic = ? AND type = ? AND body = ? AND metadata = ? AS isSame FROM message
                    WHERE account = ? AND key = ?
                    """,
                arguments: [message.topic, message.type, body, metadata, self.account, message.key]
            )
            if let same, let id = Int64.fromDatabaseValue(same["id"]), let removal = removal(.init(rawValue: id)) {
                try self.remove(by: removal)
            } else if let same {
                guard let id = Int64.fromDatabaseValue(same["id"]), Bool.fromDatabaseValue(same["isSame"]) == true
                else {
                    return .refused(
                        OutboxError(
                            .keyInUse,
                            message: "another message with the key \(message.key) is waiting; a key names one message"
                        )
                    )
                }
                return .existing(.init(rawValue: id))
            }
            let statement = try self.db.cachedStatement(
                sql: """
                    INSERT INTO message (account, key, topic, type, body, metadata, byteCount, enqueued, expires)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                    """
            )
            let byteCount = message.byteCount
            try statement.execute(arguments: [
                self.account, message.key, message.topic, message.type, body, metadata, byteCount,
                Self.milliseconds(enqueued), expires.map(Self.milliseconds),
            ])
            return .added(
                OutboxEntry(
                    id: .init(rawValue: self.db.lastInsertedRowID),
                    topic: message.topic,
                    key: message.key,
                    type: message.type,
                    byteCount: byteCount,
                    enqueued: enqueued,
                    expires: expires,
                    mayHaveBeenSent: false
                )
            )
        }

        /// Removes a message from its table, as the action says. Has no effect on one that is not there.
        func remove(by action: OutboxMachine.Action) throws {
            switch action {
            case .remove(let entry, _): try self.remove(entry.id)
            case .bury(let letter): try self.bury(letter)
            case .send, .count, .report: break
            }
        }

        func remove(_ id: OutboxEntry.ID) throws {
            let statement = try self.db.cachedStatement(sql: "DELETE FROM message WHERE id = ?")
            try statement.execute(arguments: [id.rawValue])
        }

        func setAttempts(_ attempts: Int, of id: OutboxEntry.ID) throws {
            let statement = try self.db.cachedStatement(sql: "UPDATE message SET attempts = ? WHERE id = ?")
            try statement.execute(arguments: [min(attempts, Self.maximumAttempts), id.rawValue])
        }

        func content(_ id: OutboxEntry.ID) throws -> Reading {
            let sql = "SELECT body, metadata FROM message WHERE id = ?"
            guard let row = try Row.fetchOne(self.db, sql: sql, arguments: [id.rawValue]) else { return .missing }
            do throws(OutboxError) {
                return .found(try self.content(row, id))
            } catch {
                return .damaged(error)
            }
        }

        private func content(_ row: Row, _ id: OutboxEntry.ID) throws(OutboxError) -> Content {
            guard let body = Data.fromDatabaseValue(row["body"]),
                let metadata = Data.fromDatabaseValue(row["metadata"]).flatMap(Self.decode)
            else {
                throw OutboxError(
                    .corrupted,
                    message: "message \(id) in \(self.path) cannot be read: its body or its metadata is malformed"
                )
            }
            return (ByteBuffer(bytes: body), metadata)
        }

        /// Deletes the messages and dead letters of other accounts.
        ///
        /// - Returns: The number of messages and dead letters.
        func removeOtherAccounts() throws -> Int {
            var count = 0
            for table in ["message", "deadLetter"] {
                let sql = "DELETE FROM \(table) WHERE account IS NOT ?"
                try self.db.execute(sql: sql, arguments: [self.account])
                count += self.db.changesCount
            }
            return count
        }

        // MARK: Dead letters

        /// Moves a message to the dead letters, if it is there.
        func bury(_ letter: OutboxDeadLetter) throws {
            let statement = try self.db.cachedStatement(
                sql: """
                    INSERT INTO deadLetter (id, account, key, topic, type, body, metadata, byteCount, enqueued, attempts,
                        mayHaveBeenSent, reason, status, explanation, date)
                    SELECT id, account, key, topic, type, body, metadata, ?, enqueued, ?, ?, ?, ?, ?, ?
                    FROM message WHERE id = ?
                    """
            )
            try statement.execute(arguments: [
                letter.byteCount, min(letter.entry?.attempts ?? 0, Self.maximumAttempts),
                letter.entry?.mayHaveBeenSent ?? true, letter.reason.rawValue, letter.status?.rawValue,
                letter.explanation, Self.milliseconds(letter.date), letter.id.rawValue,
            ])
            try self.remove(letter.id)
        }

        /// Returns the dead letters in the order in which their messages were enqueued.
        func deadLetters() throws -> [OutboxDeadLetter] {
            let rows = try Row.fetchAll(
                self.db,
                sql: """
                    SELECT id, key, topic, type, byteCount, enqueued, NULL AS expires, attempts, mayHaveBeenSent, reason,
                        status, explanation, date
                    FROM deadLetter WHERE account = ? ORDER BY id
                    """,
                arguments: [self.account]
            )
            return rows.map { row in
                let id = OutboxEntry.ID(rawValue: row["id"])
                return OutboxDeadLetter(
                    id: id,
                    entry: Self.entry(row, id),
                    reason: .init(rawValue: String.fromDatabaseValue(row["reason"]) ?? ""),
                    status: UInt32.fromDatabaseValue(row["status"]).map(Status.init(rawValue:)),
                    explanation: String.fromDatabaseValue(row["explanation"]) ?? "",
                    date: Self.date(Int64.fromDatabaseValue(row["date"]) ?? 0),
                    byteCount: Self.bytes(row)
                )
            }
        }

        /// - Returns: Nil if it is not there, or belongs to another account.
        /// - Throws: ``OutboxError`` `corrupted` if it is invalid.
        func message(ofDeadLetter id: OutboxEntry.ID) throws -> (message: OutboxMessage, deadLetterBytes: Int)? {
            guard let row = try self.deadLetter(id) else { return nil }
            guard let entry = Self.entry(row, id) else {
                throw OutboxError(
                    .corrupted,
                    message: "dead letter \(id) in \(self.path) is invalid; it can only be removed"
                )
            }
            let content = try self.content(row, id)
            var message = OutboxMessage(type: entry.type, body: content.body, topic: entry.topic)
            message.metadata = content.metadata
            message.key = entry.key
            return (message, Self.bytes(row))
        }

        /// Turns a dead letter into a message again, the last of its topic.
        ///
        /// - Parameter key: The message's new key; nil to keep the old one.
        /// - Returns: Nil if it is not there, or belongs to another account.
        func resend(
            deadLetter id: OutboxEntry.ID,
            key: String?,
            enqueued: Date,
            expires: Date?,
            removal: (OutboxEntry.ID) -> OutboxMachine.Action? = { _ in nil }
        ) throws -> Resending? {
            guard let (message, bytes) = try self.message(ofDeadLetter: id) else { return nil }
            var resent = message
            if let key { resent.key = key }
            let insertion = try self.insert(resent, enqueued: enqueued, expires: expires, removal: removal)
            if case .refused = insertion {} else { try self.deleteDeadLetter(id) }
            return Resending(insertion: insertion, deadLetterBytes: bytes)
        }

        /// - Returns: Its ``OutboxDeadLetter/byteCount``; nil if it is not there, or belongs to another account.
        func remove(deadLetter id: OutboxEntry.ID) throws -> Int? {
            guard let row = try self.deadLetter(id) else { return nil }
            try self.deleteDeadLetter(id)
            return Self.bytes(row)
        }

        private func deadLetter(_ id: OutboxEntry.ID) throws -> Row? {
            try Row.fetchOne(
                self.db,
                sql: "SELECT *, NULL AS expires FROM deadLetter WHERE id = ? AND account = ?",
                arguments: [id.rawValue, self.account]
            )
        }

        private func deleteDeadLetter(_ id: OutboxEntry.ID) throws {
            try self.db.execute(sql: "DELETE FROM deadLetter WHERE id = ?", arguments: [id.rawValue])
        }

        // MARK: Values

        /// The largest valid number of bytes, more than any message has.
        private static let maximumBytes = 1 << 40
        private static let maximumAttempts = Int(Int32.max)

        private static func bytes(_ row: Row) -> Int {
            min(max(0, Int.fromDatabaseValue(row["byteCount"]) ?? 0), Self.maximumBytes)
        }

        private static func bytes(_ sum: Double) -> Int {
            Int(min(max(0, sum), Double(Self.maximumBytes)))
        }

        private static func encode(_ metadata: [String: String]) throws -> Data {
            guard !metadata.isEmpty else { return Data() }
            let encoder = JSONEncoder()
            // Sorted, so that equal metadata have equal bytes.
            encoder.outputFormatting = .sortedKeys
            return try encoder.encode(metadata)
        }

        private static func decode(_ data: Data) -> [String: String]? {
            data.isEmpty ? [:] : try? JSONDecoder().decode([String: String].self, from: data)
        }

        private static func milliseconds(_ date: Date) -> Int64 {
            // Dates beyond the year 280,000 are clamped; none are made.
            Int64(exactly: (date.timeIntervalSince1970 * 1_000).rounded()) ?? .max
        }

        private static func date(_ milliseconds: Int64) -> Date {
            Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
        }
    }
}
#endif
