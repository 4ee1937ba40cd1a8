// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketServerTransfers
import HHSocketTransfers
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Files over a link that breaks, and while other clients interfere.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct BrokenTransferTests {
    /// The content that may be in transit when a connection is lost.
    private static let underWay: UInt64 = 4 << 20

    /// A number for each connection, which is equal in each run.
    private static func random(_ number: Int, _ range: Range<Int>) -> Int {
        var generator = SeededGenerator(seed: UInt64(number) &+ 42)
        return Int.random(in: range, using: &generator)
    }

    @Test func putsContinueOverALinkThatIsCut() async throws {
        let cuts = { @Sendable (number: Int) in
            CuttingRelay.Allowance(up: Self.random(number, 100_000..<3_000_000))
        }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, file) = try house.file("source", 12_000_000)
            let result = try await house.transfers.put(path, id: id("a")).value
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            let connections = house.link.connectionCount
            #expect(connections >= 5)
            #expect(result.bytesMoved <= file.size + UInt64(connections) * Self.underWay)
            // Only the content in the link's buffers, and its framing, was sent twice.
            #expect(house.link.bytesUp < 12_000_000 + connections * 700_000)
            #expect(try house.visible() == ["a"])
        }
    }

    @Test func getsContinueOverALinkThatIsCut() async throws {
        try await TransferHouse.with { house in
            let (path, file) = try house.file("source", 12_000_000)
            _ = try await house.transfers.put(path, id: id("a")).value
            try await house.reconnect { CuttingRelay.Allowance(down: Self.random($0, 100_000..<3_000_000)) }
            let before = (house.link.connectionCount, house.link.bytesDown)
            let copy = house.folder.file("copy")
            let result = try await house.transfers.get(id("a"), to: copy).value
            #expect(try TransferHouse.describe(copy) == file)
            // With the one that there was.
            let connections = house.link.connectionCount - before.0 + 1
            #expect(connections >= 5)
            // Half a piece is lost with each connection.
            #expect(house.link.bytesDown - before.1 < 12_000_000 + connections * 1_100_000)
            #expect(result.bytesMoved == file.size)
            #expect(try house.hidden() == [])
        }
    }

    /// Connections that carry less than the longest part of a file make progress nevertheless.
    @Test func connectionsThatCarryLittleAreOfUse() async throws {
        try await TransferHouse.with { house in
            let (path, file) = try house.file("source", 400_000)
            try await house.reconnect { _ in CuttingRelay.Allowance(up: 80_000, down: 80_000) }
            let put = try await house.transfers.put(path, id: id("a")).value
            #expect(put.file == file)
            let copy = house.folder.file("copy")
            let get = try await house.transfers.get(id("a"), to: copy).value
            #expect(get.file == file && get.bytesMoved == file.size)
            #expect(try TransferHouse.describe(copy) == file)
        }
    }

    @Test func severalContinueTogether() async throws {
        let cuts = { @Sendable (number: Int) in
            CuttingRelay.Allowance(
                up: Self.random(number, 300_000..<2_000_000),
                down: Self.random(number + 1_000, 300_000..<2_000_000)
            )
        }
        try await TransferHouse.with { house in
            let sources = try (0..<3).map { try house.file("source\($0)", 3_000_000, seed: UInt64($0)) }
            _ = try await house.transfers.put(sources[2].path, id: id("there")).value
            try await house.reconnect(allowing: cuts)
            let transfers = [
                house.transfers.put(sources[0].path, id: id("a0")), house.transfers.put(sources[1].path, id: id("a1")),
                house.transfers.get(id("there"), to: house.folder.file("b")),
            ]
            for transfer in transfers { _ = try await transfer.value }
            for number in 0..<2 {
                #expect(try TransferHouse.describe("\(house.store)/a\(number)") == sources[number].file)
            }
            #expect(try TransferHouse.describe(house.folder.file("b")) == sources[2].file)
        }
    }

    /// The last report does not arrive; the client finds that the file is complete.
    @Test func aLostAnswerIsFoundOut() async throws {
        let finished = Watched(0)
        let link = NIOLockedValueBox<CuttingRelay?>(nil)
        let store = { (store: FolderTransferStore) in
            WatchedStore(
                store,
                onFinish: {
                    finished.increment()
                    link.withLockedValue { $0 }?.cut()
                }
            )
        }
        try await TransferHouse.with(wrap: store) { house in
            link.withLockedValue { $0 = house.link }
            let (path, file) = try house.file("source", 1_000_000)
            let connections = house.link.connectionCount
            let result = try await house.transfers.put(path, id: id("a")).value
            #expect(result.file == file && result.bytesMoved == file.size)
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            #expect(finished.current == 1 && house.link.connectionCount > connections)
            link.withLockedValue { $0 = nil }
        }
    }

    @Test func aServerThatStartsAgainContinues() async throws {
        let folder = try TemporaryFolder()
        func start() async throws -> SocketServer {
            var router = Router()
            router.register(TransferService(store: try FolderTransferStore(path: folder.file("store"))) { _, _ in })
            let server = SocketServer(configuration: .init(), router: router)
            try await server.start()
            return server
        }
        let first = try await start()
        let link = try await CuttingRelay(to: try #require(first.address)) {
            CuttingRelay.Allowance(up: 1_500_000 * ($0 + 1))
        }
        let client = TransferHouse.client(of: link.endpoint)
        var options = TransferClient.Options()
        options.timeout = patience
        var generator = SeededGenerator(seed: 3)
        let content = Data(generator.bytes(6_000_000))
        let path = folder.file("source")
        try content.write(to: URL(fileURLWithPath: path))
        let put = TransferClient(client, options: options).put(path, id: id("a"))
        try await eventually("some progress") { put.progress.completed >= 500_000 }
        await first.shutdown(gracePeriod: .zero)
        let second = try await start()
        link.lead(to: try #require(second.address))
        link.allow { _ in .unlimited }
        let result = try await put.value
        #expect(put.progress.restarts == 0)
        #expect(result.bytesMoved < 6_000_000 + 2 * Self.underWay)
        #expect(try Data(contentsOf: URL(fileURLWithPath: folder.file("store/a"))) == content)
        await client.close()
        await second.shutdown(gracePeriod: .zero)
        withExtendedLifetime((folder, link)) {}
    }

    @Test func aSecondClientContinuesWhereTheFirstStopped() async throws {
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: number == 0 ? 2_500_000 : .max) }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, file) = try house.file("source", 5_000_000)
            let put = house.transfers.put(path, id: id("a"))
            try await house.progress(of: put, atLeast: 1_000_000)
            put.cancel()
            #expect(try await failure(of: put).code == .cancelled)
            #expect(try house.visible() == [])
            let client = TransferHouse.client(of: house.link.endpoint)
            let result = try await TransferClient(client).put(path, id: id("a")).value
            #expect(result.file == file && result.bytesMoved <= file.size - 1_000_000)
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            await client.close()
        }
    }

    @Test func aGetContinuesWhereAnotherStopped() async throws {
        try await TransferHouse.with { house in
            let (path, file) = try house.file("source", 5_000_000)
            _ = try await house.transfers.put(path, id: id("a")).value
            try await house.reconnect { $0 == 0 ? CuttingRelay.Allowance(down: 2_000_000) : .unlimited }
            let copy = house.folder.file("copy")
            let get = house.transfers.get(id("a"), to: copy)
            try await house.progress(of: get, atLeast: 1_000_000)
            get.cancel()
            if get.result == nil { #expect(try await failure(of: get).code == .cancelled) }
            #expect(try house.hidden().count == 1)
            let result = try await house.transfers.get(id("a"), to: copy).value
            #expect(result.bytesMoved <= file.size - 1_000_000)
            #expect(try TransferHouse.describe(copy) == file)
            #expect(try house.hidden() == [])
        }
    }

    @Test func discardingRemovesWhatHasCome() async throws {
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: number == 0 ? 2_500_000 : .max) }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, file) = try house.file("source", 5_000_000)
            let put = house.transfers.put(path, id: id("a"))
            try await house.progress(of: put, atLeast: 1_000_000)
            put.cancel(discarding: true)
            guard put.result == nil else { return }
            #expect(try await failure(of: put).code == .cancelled)
            try await house.nothingUnfinished()
            // There was nothing to continue from. The link may be cut meanwhile.
            let result = try await house.transfers.put(path, id: id("a")).value
            #expect(result.bytesMoved >= file.size)
        }
    }

    /// The connection is lost before the server has discarded anything.
    @Test func discardingSurvivesALostConnection() async throws {
        let link = NIOLockedValueBox<CuttingRelay?>(nil)
        let discards = Watched(0)
        let store = { (store: FolderTransferStore) in
            WatchedStore(
                store,
                onDiscard: {
                    guard discards.increment() == 1 else { return }
                    link.withLockedValue { $0 }?.cut()
                    throw CancellationError()
                }
            )
        }
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: number == 0 ? 2_000_000 : .max) }
        try await TransferHouse.with(wrap: store, allow: cuts) { house in
            link.withLockedValue { $0 = house.link }
            let (path, _) = try house.file("source", 5_000_000)
            let put = house.transfers.put(path, id: id("a"))
            try await house.progress(of: put, atLeast: 1_000_000)
            put.cancel(discarding: true)
            guard put.result == nil else { return }
            #expect(try await failure(of: put).code == .cancelled)
            try await house.nothingUnfinished()
            #expect(discards.current > 1)
            link.withLockedValue { $0 = nil }
        }
    }

    // MARK: Others

    @Test func aSecondWriterEndsTheFirst() async throws {
        // The connections of the first writer stop after a while, so that it is active when the second one begins.
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: 400_000) }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, _) = try house.file("first", 20_000_000, seed: 1)
            let (other, file) = try house.file("second", 1_000_000, seed: 2)
            let first = house.transfers.put(path, id: id("a"))
            try await house.progress(of: first, atLeast: 128 << 10)
            let client = TransferHouse.client(of: try #require(house.server.address))
            let second = TransferClient(client).put(other, id: id("a"))
            #expect(try await second.value.file == file)
            #expect(second.progress.changes == 1)
            #expect(try await failure(of: first).code == .superseded)
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            await client.close()
        }
    }

    @Test func aSourceThatChangesIsNoMixture() async throws {
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: 1_000_000) }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, _) = try house.file("source", 20_000_000)
            let put = house.transfers.put(path, id: id("a"))
            try await house.progress(of: put, atLeast: 256 << 10)
            let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
            try handle.seek(toOffset: 19_000_000)
            try handle.write(contentsOf: Data("changed".utf8))
            try handle.close()
            let error = try await failure(of: put)
            #expect(error.code == .sourceChanged, "\(error)")
            #expect(try house.visible() == [])
            // With the link as it is afterwards.
            house.link.allow { _ in .unlimited }
            _ = try await house.transfers.put(path, id: id("a")).value
            #expect(try TransferHouse.describe("\(house.store)/a") == TransferHouse.describe(path))
        }
    }

    @Test func aFileThatIsReplacedWhileItIsFetchedIsNoMixture() async throws {
        try await TransferHouse.with { house in
            let (old, _) = try house.file("old", 8_000_000, seed: 1)
            let (new, file) = try house.file("new", 7_000_000, seed: 2)
            _ = try await house.transfers.put(old, id: id("a")).value
            // The connection is lost after a part has arrived.
            try await house.reconnect { CuttingRelay.Allowance(down: $0 == 0 ? 3_000_000 : 400_000) }
            let copy = house.folder.file("copy")
            let get = house.transfers.get(id("a"), to: copy)
            try await house.progress(of: get, atLeast: 1_000_000)
            let client = TransferHouse.client(of: try #require(house.server.address))
            _ = try await TransferClient(client).put(new, id: id("a")).value
            house.link.allow { _ in .unlimited }
            _ = try await get.value
            #expect(get.progress.changes == 1 && get.progress.restarts == 1)
            #expect(try TransferHouse.describe(copy) == file)
            #expect(try house.hidden() == [])
            await client.close()
        }
    }

    @Test func anUnfinishedFileThatIsDamagedIsSentAgain() async throws {
        let cuts = { @Sendable (number: Int) in CuttingRelay.Allowance(up: number == 0 ? 2_500_000 : .max) }
        try await TransferHouse.with(allow: cuts) { house in
            let (path, file) = try house.file("source", 5_000_000)
            let put = house.transfers.put(path, id: id("a"))
            try await house.progress(of: put, atLeast: 1_000_000)
            put.cancel()
            _ = try? await put.value
            let folder = house.unfinished
            let names = try FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(!names.isEmpty)
            for name in names {
                let handle = try FileHandle(forUpdating: URL(fileURLWithPath: "\(folder)/\(name)"))
                try handle.seek(toOffset: 10)
                try handle.write(contentsOf: Data("damage".utf8))
                try handle.close()
            }
            // This attempt may fail; the next one succeeds.
            if (try? await house.transfers.put(path, id: id("a")).value) == nil {
                _ = try await house.transfers.put(path, id: id("a")).value
            }
            #expect(try TransferHouse.describe("\(house.store)/a") == file)
            #expect(try house.visible() == ["a"])
        }
    }

    @Test func limitsOfUnfinishedFilesAreReported() async throws {
        var limits = TransferLimits()
        limits.maximumBytesPerIdentity = 1_000_000
        try await TransferHouse.with(limits: limits) { house in
            let (path, _) = try house.file("source", 1_000_001)
            #expect(try await failure(of: house.transfers.put(path, id: id("a"))).code == .quota)
            let (smaller, _) = try house.file("smaller", 1_000_000)
            _ = try await house.transfers.put(smaller, id: id("b")).value
            #expect(try house.visible() == ["b"])
        }
    }

    @Test func nothingMovingIsAnEnd() async throws {
        let silent = try await SilentPort(host: "127.0.0.1")
        let client = TransferHouse.client(of: silent.endpoint)
        var options = TransferClient.Options()
        options.timeout = .seconds(1)
        let error = try await failure(of: TransferClient(client, options: options).put(ByteBuffer(string: "x")))
        #expect(error.code == .stalled, "\(error)")
        await client.close()
    }
}

