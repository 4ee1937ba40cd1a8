// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// Content that arrives before the hash of the whole file.
@Suite struct EarlyContentTests {
    private let files = MemoryFileSystem()
    private let store: FolderTransferStore

    init() throws {
        self.store = try FolderTransferStore(path: "/store", self.files)
    }

    private static func source(_ number: UInt8) -> TransferDigest {
        [number].withUnsafeBytes { TransferDigest(of: $0) }
    }

    private static func put(_ bytes: [UInt8], source: UInt8 = 1, writer: UInt64 = 1) -> TransferPut {
        var put = TransferPut("a", bytes, writer: writer)
        put.source = Self.source(source)
        return put
    }

    /// Begins without the hash. Nil if that is required.
    private func begin(
        _ bytes: [UInt8],
        source: UInt8 = 1,
        writer: UInt64 = 1,
        _ note: EndNote = EndNote(),
        in store: FolderTransferStore? = nil
    ) async throws -> (writer: any EarlyTransferWriter, isChanged: Bool)? {
        let early = try #require(Self.put(bytes, source: source, writer: writer).early)
        let begun = try await (store ?? self.store).beginEarly(early, onEnd: note.callback())
        return begun.map { ($0.0, $0.isChanged) }
    }

    /// Sends the beginning of a content without its hash, and closes it.
    private func interruptPut(
        _ bytes: [UInt8],
        after count: Int,
        source: UInt8 = 1,
        identifies: Bool = false
    ) async throws {
        let writer = try #require(try await self.begin(bytes, source: source)?.writer)
        try await writer.append(Array(bytes[..<count]), from: Int(writer.offset), pieceLength: 1_000)
        if identifies { try await writer.identify(as: TransferFile(of: bytes).sha256) }
        await writer.close()
    }

    @Test func aFileIsPut() async throws {
        let bytes = content(5_000)
        let writer = try #require(try await self.begin(bytes)?.writer)
        try await writer.append(Array(bytes[..<3_000]), from: 0, pieceLength: 1_000)
        try await writer.identify(as: TransferFile(of: bytes).sha256)
        try await writer.append(bytes, from: 3_000, pieceLength: 1_000)
        try await writer.finish()
        await writer.close()
        #expect(self.files.contents(of: "a") == bytes)
        #expect(try await self.store.find("a")?.file == TransferFile(of: bytes))
        #expect(self.files.names(in: "+unfinished").isEmpty)
        try await self.files.areClosed()
    }

    @Test(arguments: [false, true]) func samePutContinues(restarts: Bool) async throws {
        let bytes = content(5_000)
        try await self.interruptPut(bytes, after: 2_000)
        if restarts { self.files.restart() }
        let store = restarts ? try FolderTransferStore(path: "/store", self.files) : self.store
        let again = try #require(try await self.begin(bytes, in: store))
        #expect(again.writer.offset == 2_000 && !again.isChanged)
        await again.writer.close()
        // With the hash, too.
        let known = try await store.beginUnfinished(Self.put(bytes))
        #expect(known.writer.offset == 2_000 && !known.isChanged)
        try await known.writer.append(bytes, from: 2_000, pieceLength: 1_000)
        try await known.writer.finish()
        await known.writer.close()
        #expect(self.files.contents(of: "a") == bytes)
    }

    @Test(arguments: [false, true]) func identifiedContentIsThatOfItsHash(restarts: Bool) async throws {
        let bytes = content(5_000)
        try await self.interruptPut(bytes, after: 2_000, identifies: true)
        if restarts { self.files.restart() }
        let store = restarts ? try FolderTransferStore(path: "/store", self.files) : self.store
        // Another client, of which nothing but the hash is known.
        let other = try await store.beginUnfinished(TransferPut("a", bytes, writer: 2))
        #expect(other.writer.offset == 2_000 && !other.isChanged)
        try await other.writer.append(bytes, from: 2_000, pieceLength: 1_000)
        try await other.writer.finish()
        await other.writer.close()
        #expect(self.files.contents(of: "a") == bytes)
        #expect(self.files.names(in: "+unfinished").isEmpty)
    }

    @Test func liveWriterIsReplacedByTheSameOneWithTheHash() async throws {
        let bytes = content(5_000)
        let note = EndNote()
        let early = try #require(try await self.begin(bytes, note)?.writer)
        try await early.append(Array(bytes[..<2_000]), from: 0, pieceLength: 1_000)
        let known = try await self.store.beginUnfinished(Self.put(bytes))
        #expect(known.writer.offset == 2_000)
        #expect(note.errors.count == 1)
        await #expect(throws: (any Error).self) { try await early.identify(as: TransferFile(of: bytes).sha256) }
        await early.close()
        try await known.writer.append(bytes, from: 2_000, pieceLength: 1_000)
        try await known.writer.finish()
        await known.writer.close()
        #expect(self.files.contents(of: "a") == bytes)
    }

    @Test func hashIsRequiredWhereTheContentMayBeThere() async throws {
        let bytes = content(5_000)
        // An unfinished file with another source.
        try await self.interruptPut(bytes, after: 2_000)
        #expect(try await self.begin(bytes, source: 2) == nil)
        // One whose hash is known.
        try await self.interruptPut(bytes, after: 2_000, identifies: true)
        #expect(try await self.begin(bytes) == nil)
        // A complete file of this size, whatever its content.
        try await self.store.put("a", content(5_000, seed: 9), writer: 3)
        #expect(try await self.begin(bytes, writer: 4) == nil)
    }

