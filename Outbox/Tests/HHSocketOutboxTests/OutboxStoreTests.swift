#if Outbox
import Foundation
import GRDB
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

    /// Writes over the middle of a file.
    private func damage(_ path: String, from: Int, count: Int) throws {
        var data = try Data(contentsOf: URL(fileURLWithPath: path))
        for index in from..<min(from + count, data.count) { data[index] = 0xA5 }
        try data.write(to: URL(fileURLWithPath: path))
    }

    @Test func whatIsWrittenHasReachedTheDisk() throws {
        let folder = try TemporaryFolder()
        let (store, _) = try OutboxStore.open(folder.outbox, whenCorrupted: .refuse)
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

    @Test func aDamagedFileIsRefusedAndLeftAsItIs() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox)
        try self.damage(folder.outbox, from: 4_096, count: 20_000)
        let before = try Data(contentsOf: URL(fileURLWithPath: folder.outbox))
        #expect(await self.code { try await self.open(folder.outbox) } == .corrupted)
        #expect(await self.code { try await self.open(folder.outbox) } == .corrupted)
        #expect(try Data(contentsOf: URL(fileURLWithPath: folder.outbox)) == before)
    }

    @Test(arguments: [0, 4_096]) func aDamagedFileIsSetAsideIfTheAppSaysSo(from: Int) async throws {
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

    @Test func whatIsNoDatabaseOrAnothersIsNotTouched() async throws {
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

    @Test func whatALaterVersionWroteIsRefused() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox, count: 1)
        let database = try DatabaseQueue(path: folder.outbox)
        try await database.write { try $0.execute(sql: "INSERT INTO grdb_migrations VALUES ('99')") }
        try database.close()
        #expect(await self.code { try await self.open(folder.outbox) } == .newerVersion)
        #expect(await self.code { try await self.open(folder.outbox, .setAside) } == .newerVersion)
    }

    @Test func aRowThatMakesNoSenseIsNoTrap() async throws {
        let folder = try TemporaryFolder()
        try await self.fill(folder.outbox, count: 2)
        let database = try DatabaseQueue(path: folder.outbox)
        try await database.write { try $0.execute(sql: "UPDATE message SET type = 'seven' WHERE id = 1") }
        try database.close()
        #expect(await self.code { try await self.open(folder.outbox) } == .corrupted)
        let outbox = try await self.open(folder.outbox, .setAside)
        #expect(outbox.setAside == folder.outbox + ".corrupt-1")
        #expect(outbox.pending == [])
    }

    @Test func aFolderThatIsNotThereIsSaid() async throws {
        let folder = try TemporaryFolder()
        #expect(await self.code { try await self.open(folder.path + "/none/outbox.sqlite") } == .storageFailed)
    }

    #if os(Linux)
    /// Where nobody may write, not even root.
    @Test func aPlaceThatMayNotBeWrittenIsSaid() async throws {
        #expect(await self.code { try await self.open("/sys/outbox.sqlite") } == .readOnly)
    }
    #endif

    @Test func aFullDiskRefusesTheMessageThatDoesNotFitAndNoOther() async throws {
        let folder = try TemporaryFolder()
        let (store, _) = try OutboxStore.open(folder.outbox, whenCorrupted: .refuse)
        // A disk of half a megabyte.
        _ = try store.pragma("max_page_count = 128")
        let writer = OutboxWriter(store, on: DispatchQueue(label: "test"))
        let results = Watched<[String]>([])
        func insert(_ bytes: Int) {
            let message = OutboxMessage(type: 130, body: ByteBuffer(repeating: 1, count: bytes), topic: "a")
            writer.submit(
                .insert(message, enqueued: Date(), expires: nil) { result in
                    let text =
                        switch result {
                        case .success(.added(let entry)): "added \(entry.id)"
                        case .success: "?"
                        case .failure(let error): "\(error.code)"
                        }
                    results.withLockedValue { $0.append(text) }
                }
            )
        }
        // Together, so perhaps in one transaction.
        insert(1_000)
        insert(1_000_000)
        insert(1_000)
        try await results.wait("three results") { $0.count == 3 }
        #expect(results.current == ["added 1", "diskFull", "added 2"])
        await withCheckedContinuation { continuation in writer.submit(.close { continuation.resume() }) }
    }

    @Test func spaceIsGivenBackWhenNothingWaits() async throws {
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
        #expect(try #require(size) < 200_000)
        #expect(folder.files == ["outbox.sqlite", "outbox.sqlite.lock"])
    }

    @Test func numbersAreNeverGivenAgain() async throws {
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