/// A store that reports that a file is complete before the client is notified.
private struct WatchedStore: TransferStore {
    private struct Writer: TransferWriter {
        let writer: any TransferWriter
        let onFinish: @Sendable () -> Void

        var offset: UInt64 { self.writer.offset }
        func append(_ parts: [ByteBuffer]) async throws { try await self.writer.append(parts) }
        func finish() async throws {
            try await self.writer.finish()
            self.onFinish()
        }
        func close() async { await self.writer.close() }
    }

    private let store: FolderTransferStore
    private let onFinish: @Sendable () -> Void
    private let onDiscard: @Sendable () throws -> Void

    init(
        _ store: FolderTransferStore,
        onFinish: @escaping @Sendable () -> Void = {},
        onDiscard: @escaping @Sendable () throws -> Void = {}
    ) {
        self.store = store
        self.onFinish = onFinish
        self.onDiscard = onDiscard
    }

    func find(_ id: TransferID) async throws -> StoredFile? { try await self.store.find(id) }
    func open(_ id: TransferID) async throws -> any TransferReader { try await self.store.open(id) }
    func discard(_ id: TransferID, writer: UInt64) async throws -> Bool {
        try self.onDiscard()
        return try await self.store.discard(id, writer: writer)
    }

    func begin(
        _ put: TransferPut,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) async throws -> TransferBeginning {
        switch try await self.store.begin(put, onEnd: onEnd) {
        case .complete: .complete
        case .unfinished(let writer, let changed):
            .unfinished(Writer(writer: writer, onFinish: self.onFinish), changed: changed)
        }
    }
}