    @Test func otherSizeIsAChange() async throws {
        try await self.interruptPut(content(5_000), after: 2_000)
        let other = try #require(try await self.begin(content(6_000), source: 2, writer: 2))
        #expect(other.writer.offset == 0 && other.isChanged)
        await other.writer.close()
        #expect(self.files.names(in: "+unfinished").count <= 2)
    }

    @Test func wrongHashDiscardsTheContent() async throws {
        let bytes = content(5_000)
        let writer = try #require(try await self.begin(bytes)?.writer)
        try await writer.append(bytes, from: 0, pieceLength: 1_000)
        try await writer.identify(as: TransferFile(of: content(5_000, seed: 2)).sha256)
        await #expect { try await writer.finish() } throws: { ($0 as? TransferError)?.code == .wrongHash }
        await writer.close()
        #expect(self.files.names() == ["+unfinished"] || self.files.names().isEmpty)
        #expect(self.files.names(in: "+unfinished").isEmpty)
    }

    @Test func contentWithoutItsHashIsNeverVisible() async throws {
        let bytes = content(5_000)
        let writer = try #require(try await self.begin(bytes)?.writer)
        try await writer.append(bytes, from: 0, pieceLength: 1_000)
        await #expect { try await writer.finish() } throws: { ($0 as? TransferError)?.code == .wrongHash }
        await writer.close()
        #expect(self.files.contents(of: "a") == nil)
    }

    @Test func contentThatAnotherProcessHasRemovedCannotBeIdentified() async throws {
        let bytes = content(5_000)
        let writer = try #require(try await self.begin(bytes)?.writer)
        for name in self.files.names(in: "+unfinished") { self.files.delete(name, in: "+unfinished") }
        await #expect(throws: StatusError.self) { try await writer.identify(as: TransferFile(of: bytes).sha256) }
        await writer.close()
    }
}

/// The service, with clients that do not know the hash yet.
@Suite struct EarlyServiceTests {
    private static func begin(_ bytes: [UInt8], _ calls: TransferCalls) async throws -> TransferCalls.Put {
        var request = Hhsocket_PutRequest()
        request.begin.id = "a"
        request.begin.file.size = UInt64(bytes.count)
        request.begin.writer = 1
        request.begin.source = Data(repeating: 3, count: 32)
        return try await calls.open(with: ByteBuffer(message: request))
    }

    private static func announce(_ bytes: [UInt8], _ put: TransferCalls.Put) async throws {
        var request = Hhsocket_PutRequest()
        request.sha256 = Data(TransferFile(of: bytes).sha256.bytes)
        try await put.stream.send(ByteBuffer(message: request))
    }

    @Test func theApplicationIsAskedAgainWhenTheHashIsKnown() async throws {
        let bytes = content(100_000)
        let asked = Watched<[TransferRequest]>([])
        try await withTransfers(authorize: { request, _ in asked.withLockedValue { $0.append(request) } }) {
            calls,
            _,
            files in
            let put = try await Self.begin(bytes, calls)
            #expect(try await put.nextReport().offset == 0)
            try await put.send(bytes, at: 0)
            try await Self.announce(bytes, put)
            let last = try await put.reports().last
            #expect(last?.complete == true)
            #expect(files.contents(of: "a") == bytes)
        }
        let requests = asked.withLockedValue { $0 }
        #expect(requests.map(\.size) == [100_000, 100_000])
        #expect(requests.map(\.sha256) == [nil, TransferFile(of: bytes).sha256])
    }

    @Test func contentThatMayNotBeSentIsRemoved() async throws {
        let bytes = content(100_000)
        let authorize: TransferService.Authorization = { request, _ in
            if request.sha256 != nil { throw TransferError(.denied, "not this one") }
        }
        try await withTransfers(authorize: authorize) { calls, _, files in
            let put = try await Self.begin(bytes, calls)
            _ = try await put.nextReport()
            try await put.send(Array(bytes[..<50_000]), at: 0)
            try await Self.announce(bytes, put)
            #expect(try await put.failure().code == .denied)
            #expect(files.names(in: "+unfinished").isEmpty)
        }
    }

    @Test func storesOfApplicationsNeedTheHash() async throws {
        struct Wrapped: TransferStore {
            let store: FolderTransferStore

            func find(_ id: TransferID) async throws -> StoredFile? { try await self.store.find(id) }
            func open(_ id: TransferID) async throws -> any TransferReader { try await self.store.open(id) }
            func begin(
                _ put: TransferPut,
                onEnd: @escaping @Sendable (any Error) -> Void
            ) async throws -> TransferBeginning { try await self.store.begin(put, onEnd: onEnd) }
            func discard(_ id: TransferID, writer: UInt64) async throws -> Bool {
                try await self.store.discard(id, writer: writer)
            }
        }
        let files = MemoryFileSystem()
        let store = Wrapped(store: try FolderTransferStore(path: "/store", files))
        try await withTransfers(store: store) { calls, _, _ in
            let put = try await Self.begin(content(100), calls)
            let reports = try await put.reports()
            #expect(reports.map(\.needsSha256) == [true])
            _ = try await put.stream.response
        }
        #expect(files.names(in: "+unfinished").isEmpty)
    }

    @Test func contentWithoutAHashIsAnError() async throws {
        let bytes = content(1_000)
        try await withTransfers { calls, _, files in
            let put = try await Self.begin(bytes, calls)
            _ = try await put.nextReport()
            try await put.send(bytes, at: 0)
            put.stream.finish()
            #expect(try await put.failure().code == .invalidRequest)
            #expect(files.contents(of: "a") == nil)
        }
    }
}
