#if Outbox
import Foundation
import GRDB
import HHSocketRPC
import NIOCore

/// The messages on disk. Blocks; to be used by one thread at a time.
///
/// SQLite with a write-ahead log, and `synchronous` FULL: a commit has reached the disk when it returns. With NORMAL it would
/// survive the death of the process too, but not a loss of power, and "must leave" is meant then as well.
final class OutboxStore: Sendable {
    private let lock: FileLock
    private let database: DatabaseQueue
    private let path: String
    /// Where the damaged file is that was in its place.
    let setAside: String?

    /// "HHOB": says that a database is an outbox.
    private static let applicationID = 0x4848_4F42
    /// What the log may keep of the disk once it has been written back: 1 MiB.
    private static let journalSizeLimit = 1 << 20

    private init(_ lock: FileLock, _ database: DatabaseQueue, _ path: String, setAside: String?) {
        self.lock = lock
        self.database = database
        self.path = path
        self.setAside = setAside
    }

    /// Opens the file, or makes it.
    ///
    /// - Returns: The store, and what was in it, in order.
    /// - Throws: ``OutboxError``, with everything closed.
    static func open(
        _ path: String,
        whenCorrupted policy: OutboxConfiguration.CorruptionPolicy
    ) throws(OutboxError) -> (store: OutboxStore, entries: [OutboxEntry]) {
        let lock = try FileLock(path + FileLock.suffix)
        do throws(OutboxError) {
            let (database, entries) = try Self.open(path)
            return (OutboxStore(lock, database, path, setAside: nil), entries)
        } catch {
            guard error.code == .corrupted, policy == .setAside else { throw error }
            let other = try Self.rename(path)
            let (database, entries) = try Self.open(path)
            return (OutboxStore(lock, database, path, setAside: other), entries)
        }
    }

    deinit {
        // Before the lock is given up.
        try? self.database.close()
    }

    // MARK: Opening

    private static func open(_ path: String) throws(OutboxError) -> (DatabaseQueue, [OutboxEntry]) {
        try Self.mapping("the outbox \(path) cannot be opened", path) {
            var configuration = Configuration()
            configuration.label = "HHSocketOutbox"
            let database = try DatabaseQueue(path: path, configuration: configuration)
            do {
                try database.writeWithoutTransaction { try Self.prepare($0, path) }
                let migrator = Self.migrator
                if try database.read({ try migrator.hasBeenSuperseded($0) }) {
                    throw OutboxError(
                        .newerVersion,
                        message:
                            "\(path) was written by a later version of HHSocketOutbox; it cannot be read by this one"
                    )
                }
                try migrator.migrate(database)
                return (database, try database.read { try Self.load($0, path) })
            } catch {
                try? database.close()
                throw error
            }
        }
    }

    private static func prepare(_ db: Database, _ path: String) throws {
        let tables = try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_master") ?? 0
        if tables == 0 {
            // So that space can be given back. It must be said before there is anything in the file.
            try db.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL")
            try db.execute(sql: "PRAGMA application_id = \(Self.applicationID)")
        } else if try Int.fetchOne(db, sql: "PRAGMA application_id") != Self.applicationID {
            throw OutboxError(
                .notAnOutbox,
                message: "\(path) is a database of something else; give the outbox a file of its own"
            )
        }
        let mode = try String.fetchOne(db, sql: "PRAGMA journal_mode = WAL")
        guard mode == "wal" else {
            throw OutboxError(
                .storageFailed,
                message: "\(path) is where SQLite cannot keep a write-ahead log, such as a network's file system"
            )
        }
        try db.execute(sql: "PRAGMA synchronous = FULL")
        // Apple's disks keep what was written in a cache of their own unless they are told; elsewhere it does nothing.
        try db.execute(sql: "PRAGMA fullfsync = 1")
        try db.execute(sql: "PRAGMA checkpoint_fullfsync = 1")
        _ = try Int.fetchOne(db, sql: "PRAGMA journal_size_limit = \(Self.journalSizeLimit)")
        let verdict = try String.fetchOne(db, sql: "PRAGMA quick_check(1)") ?? "no answer"
        guard verdict == "ok" else { throw Self.corrupted(path, verdict, nil) }
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { db in
            // Numbers are never used again, so that an ID names one message for ever. Times are in milliseconds since 1970.
            try db.execute(
                sql: """
                    CREATE TABLE message (
                        id INTEGER PRIMARY KEY AUTOINCREMENT,
                        key TEXT NOT NULL UNIQUE,
                        topic TEXT NOT NULL,
                        type INTEGER NOT NULL,
                        body BLOB NOT NULL,
                        metadata BLOB NOT NULL,
                        byteCount INTEGER NOT NULL,
                        enqueued INTEGER NOT NULL,
                        expires INTEGER
                    )
                    """
            )
        }
        return migrator
    }

