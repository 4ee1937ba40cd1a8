// SPDX-License-Identifier: Apache-2.0
#if Outbox
import GRDB

/// The tables of an outbox, and the migrations from earlier versions.
///
/// Times are in milliseconds since 1970. Migrations that have been released never change.
enum OutboxSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { db in
            // AUTOINCREMENT never reuses a number, so that an ID identifies one message forever.
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
        migrator.registerMigration("2", migrate: Self.addAccountsAttemptsAndDeadLetters)
        return migrator
    }

    /// Makes keys unique within their account. SQLite cannot change a constraint, so the table is copied.
    @Sendable private static func addAccountsAttemptsAndDeadLetters(_ db: Database) throws {
        let lastID = try Int64.fetchOne(db, sql: "SELECT seq FROM sqlite_sequence WHERE name = 'message'")
        try db.execute(
            sql: """
                CREATE TABLE newMessage (
                    id INTEGER PRIMARY KEY AUTOINCREMENT,
                    account TEXT NOT NULL DEFAULT '',
                    key TEXT NOT NULL,
                    topic TEXT NOT NULL,
                    type INTEGER NOT NULL,
                    body BLOB NOT NULL,
                    metadata BLOB NOT NULL,
                    byteCount INTEGER NOT NULL,
                    enqueued INTEGER NOT NULL,
                    expires INTEGER,
                    attempts INTEGER NOT NULL DEFAULT 0,
                    UNIQUE (account, key)
                );
                INSERT INTO newMessage (id, key, topic, type, body, metadata, byteCount, enqueued, expires)
                    SELECT id, key, topic, type, body, metadata, byteCount, enqueued, expires FROM message;
                DROP TABLE message;
                ALTER TABLE newMessage RENAME TO message
                """
        )
        // The numbers of messages that were removed must not be reused.
        if let lastID {
            try db.execute(sql: "DELETE FROM sqlite_sequence WHERE name = 'message'")
            try db.execute(sql: "INSERT INTO sqlite_sequence (name, seq) VALUES ('message', ?)", arguments: [lastID])
        }
        // The copy of a message may be damaged, so the columns have no constraints. Keys may occur several times.
        try db.execute(
            sql: """
                CREATE TABLE deadLetter (
                    id INTEGER PRIMARY KEY,
                    account TEXT,
                    key TEXT,
                    topic TEXT,
                    type INTEGER,
                    body BLOB,
                    metadata BLOB,
                    byteCount INTEGER NOT NULL,
                    enqueued INTEGER,
                    attempts INTEGER,
                    mayHaveBeenSent INTEGER NOT NULL,
                    reason TEXT NOT NULL,
                    status INTEGER,
                    explanation TEXT NOT NULL,
                    date INTEGER NOT NULL
                );
                CREATE INDEX deadLetterAccount ON deadLetter (account)
                """
        )
    }
}
#endif
