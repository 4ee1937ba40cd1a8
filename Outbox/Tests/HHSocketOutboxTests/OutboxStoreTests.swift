// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import GRDB
import HHSocketRPC
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct OutboxStoreTests {
    private func fill(_ path: String, count: Int = 50) async throws {
        let outbox = try await Outbox(at: path, transport: FakeTransport(isConnected: false))
        for number in 0..<count {
            try await outbox.enqueue(
                OutboxMessage(type: 130, body: String(repeating: "\(number)", count: 1_000), topic: "a")
            )
        }
        await outbox.close()
    }

    private func code(_ body: () async throws -> Outbox) async -> OutboxError.Code? {
        do {
            _ = try await body()
            return nil
        } catch {
            return (error as? OutboxError)?.code
        }
    }

    private func open(
        _ path: String,
        _ policy: OutboxConfiguration.CorruptionPolicy = .refuse
    ) async throws -> Outbox {
        var configuration = OutboxConfiguration()
        configuration.whenCorrupted = policy
        return try await Outbox(
            at: path,
            transport: FakeTransport(isConnected: false),
            configuration: configuration
        )
    }

    /// Overwrites a part of a file.
    private func damage(_ path: String, from: Int, count: Int) throws {
        var data = try Data(contentsOf: URL(fileURLWithPath: path))
        for index in from..<min(from + count, data.count) { data[index] = 0xA5 }
        try data.write(to: URL(fileURLWithPath: path))
    }

    @Test func writtenMessagesHaveReachedTheDisk() throws {
        let folder = try TemporaryFolder()
        let (store, _) = try OutboxStore.open(folder.outbox, now: Date())
        // FULL.
        #expect(try store.pragma("synchronous") == 2)
        #expect(try store.pragma("fullfsync") == 1)
        // INCREMENTAL.
        #expect(try store.pragma("auto_vacuum") == 2)
        #expect(FileManager.default.fileExists(atPath: folder.outbox + "-wal"))
    }

    @Test func aSecondOutboxIsRefusedUntilTheFirstIsClosed() async throws {
        let folder = try TemporaryFolder()
        let outbox = try await self.open(folder.outbox)
        #expect(await self.code { try await self.open(folder.outbox) } == .inUse)
        #expect(await self.code { try await self.open(folder.outbox, .setAside) } == .inUse)
        await outbox.close()
        #expect(await self.code { try await self.open(folder.outbox) } == nil)
    }

    @Test func aDamagedFileIsRejectedAndNotChanged() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox)
        try self.damage(folder.outbox, from: 4_096, count: 20_000)
        let before = try Data(contentsOf: URL(fileURLWithPath: folder.outbox))
        #expect(await self.code { try await self.open(folder.outbox) } == .corrupted)
        #expect(await self.code { try await self.open(folder.outbox) } == .corrupted)
        #expect(try Data(contentsOf: URL(fileURLWithPath: folder.outbox)) == before)
    }

    @Test(arguments: [0, 4_096]) func aDamagedFileIsSetAsideIfConfigured(from: Int) async throws {
        let folder = try TemporaryFolder()
        for number in 1...2 {
            try await self.fill(folder.outbox)
            try self.damage(folder.outbox, from: from, count: 20_000)
            let before = try Data(contentsOf: URL(fileURLWithPath: folder.outbox))
            let outbox = try await self.open(folder.outbox, .setAside)
            let aside = try #require(outbox.setAside)
            #expect(aside == folder.outbox + ".corrupt-\(number)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: aside)) == before)
            #expect(outbox.pending == [])
            try await outbox.enqueue(OutboxMessage(type: 130, topic: "a"))
            await outbox.close()
            let next = try await self.open(folder.outbox)
            #expect(next.setAside == nil)
            #expect(next.pending.count == 1)
            await next.close()
        }
    }

    @Test func otherFilesAndDatabasesAreNotChanged() async throws {
        let folder = try TemporaryFolder()
        let text = folder.path + "/text"
        try String(repeating: "not a database\n", count: 1_000).write(toFile: text, atomically: true, encoding: .utf8)
        #expect(await self.code { try await self.open(text) } == .corrupted)
        let foreign = folder.path + "/foreign.sqlite"
        let database = try DatabaseQueue(path: foreign)
        try await database.write { try $0.execute(sql: "CREATE TABLE thing (id INTEGER)") }
        try database.close()
        let before = try Data(contentsOf: URL(fileURLWithPath: foreign))
        #expect(await self.code { try await self.open(foreign) } == .notAnOutbox)
        #expect(await self.code { try await self.open(foreign, .setAside) } == .notAnOutbox)
        #expect(try Data(contentsOf: URL(fileURLWithPath: foreign)) == before)
    }

    @Test func filesOfALaterVersionAreRejected() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox, count: 1)
        let database = try DatabaseQueue(path: folder.outbox)
        try await database.write { try $0.execute(sql: "INSERT INTO grdb_migrations VALUES ('99')") }
        try database.close()
        #expect(await self.code { try await self.open(folder.outbox) } == .newerVersion)
        #expect(await self.code { try await self.open(folder.outbox, .setAside) } == .newerVersion)
    }

    private func change(_ path: String, _ sql: String) async throws {
        let database = try DatabaseQueue(path: path)
        try await database.write { try $0.execute(sql: sql) }
        try database.close()
    }

    @Test func invalidRowsBecomeDeadLettersAndTheOthersAreSent() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox, count: 4)
        try await self.change(
            folder.outbox,
            """
            UPDATE message SET type = 'seven' WHERE id = 1;
            UPDATE message SET byteCount = -1 WHERE id = 2;
            UPDATE message SET key = x'FF00' WHERE id = 3
            """
        )
        let transport = FakeTransport(FakeTransport.ok)
        var configuration = OutboxConfiguration()
        configuration.whenCorrupted = .setAside
        let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
        #expect(outbox.setAside == nil)
        try await eventually("the sound one leaves") { outbox.snapshot.count == 0 }
        #expect(transport.sent == [String(repeating: "3", count: 1_000)])
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.id.rawValue) == [1, 2, 3])
        #expect(letters.allSatisfy { $0.reason == .unreadable && $0.explanation.contains("is invalid") })
        // The types of the others are lost; the length of the second could be recovered, so it can be sent.
        #expect(letters.map { $0.entry != nil } == [false, true, false])
        #expect(letters.allSatisfy { $0.byteCount > 1_000 })
        await #expect { try await outbox.resend(deadLetter: letters[0].id) } throws: {
            ($0 as? OutboxError)?.code == .corrupted
        }
        try await outbox.resend(deadLetter: letters[1].id)
        try await eventually("the second leaves") { transport.sent.count == 2 && outbox.snapshot.count == 0 }
        for letter in [letters[0], letters[2]] { try await outbox.remove(deadLetter: letter.id) }
        #expect((outbox.snapshot.deadLetterCount, outbox.snapshot.deadLetterBytes) == (0, 0))
        await outbox.close()
        let next = try await self.open(folder.outbox)
        #expect(next.pending == [])
        #expect(next.snapshot.deadLetterCount == 0)
    }

    @Test func bodyThatCannotBeReadDoesNotBlockItsTopic() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox, count: 2)
        try await self.change(folder.outbox, "UPDATE message SET metadata = x'5B5B' WHERE id = 1")
        let transport = FakeTransport(FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        try await eventually("the second leaves") { outbox.snapshot.count == 0 }
        #expect(transport.sent == [String(repeating: "1", count: 1_000)])
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.reason) == [.unreadable])
        await #expect { try await outbox.resend(deadLetter: letters[0].id) } throws: {
            ($0 as? OutboxError)?.code == .corrupted
        }
        #expect(outbox.snapshot.deadLetterCount == 1)
        await outbox.close()
    }

    // MARK: Earlier versions

    /// Writes a file in the format of the first version.
    private func writeFirstVersion(_ path: String, messages: [(id: Int, key: String)], lastID: Int) async throws {
        let database = try DatabaseQueue(path: path)
        try await database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL")
            try db.execute(sql: "PRAGMA application_id = \(0x4848_4F42)")
            _ = try String.fetchOne(db, sql: "PRAGMA journal_mode = WAL")
            try db.execute(
                sql: """
                    CREATE TABLE grdb_migrations (identifier TEXT NOT NULL PRIMARY KEY);
                    INSERT INTO grdb_migrations VALUES ('1');
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
            for message in messages {
                try db.execute(
                    sql: """
                        INSERT INTO message VALUES (?, ?, 'a', 130, CAST(? AS BLOB),
                            CAST('{"tenant":"acme"}' AS BLOB), 20, 1000000000000, 9000000000000)
                        """,
                    arguments: [message.id, message.key, "body \(message.id)"]
                )
            }
            // Messages that were delivered had the numbers up to this one.
            try db.execute(sql: "DELETE FROM sqlite_sequence WHERE name = 'message'")
            try db.execute(sql: "INSERT INTO sqlite_sequence (name, seq) VALUES ('message', ?)", arguments: [lastID])
        }
        try database.close()
    }

    @Test func fileOfTheFirstVersionIsMigrated() async throws {
        let folder = try TemporaryFolder()
        try await self.writeFirstVersion(folder.outbox, messages: [(3, "k3"), (7, "k7")], lastID: 9)
        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        #expect(outbox.pending.map(\.id.rawValue) == [3, 7])
        #expect(outbox.pending.map(\.key) == ["k3", "k7"])
        #expect(outbox.pending.map(\.attempts) == [0, 0])
        #expect(outbox.pending.allSatisfy { $0.expires == Date(timeIntervalSince1970: 9_000_000_000) })
        let id = try await outbox.enqueue(OutboxMessage(type: 130, body: "new", topic: "a"))
        #expect(id.rawValue == 10)
        transport.connectivityChanged(true)
        try await eventually("all leave") { outbox.snapshot.count == 0 }
        #expect(transport.sent == ["body 3", "body 7", "new"])
        #expect(transport.requests.map(\.idempotencyKey).prefix(2) == ["k3", "k7"])
        #expect(transport.requests[0].metadata == ["tenant": "acme"])
        await outbox.close()
        let next = try await self.open(folder.outbox)
        #expect(next.pending == [])
        await next.close()
    }

    @Test func emptyFileOfTheFirstVersionReusesNoNumber() async throws {
        let folder = try TemporaryFolder()
        try await self.writeFirstVersion(folder.outbox, messages: [], lastID: 41)
        let outbox = try await self.open(folder.outbox)
        let id = try await outbox.enqueue(OutboxMessage(type: 130, topic: "a"))
        #expect(id.rawValue == 42)
        await outbox.close()
    }

    // MARK: The files

    private func modes(_ folder: TemporaryFolder) throws -> [String: Int] {
        try Dictionary(
            folder.files.map { name in
                let attributes = try FileManager.default.attributesOfItem(atPath: folder.file(name))
                return (name, try #require(attributes[.posixPermissions] as? NSNumber).intValue)
            },
            uniquingKeysWith: { first, _ in first }
        )
    }

    @Test func onlyTheOwnerMayReadTheFiles() async throws {
        let folder = try TemporaryFolder()
        let names = ["outbox.sqlite", "outbox.sqlite-shm", "outbox.sqlite-wal", "outbox.sqlite.lock"]
        for round in 1...2 {
            let outbox = try await self.open(folder.outbox)
            try await outbox.enqueue(OutboxMessage(type: 130, topic: "a"))
            let modes = try self.modes(folder)
            #expect(modes == Dictionary(uniqueKeysWithValues: names.map { ($0, 0o600) }), "round \(round)")
            await outbox.close()
            // As a version that left the mode to the umask would have created it.
            try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: folder.outbox)
        }
        // A file of another program must not be changed.
        let foreign = folder.file("foreign.sqlite")
        try await self.change(foreign, "CREATE TABLE thing (id INTEGER)")
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: foreign)
        #expect(await self.code { try await self.open(foreign) } == .notAnOutbox)
        #expect(try self.modes(folder)["foreign.sqlite"] == 0o644)
    }

    @Test func aMissingFolderIsReported() async throws {
        let folder = try TemporaryFolder()
        #expect(await self.code { try await self.open(folder.path + "/none/outbox.sqlite") } == .storageFailed)
    }

    #if os(Linux)
    /// A place where no process may write, not even root's.
    @Test func aReadOnlyFolderIsReported() async throws {
        #expect(await self.code { try await self.open("/sys/outbox.sqlite") } == .readOnly)
    }
    #endif

    @Test func aFullDiskRejectsOnlyTheMessageThatDoesNotFit() async throws {
        let folder = try TemporaryFolder()
        let (store, _) = try OutboxStore.open(folder.outbox, now: Date())
        // A disk of half a megabyte.
        _ = try store.pragma("max_page_count = 128")
        let writer = OutboxWriter(store, on: DispatchQueue(label: "test"))
        let results = Watched<[String]>([])
        func insert(_ bytes: Int) {
            let message = OutboxMessage(type: 130, body: ByteBuffer(repeating: 1, count: bytes), topic: "a")
            writer.submit({ try $0.insert(message, enqueued: Date(), expires: nil) }) { result in
                let text =
                    switch result {
                    case .success(.added(let entry)): "added \(entry.id)"
                    case .success: "?"
                    case .failure(let error): "\(error.code)"
                    }
                results.withLockedValue { $0.append(text) }
            }
        }
        // Together, so perhaps in one transaction.
        insert(1_000)
        insert(1_000_000)
        insert(1_000)
        try await results.wait("three results") { $0.count == 3 }
        #expect(results.current == ["added 1", "diskFull", "added 2"])
        await writer.close()
    }

    @Test func spaceIsNotReleasedAfterEachMessage() async throws {
        let folder = try TemporaryFolder()
        let (store, _) = try OutboxStore.open(folder.outbox, now: Date())
        let writer = OutboxWriter(store, on: DispatchQueue(label: "test"))
        func deliver(count: Int, bytes: Int) async throws {
            var ids: [OutboxEntry.ID] = []
            for _ in 0..<count {
                let message = OutboxMessage(type: 130, body: ByteBuffer(repeating: 1, count: bytes), topic: "a")
                let insertion = try await writer.perform { try $0.insert(message, enqueued: Date(), expires: nil) }
                if case .added(let entry) = insertion { ids.append(entry.id) }
            }
            #expect(ids.count == count)
            for id in ids { try await writer.perform(freesSpace: true) { try $0.remove(id) } }
            // The work after a removal is done before the next work.
            _ = try await writer.perform { try $0.deadLetters() }
        }
        try await deliver(count: 1, bytes: 100_000)
        #expect(try #require(try store.pragma("freelist_count")) > 20)
        // Now returning the space is worthwhile.
        try await deliver(count: 20, bytes: 100_000)
        let size = try #require(try store.pragma("page_size")) * #require(try store.pragma("freelist_count"))
        #expect(size < 400_000)
        await writer.close()
    }

    @Test func spaceIsReleasedWhenMuchIsFree() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        for number in 0..<40 {
            try await outbox.enqueue(
                OutboxMessage(type: 130, body: ByteBuffer(repeating: 1, count: 100_000), topic: "\(number)")
            )
        }
        transport.connectivityChanged(true)
        try await eventually("it is empty") { outbox.snapshot.count == 0 }
        await outbox.close()
        let size = try FileManager.default.attributesOfItem(atPath: folder.outbox)[.size] as? Int
        // Of 4 MB.
        #expect(try #require(size) < 500_000)
        #expect(folder.files == ["outbox.sqlite", "outbox.sqlite.lock"])
    }

    @Test func numbersAreNeverReused() async throws {
        let folder = try TemporaryFolder()
        for round in 1...3 as ClosedRange<Int64> {
            let outbox = try await Outbox(at: folder.outbox, transport: FakeTransport(FakeTransport.ok))
            let id = try await outbox.enqueue(OutboxMessage(type: 130, topic: "a"))
            #expect(id.rawValue == round)
            try await eventually("it is empty") { outbox.snapshot.count == 0 }
            await outbox.close()
        }
    }
}
#endif