    private static func load(_ db: Database, _ path: String) throws -> [OutboxEntry] {
        let sql = "SELECT id, key, topic, type, byteCount, enqueued, expires FROM message ORDER BY id"
        return try Row.fetchAll(db, sql: sql).map { row in
            guard let id = Int64.fromDatabaseValue(row["id"]),
                let key = String.fromDatabaseValue(row["key"]),
                let topic = String.fromDatabaseValue(row["topic"]),
                let type = UInt32.fromDatabaseValue(row["type"]),
                let byteCount = Int.fromDatabaseValue(row["byteCount"]), byteCount >= 0, byteCount <= 1 << 40,
                let enqueued = Int64.fromDatabaseValue(row["enqueued"])
            else { throw Self.corrupted(path, "a message makes no sense", nil) }
            return OutboxEntry(
                id: .init(rawValue: id),
                topic: topic,
                key: key,
                type: type,
                byteCount: byteCount,
                enqueued: Self.date(enqueued),
                expires: Int64.fromDatabaseValue(row["expires"]).map(Self.date),
                // By the process before, for all that is known.
                mayHaveBeenSent: true
            )
        }
    }

    /// Gives a damaged file and its log another name, which nothing has.
    private static func rename(_ path: String) throws(OutboxError) -> String {
        var number = 1
        while ["", "-wal"].contains(where: { FileManager.default.fileExists(atPath: "\(path).corrupt-\(number)\($0)") })
        {
            number += 1
        }
        let other = "\(path).corrupt-\(number)"
        do {
            try FileManager.default.moveItem(atPath: path, toPath: other)
            // The log belongs to it, and would spoil the new one. What is shared by processes is made anew from it.
            if FileManager.default.fileExists(atPath: path + "-wal") {
                try FileManager.default.moveItem(atPath: path + "-wal", toPath: other + "-wal")
            }
            if FileManager.default.fileExists(atPath: path + "-shm") {
                try FileManager.default.moveItem(atPath: path + "-shm", toPath: other + "-shm")
            }
        } catch {
            throw OutboxError(
                .corrupted,
                message: "\(path) is damaged and cannot be renamed to \(other): \(error)",
                underlying: error
            )
        }
        return other
    }

    /// Closes the database, and gives the lock up.
    func close() throws(OutboxError) {
        try Self.mapping("the outbox \(self.path) cannot be closed", self.path) { try self.database.close() }
        self.lock.unlock()
    }

    // MARK: Messages

    enum Insertion: Sendable {
        case added(OutboxEntry)
        /// It was there before.
        case existing(OutboxEntry.ID)
        case refused(OutboxError)
    }

    /// All or nothing of what is done by `body` is on disk when this returns.
    func transaction<T>(_ body: (Transaction) throws -> T) throws(OutboxError) -> T {
        try Self.mapping("the outbox \(self.path) cannot be written", self.path) {
            try self.database.write { try body(Transaction(db: $0, path: self.path)) }
        }
    }

    /// Gives space back to the system.
    func vacuum() throws(OutboxError) {
        try Self.mapping("the outbox \(self.path) cannot be made smaller", self.path) {
            try self.database.writeWithoutTransaction { db in
                // Each step frees one page.
                let cursor = try Row.fetchCursor(db, sql: "PRAGMA incremental_vacuum")
                while try cursor.next() != nil {}
            }
        }
    }

    /// For tests: what SQLite says.
    func pragma(_ name: String) throws -> Int? {
        try self.database.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA \(name)") }
    }

    /// What can be done in one go.
    struct Transaction {
        fileprivate let db: Database
        fileprivate let path: String

