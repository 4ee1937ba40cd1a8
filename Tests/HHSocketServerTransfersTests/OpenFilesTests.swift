// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// Clients decide how long a file stays open: they may never give credit, and never send.
@Suite struct OpenFilesTests {
    private let files = MemoryFileSystem()
    private let now = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(0))
    private let open: OpenFiles
    private let store: FolderTransferStore

    init() throws {
        self.open = OpenFiles(now: { [now] in now.withLockedValue { $0 } }, capacity: { 8 })
        self.store = try FolderTransferStore(path: "/store", self.files, openFiles: self.open)
    }

    private func refused(_ id: TransferID, owner: String) async {
        let error = await #expect(throws: StatusError.self) {
            _ = try await self.store.beginUnfinished(TransferPut(id, content(10), owner: owner))
        }
        #expect(error?.status == .overloaded)
    }

    @Test func anyNumberOfReadersShareAFewDescriptors() async throws {
        let bytes = content(1_000)
        try await self.store.put("a", bytes)
        try await self.files.areClosed()
        var readers: [any TransferReader] = []
        for _ in 0..<100 { readers.append(try await self.store.open("a")) }
        #expect(self.files.descriptorCount <= 8 && self.open.count <= 8)
        for start in [0, 500] {
            for reader in readers {
                let piece = try await reader.read(at: UInt64(start), count: 500)
                #expect(Array(buffer: piece) == Array(bytes[start..<(start + 500)]))
                #expect(self.open.count <= 8)
            }
        }
        #expect(self.files.descriptorCount <= 8)
        readers = []
        try await self.files.areClosed()
        #expect(self.open.count == 0)
    }

    @Test func aReaderWhoseFileWasReplacedWhileItWasClosedBeginsAgain() async throws {
        let (old, new) = (content(1_000), content(1_000, seed: 2))
        try await self.store.put("a", old)
        var readers: [any TransferReader] = []
        for _ in 0..<10 { readers.append(try await self.store.open("a")) }
        try await self.store.put("a", new, writer: 2)
        // The last ones are open, and read to the end.
        let last = try #require(readers.last)
        #expect(Array(buffer: try await last.read(at: 0, count: 1_000)) == old)
        let error = await #expect(throws: StatusError.self) { _ = try await readers[0].read(at: 0, count: 1_000) }
        #expect(error?.status == .cancelledByServer)
    }

    /// The ledger's number of descriptors is true of files, too.
    @Test func descriptorsAreCountedForTheClientWhoseRequestHasOpenedThem() async throws {
        let (reading, writing, continuing) = (CountingAccount(), CountingAccount(), CountingAccount())
        let bytes = content(1_000)
        try await self.store.put("a", bytes)
        var readers: [any TransferReader] = []
        for _ in 0..<20 {
            readers.append(try await StoreOwner.$account.withValue(reading) { try await self.store.open("a") })
        }
        #expect(reading.count(of: .descriptor) == 8)
        #expect(self.files.descriptorCount == 8)
        // It was closed for others, and is opened again by a thread.
        _ = try await readers[0].read(at: 0, count: 1_000)
        #expect(reading.count(of: .descriptor) == 8)
        let put = TransferPut("b", bytes)
        let first = try await StoreOwner.$account.withValue(writing) {
            try await self.store.beginUnfinished(put).writer
        }
        #expect(writing.count(of: .descriptor) == 1)
        try await first.append([ByteBuffer(bytes: bytes[..<100])])
        _ = try await StoreOwner.$account.withValue(continuing) { try await self.store.beginUnfinished(put).writer }
        // The content was handed over as it is.
        #expect(writing.count(of: .descriptor) == 1)
        #expect(continuing.count(of: .descriptor) == 0)
        let other = TransferPut("b", content(1_000, seed: 2), writer: 2)
        let last = try await StoreOwner.$account.withValue(continuing) {
            try await self.store.beginUnfinished(other).writer
        }
        #expect(writing.count(of: .descriptor) == 0)
        #expect(continuing.count(of: .descriptor) == 1)
        await last.close()
        #expect(continuing.count(of: .descriptor) == 0)
        readers = []
        try await self.files.areClosed()
        try await eventually("nothing is counted") { reading.count(of: .descriptor) == 0 }
    }

    // MARK: Writers

    @Test func anOwnerWithManyWritersGivesUpOneForAnotherOwner() async throws {
        let notes = (0..<4).map { _ in EndNote() }
        var writers: [any TransferWriter] = []
        for (number, note) in notes.enumerated() {
            let put = TransferPut(TransferID(stringLiteral: "many\(number)"), content(10), owner: "many")
            writers.append(try await self.store.beginUnfinished(put, note).writer)
            self.now.withLockedValue { $0 = $0 + .seconds(1) }
        }
        await self.refused("many4", owner: "many")
        #expect(notes.allSatisfy { $0.errors.isEmpty })
        // The first attempt ends the one that has been idle longest, and the next has its place.
        await self.refused("other", owner: "other")
        try await eventually("the end of a writer") { notes[0].errors.count == 1 }
        #expect((notes[0].errors.first as? StatusError)?.status == .overloaded)
        try await eventually("a place") { self.open.count == 3 }
        let other = try await self.store.beginUnfinished(TransferPut("other", content(10), owner: "other")).writer
        try await other.append(content(10), from: 0)
        try await other.finish()
        #expect(notes[1...].allSatisfy { $0.errors.isEmpty })
        for writer in writers { await writer.close() }
        try await self.files.areClosed()
        #expect(self.open.count == 0)
    }

    /// Otherwise a few clients that announce large files would keep all others out.
    @Test func whatAnIdleWriterHasAnnouncedIsFreeForOthers() async throws {
        var limits = TransferLimits()
        limits.maximumBytes = 100
        let store = try FolderTransferStore(path: "/store", limits: limits, self.files, openFiles: self.open)
        let note = EndNote()
        _ = try await store.beginUnfinished(TransferPut("large", content(80), owner: "a"), note)
        await expectFailure(.quota) {
            _ = try await store.beginUnfinished(TransferPut("small", content(30), owner: "b"))
        }
        #expect(note.errors.isEmpty)
        self.now.withLockedValue { $0 = $0 + OpenFiles.patience }
        let error = await #expect(throws: StatusError.self) {
            _ = try await store.beginUnfinished(TransferPut("small", content(30), owner: "b"))
        }
        #expect(error?.status == .overloaded)
        try await eventually("the end of the writer") { note.errors.count == 1 && self.open.count == 0 }
        try await store.put("small", content(30), owner: "b")
        await #expect(throws: TransferError.self) {
            _ = try await store.beginUnfinished(TransferPut("huge", content(101), owner: "b"))
        }
    }

    @Test func aWriterThatSendsNothingGivesWayAndContinuesLater() async throws {
        let bytes = content(10)
        let note = EndNote()
        let idle = try await self.store.beginUnfinished(TransferPut("idle", bytes, owner: "0"), note).writer
        try await idle.append([ByteBuffer(bytes: bytes[..<4])])
        self.now.withLockedValue { $0 = $0 + .seconds(1) }
        for owner in 1..<4 {
            let id = TransferID(stringLiteral: "a\(owner)")
            _ = try await self.store.beginUnfinished(TransferPut(id, content(10), owner: "\(owner)"))
        }
        await self.refused("late", owner: "late")
        #expect(note.errors.isEmpty)
        self.now.withLockedValue { $0 = $0 + OpenFiles.patience - .seconds(1) }
        await self.refused("late", owner: "late")
        try await eventually("the end of a writer") { note.errors.count == 1 }
        await #expect(throws: StatusError.self) { try await idle.append([ByteBuffer(bytes: bytes[4...])]) }
        try await eventually("a place") { self.open.count == 3 }
        #expect(try await self.store.put("idle", bytes, owner: "0") == 4)
    }

    /// A byte now and then is no use of what was announced.
    @Test(arguments: [1, OpenFiles.leastUse])
    func aWriterThatTricklesGivesWay(length: Int) async throws {
        let size = 100 + 4 * OpenFiles.leastUse
        let bytes = content(size)
        let (note, trickles) = (EndNote(), length < OpenFiles.leastUse)
        let slow = try await self.store.beginUnfinished(TransferPut("slow", bytes, owner: "0"), note).writer
        for part in 0..<3 {
            try await slow.append([ByteBuffer(bytes: bytes[(part * length)..<((part + 1) * length)])])
            self.now.withLockedValue { $0 = $0 + .seconds(2) }
        }
        for owner in 1..<4 {
            let id = TransferID(stringLiteral: "a\(owner)")
            _ = try await self.store.beginUnfinished(TransferPut(id, content(10), owner: "\(owner)"))
        }
        await self.refused("late", owner: "late")
        if trickles {
            try await eventually("the end of the writer") { note.errors.count == 1 }
        } else {
            #expect(note.errors.isEmpty)
        }
    }
}
