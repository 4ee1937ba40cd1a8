// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import GRDB
import HHSocketRPC

/// The messages on disk. Blocks; used by one thread at a time.
///
/// SQLite with a write-ahead log, and `synchronous` FULL: a commit has reached the disk when it returns. With NORMAL it
/// would survive the death of the process, but not a loss of power, which must not lose messages either.
final class OutboxStore: Sendable {
    /// The account's contents of the disk.
    struct Contents: Sendable {
        /// The messages that wait, in order.
        var entries: [OutboxEntry] = []
        var deadLetterCount = 0
        var deadLetterBytes = 0
    }

    private let lock: FileLock
    private let database: DatabaseQueue
    private let path: String
    /// The account whose messages it reads and writes; empty for none.
    private let account: String
    /// The path to which a damaged file was renamed; nil if there was none.
    let setAside: String?

    /// "HHOB", which marks a database as an outbox.
    private static let applicationID = 0x4848_4F42
    /// The largest size of the log after a checkpoint: 1 MiB.
    private static let journalSizeLimit = 1 << 20
    /// The number of free bytes at which they are returned to the system, if they are also half of the file: 256 KiB.
    /// Returning them is a transaction with its own fsync, so it must not follow each message.
    private static let vacuumThreshold = 256 << 10
    /// The files that SQLite keeps beside the database, by their suffixes.
    private static let companions = ["-wal", "-shm"]

    private init(_ lock: FileLock, _ database: DatabaseQueue, _ path: String, account: String, setAside: String?) {
        self.lock = lock
        self.database = database
        self.path = path
        self.account = account
        self.setAside = setAside
    }

    /// Opens or creates the file.
    ///
    /// - Parameter now: The current time, which is the date of dead letters for damaged messages.
    /// - Returns: The store, and its contents.
    /// - Throws: ``OutboxError``; everything is then closed.
    static func open(
        _ path: String,
        _ configuration: OutboxConfiguration = OutboxConfiguration(),
        now: Date
    ) throws(OutboxError) -> (store: OutboxStore, contents: Contents) {
        let lock = try FileLock(path + FileLock.suffix)
        let account = configuration.account ?? ""
        let adopts = configuration.adoptsMessagesWithoutAccount
        do throws(OutboxError) {
            let (database, contents) = try Self.open(path, account, adopts: adopts, now)
            return (OutboxStore(lock, database, path, account: account, setAside: nil), contents)
        } catch {
            guard error.code == .corrupted, configuration.whenCorrupted == .setAside else { throw error }
            let other = try Self.rename(path)
            let (database, contents) = try Self.open(path, account, adopts: adopts, now)
            return (OutboxStore(lock, database, path, account: account, setAside: other), contents)
        }
    }

    deinit {
        // Before the lock is released.
        try? self.database.close()
    }

    // MARK: Opening

    private static func open(
        _ path: String,
        _ account: String,
        adopts: Bool,
        _ now: Date
    ) throws(OutboxError) -> (DatabaseQueue, Contents) {
        // SQLite creates its other files with the mode of the database.
        try PrivateFile.create(path, named: "the outbox")
        return try Self.mapping("the outbox \(path) cannot be opened", path) {
            var configuration = Configuration()
            configuration.label = "HHSocketOutbox"
            let database = try DatabaseQueue(path: path, configuration: configuration)
            do {
                try database.writeWithoutTransaction { try Self.prepare($0, path) }
                // It may be an outbox of a version that left the mode to the umask.
                for suffix in [""] + Self.companions { PrivateFile.protect(path + suffix) }
                let migrator = OutboxSchema.migrator
                if try database.read({ try migrator.hasBeenSuperseded($0) }) {
                    throw OutboxError(
                        .newerVersion,
                        message:
                            "\(path) was written by a later version of HHSocketOutbox; it cannot be read by this one"
                    )
                }
                try migrator.migrate(database)
                let contents = try database.write { db in
                    let transaction = Transaction(db: db, path: path, account: account)
                    if adopts { try transaction.adoptMessagesWithoutAccount() }
                    return try transaction.load(now)
                }
                return (database, contents)
            } catch {
                try? database.close()
                throw error
            }
        }
    }

    private static func prepare(_ db: Database, _ path: String) throws {
        let tables = try Int.fetchOne(db, sql: "SELECT count(*) FROM sqlite_master") ?? 0
        if tables == 0 {
            // Allows space to be returned. It must be set while the file is empty.
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
        // Apple's disks keep writes in their own cache unless asked to flush it; elsewhere this has no effect.
        try db.execute(sql: "PRAGMA fullfsync = 1")
        try db.execute(sql: "PRAGMA checkpoint_fullfsync = 1")
        _ = try Int.fetchOne(db, sql: "PRAGMA journal_size_limit = \(Self.journalSizeLimit)")
        let verdict = try String.fetchOne(db, sql: "PRAGMA quick_check(1)") ?? "no answer"
        guard verdict == "ok" else { throw Self.corrupted(path, verdict, nil) }
    }

    /// Renames a damaged file and its log to an unused name.
    private static func rename(_ path: String) throws(OutboxError) -> String {
        var number = 1
        while ["", "-wal"].contains(where: { FileManager.default.fileExists(atPath: "\(path).corrupt-\(number)\($0)") })
        {
            number += 1
        }
        let other = "\(path).corrupt-\(number)"
        do {
            try FileManager.default.moveItem(atPath: path, toPath: other)
            // The log belongs to the old file, and would corrupt the new one. The shared memory is rebuilt from it.
            for suffix in Self.companions where FileManager.default.fileExists(atPath: path + suffix) {
                try FileManager.default.moveItem(atPath: path + suffix, toPath: other + suffix)
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

    /// Closes the database, and releases the lock.
    func close() throws(OutboxError) {
        try Self.mapping("the outbox \(self.path) cannot be closed", self.path) { try self.database.close() }
        self.lock.unlock()
    }

    // MARK: Messages

    /// Runs `body` in a transaction: all or none of its changes are on disk when this returns.
    func transaction<T>(_ body: (Transaction) throws -> T) throws(OutboxError) -> T {
        try Self.mapping("the outbox \(self.path) cannot be written", self.path) {
            try self.database.write { try body(Transaction(db: $0, path: self.path, account: self.account)) }
        }
    }

    /// Returns free space to the system if it is at least half of the file, so that this costs less than the writing
    /// did, and at least ``vacuumThreshold``.
    func vacuum() throws(OutboxError) {
        try Self.mapping("the outbox \(self.path) cannot be made smaller", self.path) {
            try self.database.writeWithoutTransaction { db in
                let free = try Int.fetchOne(db, sql: "PRAGMA freelist_count") ?? 0
                let all = try Int.fetchOne(db, sql: "PRAGMA page_count") ?? 0
                let size = try Int.fetchOne(db, sql: "PRAGMA page_size") ?? 0
                guard free >= all / 2, free * size >= Self.vacuumThreshold else { return }
                // Each step frees one page.
                let cursor = try Row.fetchCursor(db, sql: "PRAGMA incremental_vacuum")
                while try cursor.next() != nil {}
            }
        }
    }

    /// For tests: the value of a pragma.
    func pragma(_ name: String) throws -> Int? {
        try self.database.writeWithoutTransaction { try Int.fetchOne($0, sql: "PRAGMA \(name)") }
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