        func insert(_ message: OutboxMessage, enqueued: Date, expires: Date?) throws -> Insertion {
            let metadata = try OutboxStore.encode(message.metadata)
            let body = Data(message.body.readableBytesView)
            let same = try Row.fetchOne(
                self.db,
                sql:
                    "SELECT id, topic = ? AND type = ? AND body = ? AND metadata = ? AS isSame FROM message WHERE key = ?",
                arguments: [message.topic, message.type, body, metadata, message.key]
            )
            if let same {
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
                    INSERT INTO message (key, topic, type, body, metadata, byteCount, enqueued, expires)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
                    """
            )
            let byteCount = message.byteCount
            try statement.execute(arguments: [
                message.key, message.topic, message.type, body, metadata, byteCount,
                OutboxStore.milliseconds(enqueued), expires.map(OutboxStore.milliseconds),
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

        func remove(_ ids: [OutboxEntry.ID]) throws {
            let statement = try self.db.cachedStatement(sql: "DELETE FROM message WHERE id = ?")
            for id in ids { try statement.execute(arguments: [id.rawValue]) }
        }

        /// - Returns: Nil if it is not there.
        func body(_ id: OutboxEntry.ID) throws -> (body: ByteBuffer, metadata: [String: String])? {
            let sql = "SELECT body, metadata FROM message WHERE id = ?"
            guard let row = try Row.fetchOne(self.db, sql: sql, arguments: [id.rawValue]) else { return nil }
            guard let body = Data.fromDatabaseValue(row["body"]),
                let metadata = Data.fromDatabaseValue(row["metadata"]).flatMap(OutboxStore.decode)
            else { throw OutboxStore.corrupted(self.path, "message \(id) makes no sense", nil) }
            return (ByteBuffer(bytes: body), metadata)
        }
    }

    // MARK: Values

    private static func encode(_ metadata: [String: String]) throws -> Data {
        guard !metadata.isEmpty else { return Data() }
        let encoder = JSONEncoder()
        // Always the same, so that it can be compared.
        encoder.outputFormatting = .sortedKeys
        return try encoder.encode(metadata)
    }

    private static func decode(_ data: Data) -> [String: String]? {
        data.isEmpty ? [:] : try? JSONDecoder().decode([String: String].self, from: data)
    }

    private static func milliseconds(_ date: Date) -> Int64 {
        // Beyond the year 280,000 it cannot be said; no such date is made.
        Int64(exactly: (date.timeIntervalSince1970 * 1_000).rounded()) ?? .max
    }

    private static func date(_ milliseconds: Int64) -> Date {
        Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
    }

    // MARK: Errors

    private static func corrupted(_ path: String, _ why: String, _ underlying: (any Error)?) -> OutboxError {
        OutboxError(
            .corrupted,
            message: """
                \(path) is damaged: \(why). Nothing was changed; OutboxConfiguration.whenCorrupted = .setAside renames it and \
                begins with an empty one
                """,
            underlying: underlying
        )
    }

    private static func mapping<T>(
        _ what: String,
        _ path: String,
        _ body: () throws -> T
    ) throws(OutboxError) -> T {
        do {
            return try body()
        } catch let error as OutboxError {
            throw error
        } catch let error as DatabaseError {
            let why = error.message ?? "SQLite's error \(error.extendedResultCode.rawValue)"
            switch error.resultCode {
            case .SQLITE_FULL:
                throw OutboxError(.diskFull, message: "\(what): there is no room on the disk", underlying: error)
            case .SQLITE_READONLY, .SQLITE_PERM:
                throw OutboxError(.readOnly, message: "\(what): it may not be written", underlying: error)
            case .SQLITE_CORRUPT, .SQLITE_NOTADB:
                throw Self.corrupted(path, why, error)
            case .SQLITE_BUSY, .SQLITE_LOCKED:
                throw OutboxError(.inUse, message: "\(what): another program uses it", underlying: error)
            default:
                throw OutboxError(.storageFailed, message: "\(what): \(why)", underlying: error)
            }
        } catch {
            throw OutboxError(.storageFailed, message: "\(what): \(error)", underlying: error)
        }
    }
}
#endif
