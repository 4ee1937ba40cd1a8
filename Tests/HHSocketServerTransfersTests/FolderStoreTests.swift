// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// The current thread.
private func currentThread() -> UInt { UInt(bitPattern: pthread_self().hashValue) }

/// A store on files in memory.
@Suite struct FolderStoreTests {
    private let files = MemoryFileSystem()
    private let store: FolderTransferStore

    init() throws {
        self.store = try FolderTransferStore(path: "/store", self.files)
    }

    private func reopened(_ limits: TransferLimits = TransferLimits()) throws -> FolderTransferStore {
        self.files.restart()
        return try FolderTransferStore(path: "/store", limits: limits, self.files)
    }

    /// Expects that only these files are visible, that nothing is unfinished, and that no file is open.
    private func expectNothingBut(
        _ names: Set<String>,
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        #expect(self.files.names().filter { !$0.hasPrefix("+") } == names, sourceLocation: sourceLocation)
        #expect(self.files.names(in: "+unfinished").isEmpty, sourceLocation: sourceLocation)
        try await self.files.areClosed()
        self.expectConsistency(sourceLocation: sourceLocation)
    }

    private func expectConsistency(sourceLocation: SourceLocation = #_sourceLocation) {
        let fault = self.store.state.withLockedValue { $0.ledger.inconsistency }
        #expect(fault == nil, sourceLocation: sourceLocation)
    }

    // MARK: Whole files

    @Test(arguments: [0, 1, 999, 1_000, 300_000])
    func aFileIsPutAndGot(_ size: Int) async throws {
        let bytes = content(size)
        try await self.store.put("a", bytes, pieceLength: 7_000)
        #expect(self.files.contents(of: "a") == bytes)
        #expect(try await self.store.get("a", pieceLength: 10_000) == bytes)
        let found = try await self.store.find("a")
        #expect(found?.file == TransferFile(of: bytes))
        try await self.expectNothingBut(["a"])
    }

    /// The task of a put need not leave the thread that writes.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func contentIsWrittenByTheThreadThatHasTakenIt() async throws {
        let bytes = content(400_000)
        let writer = try await self.store.beginUnfinished(TransferPut("a", bytes)).writer
        let threaded = try #require(writer as? any ThreadedTransferWriter)
        let threads = NIOLockedValueBox<Set<UInt>>([])
        self.files.set { state in
            state.fault = { function, _ in
                if function == "write" { threads.withLockedValue { _ = $0.insert(currentThread()) } }
                return nil
            }
        }
        for start in [0, 200_000] {
            try await withTaskExecutorPreference(threaded.executor) {
                let before = currentThread()
                try await threaded.appendHere([ByteBuffer(bytes: bytes[start..<(start + 200_000)])])
                #expect(threads.withLockedValue { $0 } == [before])
                threads.withLockedValue { $0 = [] }
            }
        }
        self.files.set { $0.fault = nil }
        try await writer.finish()
        await writer.close()
        #expect(try await self.store.get("a") == bytes)
        try await self.expectNothingBut(["a"])
    }

    @Test func noFileIsNoFile() async throws {
        #expect(try await self.store.find("a") == nil)
        await expectFailure(.notFound) { _ = try await self.store.open("a") }
        #expect(try await !self.store.discard("a", writer: 1))
    }

    @Test func theSameContentIsNotSentAgain() async throws {
        try await self.store.put("a", content(5_000))
        #expect(try await self.store.put("a", content(5_000), writer: 2) == nil)
        #expect(try await self.reopened().put("a", content(5_000), writer: 3) == nil)
        try await self.expectNothingBut(["a"])
    }

    @Test func anotherContentReplacesItInOneStep() async throws {
        let (old, new) = (content(5_000, seed: 1), content(5_000, seed: 2))
        try await self.store.put("a", old)
        let reader = try await self.store.open("a")
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", new, writer: 2)).writer
        try await unfinished.append(new, from: 0)
        #expect(try await self.store.get("a") == old)
        try await unfinished.finish()
        await unfinished.close()
        #expect(try await self.store.get("a") == new)
        // A reader that had begun continues with the old file.
        #expect(Array(buffer: try await reader.read(at: 0, count: 5_000)) == old)
    }

    @Test func filesThatAreAddedByHandAreServed() async throws {
        let bytes = content(20_000_000 / 4)
        self.files.add("a", bytes)
        #expect(try await self.store.get("a", pieceLength: 1 << 20) == bytes)
        #expect(try await self.store.put("a", bytes, writer: 2) == nil)
        // A changed file is hashed again.
        self.files.add("a", content(77))
        #expect(try await self.store.get("a") == content(77))
        self.files.delete("a")
        #expect(try await self.store.find("a") == nil)
    }

    @Test func hashesAreKept() async throws {
        self.files.add("a", content(50_000))
        self.files.advance(by: .seconds(60))
        _ = try await self.store.find("a")
        #expect(self.files.names(in: "+hashes") == ["a"])
        // A reader can return the hash without reading the file.
        let store = try self.reopened()
        self.files.set { $0.fault = { function, _ in function == "read" ? EIO : nil } }
        await expectFailure(.storeFailed) { _ = try await store.find("a") }
        self.files.set { $0.fault = nil }
        #expect(try await store.find("a")?.file == TransferFile(of: content(50_000)))
        self.files.set { $0.fault = { function, _ in function == "read" ? EIO : nil } }
        #expect(try await store.find("a")?.file == TransferFile(of: content(50_000)))
    }

    @Test func damagedHashesAreMadeAgain() async throws {
        self.files.add("a", content(50_000))
        self.files.advance(by: .seconds(60))
        _ = try await self.store.find("a")
        for bytes in [[], content(10), Array(repeating: 0, count: 100_000)] {
            self.files.add("a", bytes, in: "+hashes")
            #expect(try await self.reopened().find("a")?.file == TransferFile(of: content(50_000)))
        }
        // The hash of another file, in its place.
        self.files.add("b", content(60_000))
        self.files.advance(by: .seconds(60))
        _ = try await self.store.find("b")
        self.files.add("a", try #require(self.files.contents(of: "b", in: "+hashes")), in: "+hashes")
        #expect(try await self.reopened().find("a")?.file == TransferFile(of: content(50_000)))
    }

    @Test func aFileThatHasJustChangedIsHashedAgain() async throws {
        self.files.add("a", content(50_000))
        _ = try await self.store.find("a")
        #expect(self.files.names(in: "+hashes").isEmpty)
    }

    @Test func aFileThatChangesWhileItIsReadIsNoMixture() async throws {
        self.files.add("a", content(5_000))
        let reader = try await self.store.open("a")
        _ = try await reader.read(at: 0, count: 1_000)
        self.files.add("a", content(5_000, seed: 9))
        await expectStatus(.cancelledByServer) { _ = try await reader.read(at: 1_000, count: 1_000) }
        // A new reader gets the complete new file.
        #expect(try await self.store.get("a") == content(5_000, seed: 9))
        let shortened = try await self.store.open("a")
        self.files.add("a", [1])
        await expectStatus(.cancelledByServer) { _ = try await shortened.read(at: 0, count: 5_000) }
    }

    // MARK: What is no file

    @Test(arguments: [MemoryFileSystem.Node.Kind.link, .pipe])
    func linksAndPipesAreNotServedAndAreReplaced(_ kind: MemoryFileSystem.Node.Kind) async throws {
        self.files.add("a", [1, 2, 3], kind: kind)
        #expect(try await self.store.find("a") == nil)
        await expectFailure(.notFound) { _ = try await self.store.open("a") }
        try await self.store.put("a", content(100))
        #expect(try await self.store.get("a") == content(100))
        try await self.expectNothingBut(["a"])
    }

    @Test func foldersAreNotServedAndNotReplaced() async throws {
        self.files.add("a", [], kind: .folder)
        #expect(try await self.store.find("a") == nil)
        await expectFailure(.storeFailed) { try await self.store.put("a", content(100)) }
        try await self.expectNothingBut(["a"])
        // A file that is created meanwhile.
        let unfinished = try await self.store.beginUnfinished(TransferPut("b", content(100))).writer
        try await unfinished.append(content(100), from: 0)
        self.files.add("b", [], kind: .folder)
        await expectFailure(.storeFailed) { try await unfinished.finish() }
        await unfinished.close()
        try await self.expectNothingBut(["a", "b"])
    }

    @Test func linksInTheFoldersOfTheStoreAreNotFollowed() async throws {
        self.files.add("+unfinished", [], kind: .link)
        await expectFailure(.storeFailed) { try await self.store.put("a", content(100)) }
        self.files.delete("+unfinished")
        self.files.add(FolderNames.record("a"), [1], kind: .link, in: "+unfinished")
        let name = FolderNames.content("a", TransferFile(of: content(100)).sha256)
        self.files.add(name, [], kind: .link, in: "+unfinished")
        try await self.store.put("a", content(100))
        #expect(try await self.store.get("a") == content(100))
        try await self.expectNothingBut(["a"])
    }

    // MARK: Going on

    @Test func aPutContinuesWhereItStopped() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000)
        try await self.files.areClosed()
        #expect(try await self.store.find("a") == nil)
        #expect(try await self.store.put("a", bytes) == 4_000)
        #expect(try await self.store.get("a") == bytes)
        try await self.expectNothingBut(["a"])
    }

    @Test func aPutContinuesAfterARestart() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000)
        #expect(try await self.reopened().put("a", bytes) == 4_000)
        #expect(try await self.store.get("a") == bytes)
        try await self.expectNothingBut(["a"])
    }

    @Test func theHashOfWhatIsThereIsMadeWhileMoreComes() async throws {
        let bytes = content(24 << 20)
        try await self.store.interruptPut("a", bytes, after: 20 << 20)
        let store = try self.reopened()
        let unfinished = try await store.beginUnfinished(TransferPut("a", bytes)).writer
        #expect(unfinished.offset == 20 << 20)
        try await unfinished.append(bytes, from: 20 << 20, pieceLength: 1 << 20)
        try await unfinished.finish()
        await unfinished.close()
        #expect(self.files.contents(of: "a") == bytes)
    }

    @Test func contentThatWasDamagedMeanwhileIsNotMadeVisible() async throws {
        let bytes = content(10_000)
        let name = FolderNames.content("a", TransferFile(of: bytes).sha256)
        // Both with the hash in memory and without.
        for store in [self.store, nil] {
            let store = try store ?? self.reopened()
            try await store.interruptPut("a", bytes, after: 4_000)
            var damaged = try #require(self.files.contents(of: name, in: "+unfinished"))
            damaged[100] ^= 1
            self.files.add(name, damaged, in: "+unfinished")
            await expectFailure(.wrongHash) { try await store.put("a", bytes) }
            try await self.expectNothingBut([])
            #expect(try await store.put("a", bytes) == 0)
            #expect(try await store.get("a") == bytes)
            self.files.delete("a")
        }
    }

    @Test func contentThatIsTooLongIsDiscarded() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000)
        let name = FolderNames.content("a", TransferFile(of: bytes).sha256)
        self.files.add(name, content(10_001), in: "+unfinished")
        #expect(try await self.reopened().put("a", bytes) == 0)
        #expect(try await self.store.get("a") == bytes)
    }

    @Test func contentThatIsShorterContinuesFromThere() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000)
        let name = FolderNames.content("a", TransferFile(of: bytes).sha256)
        self.files.add(name, Array(bytes.prefix(1_234)), in: "+unfinished")
        #expect(try await self.store.put("a", bytes) == 1_234)
        #expect(try await self.store.get("a") == bytes)
    }

    @Test func damagedRecordsAreDiscarded() async throws {
        let bytes = content(10_000)
        for damage in 0..<4 {
            try await self.store.interruptPut("a", bytes, after: 4_000)
            var record = try #require(self.files.contents(of: FolderNames.record("a"), in: "+unfinished"))
            switch damage {
            case 0: record[20] ^= 1
            case 1: record.removeLast()
            case 2: record = []
            default: record = Array(repeating: 0, count: 1 << 20)
            }
            self.files.add(FolderNames.record("a"), record, in: "+unfinished")
            let store = damage.isMultiple(of: 2) ? try self.reopened() : self.store
            #expect(try await store.put("a", bytes) == 0)
            #expect(try await store.get("a") == bytes)
            self.files.delete("a")
            try await self.expectNothingBut([])
        }
    }

    @Test func recordsAndContentWithoutEachOtherAreDiscarded() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000)
        try await self.store.interruptPut("b", bytes, after: 4_000)
        self.files.delete(FolderNames.record("a"), in: "+unfinished")
        self.files.delete(FolderNames.content("b", TransferFile(of: bytes).sha256), in: "+unfinished")
        self.files.add(FolderNames.temporary("c"), [1, 2], in: "+unfinished")
        self.files.advance(by: .seconds(3_600))
        _ = try self.reopened()
        try await self.expectNothingBut([])
        // The store does not touch other programs' files.
        self.files.add("something else", [1], in: "+unfinished")
        _ = try self.reopened()
        await self.store.sweep()
        #expect(self.files.names(in: "+unfinished") == ["something else"])
    }

    @Test func filesThatAreRemovedByHandBeginAgain() async throws {
        let bytes = content(10_000)
        let note = EndNote()
        let first = try await self.store.beginUnfinished(TransferPut("a", bytes), note).writer
        try await first.append(Array(bytes.prefix(4_000)), from: 0)
        for name in self.files.names(in: "+unfinished") { self.files.delete(name, in: "+unfinished") }
        #expect(try await self.store.put("a", bytes) == 0)
        #expect((note.errors.first as? StatusError)?.status == .cancelledByServer)
        await first.close()
        #expect(try await self.store.get("a") == bytes)
        try await self.expectNothingBut(["a"])
    }

    // MARK: Writers

    @Test func anotherWriterEndsTheFirst() async throws {
        let bytes = content(10_000)
        let note = EndNote()
        let first = try await self.store.beginUnfinished(TransferPut("a", bytes, writer: 1), note).writer
        try await first.append(Array(bytes.prefix(4_000)), from: 0)
        let second = try await self.store.beginUnfinished(TransferPut("a", bytes, writer: 2))
        #expect(second.writer.offset == 4_000)
        #expect(!second.isChanged)
        #expect((note.errors.first as? TransferError)?.code == .superseded)
        await expectFailure(.superseded) { try await first.append([ByteBuffer(bytes: bytes[4_000..<5_000])]) }
        await expectFailure(.superseded) { try await first.finish() }
        await first.close()
        await expectFailure(.superseded) { try await self.store.put("a", bytes, writer: 1) }
        try await second.writer.append(bytes, from: 4_000)
        try await second.writer.finish()
        await second.writer.close()
        #expect(try await self.store.get("a") == bytes)
        #expect(note.errors.count == 1)
        try await self.expectNothingBut(["a"])
    }

    @Test func aWriterWithAnotherContentBeginsAgain() async throws {
        let (old, new) = (content(10_000, seed: 1), content(9_000, seed: 2))
        let note = EndNote()
        let first = try await self.store.beginUnfinished(TransferPut("a", old, writer: 1), note).writer
        try await first.append(Array(old.prefix(4_000)), from: 0)
        let second = try await self.store.beginUnfinished(TransferPut("a", new, writer: 2))
        #expect(second.writer.offset == 0)
        #expect(second.isChanged)
        #expect((note.errors.first as? TransferError)?.code == .superseded)
        try await second.writer.append(new, from: 0)
        try await second.writer.finish()
        await second.writer.close()
        await first.close()
        #expect(try await self.store.get("a") == new)
        await expectFailure(.superseded) { try await self.store.put("a", old, writer: 1) }
        try await self.expectNothingBut(["a"])
    }

    @Test func supersededWritersAreKnownAfterARestart() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000, writer: 1)
        try await self.store.interruptPut("a", bytes, after: 5_000, writer: 2)
        let store = try self.reopened()
        await expectFailure(.superseded) { try await store.put("a", bytes, writer: 1) }
        await expectFailure(.superseded) { try await store.put("a", content(3), writer: 1) }
        #expect(try await store.put("a", bytes, writer: 2) == 5_000)
    }

    @Test func theSameWriterComesBackBeforeItIsGone() async throws {
        let bytes = content(10_000)
        let note = EndNote()
        let first = try await self.store.beginUnfinished(TransferPut("a", bytes), note).writer
        try await first.append(Array(bytes.prefix(4_000)), from: 0)
        let second = try await self.store.beginUnfinished(TransferPut("a", bytes)).writer
        #expect(second.offset == 4_000)
        #expect((note.errors.first as? StatusError)?.status == .cancelledByServer)
        await expectStatus(.cancelledByServer) { try await first.append([ByteBuffer(bytes: bytes[4_000..<5_000])]) }
        // The end of the first one is not the end of the second.
        await first.close()
        try await second.append(bytes, from: 4_000)
        try await second.finish()
        await second.close()
        #expect(try await self.store.get("a") == bytes)
    }

    @Test func aSourceThatChangesBeginsAgain() async throws {
        let (old, new) = (content(10_000, seed: 1), content(10_000, seed: 2))
        try await self.store.interruptPut("a", old, after: 4_000)
        let second = try await self.store.beginUnfinished(TransferPut("a", new))
        #expect(second.isChanged && second.writer.offset == 0)
        try await second.writer.append(new, from: 0)
        try await second.writer.finish()
        await second.writer.close()
        #expect(try await self.store.get("a") == new)
        try await self.expectNothingBut(["a"])
    }

    @Test func aWriterDiscardsItsFileAndNoOthers() async throws {
        let bytes = content(10_000)
        try await self.store.interruptPut("a", bytes, after: 4_000, writer: 5)
        #expect(try await !self.store.discard("a", writer: 6))
        #expect(try await self.store.discard("a", writer: 5))
        #expect(try await !self.store.discard("a", writer: 5))
        try await self.expectNothingBut([])
        let note = EndNote()
        let live = try await self.store.beginUnfinished(TransferPut("a", bytes, writer: 5), note).writer
        try await live.append(Array(bytes.prefix(4_000)), from: 0)
        #expect(try await self.store.discard("a", writer: 5))
        #expect(note.errors.count == 1)
        await live.close()
        try await self.expectNothingBut([])
        #expect(try await self.store.put("a", bytes, writer: 5) == 0)
    }

    @Test func wrongContentIsDiscarded() async throws {
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", content(10_000))).writer
        try await unfinished.append(content(10_000, seed: 3), from: 0)
        await expectFailure(.wrongHash) { try await unfinished.finish() }
        await unfinished.close()
        try await self.expectNothingBut([])
        #expect(try await self.store.put("a", content(10_000)) == 0)
    }

    @Test func contentBeyondTheSizeOrShortOfItIsRefused() async throws {
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", content(1_000))).writer
        await expectFailure(.invalidRequest) { try await unfinished.append([ByteBuffer(repeating: 1, count: 1_001)]) }
        await expectFailure(.invalidRequest) { try await unfinished.finish() }
        try await unfinished.append(content(1_000), from: 0)
        try await unfinished.finish()
        await expectFailure(.invalidRequest) { try await unfinished.append([ByteBuffer(repeating: 1, count: 1)]) }
        await expectFailure(.invalidRequest) { try await unfinished.finish() }
        await unfinished.close()
        try await self.expectNothingBut(["a"])
    }

    @Test func manyWritersAtATime() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<40 {
                group.addTask {
                    let bytes = content(20_000, seed: UInt64(number % 4))
                    // Each put may be ended by others.
                    let put = try? await self.store.put("a", bytes, writer: UInt64(number) + 1, pieceLength: 999)
                    let own = TransferID("own\(number)")!
                    try await self.store.put(own, bytes, owner: "\(number)")
                    let got = try? await self.store.get("a")
                    if put != nil || got != nil {
                        #expect((0..<4).contains { got == content(20_000, seed: UInt64($0)) })
                    }
                }
            }
            try await group.waitForAll()
        }
        try await self.expectNothingBut(Set(["a"] + (0..<40).map { "own\($0)" }))
    }

    // MARK: What is announced and not sent

    @Test func announcedContentThatNeverArrivesKeepsNothing() async throws {
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", content(1_000))).writer
        #expect(self.files.names(in: "+unfinished").count == 2)
        await unfinished.close()
        try await self.expectNothingBut([])
    }

    @Test func filesExpire() async throws {
        try await self.store.interruptPut("a", content(1_000), after: 10)
        try await self.store.interruptPut("b", content(1_000), after: 10)
        self.files.advance(by: .seconds(6 * 86_400))
        try await self.store.interruptPut("b", content(1_000), after: 20)
        self.files.advance(by: .seconds(86_401))
        await self.store.sweep()
        #expect(Set(self.files.names(in: "+unfinished").map { $0.prefix(1) }) == ["b"])
        // Also when another writer begins, and at the next start.
        self.files.advance(by: .seconds(8 * 86_400))
        try await self.store.interruptPut("c", content(1_000), after: 10)
        #expect(Set(self.files.names(in: "+unfinished").map { $0.prefix(1) }) == ["c"])
        self.files.advance(by: .seconds(8 * 86_400))
        _ = try self.reopened()
        try await self.expectNothingBut([])
    }

    @Test func aWriterAtWorkDoesNotExpire() async throws {
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", content(1_000))).writer
        self.files.advance(by: .seconds(30 * 86_400))
        await self.store.sweep()
        try await unfinished.append(content(1_000), from: 0)
        try await unfinished.finish()
        await unfinished.close()
        try await self.expectNothingBut(["a"])
    }

    @Test func limitsHoldAfterARestart() async throws {
        var limits = TransferLimits()
        limits.maximumFilesPerIdentity = 2
        let store = try self.reopened(limits)
        try await store.interruptPut("a", content(1_000), after: 10)
        try await store.interruptPut("b", content(1_000), after: 10)
        let again = try self.reopened(limits)
        await expectFailure(.quota) { try await again.put("c", content(1_000)) }
        try await again.put("c", content(1_000), owner: "somebody else")
        // This has lost nothing.
        #expect(try await again.put("a", content(1_000)) == 10)
        try await again.put("d", content(1_000))
    }

    @Test func sweepingForgetsHashesOfFilesThatAreGone() async throws {
        try await self.store.put("a", content(1_000))
        try await self.store.put("b", content(1_000))
        self.files.delete("a")
        await self.store.sweep()
        #expect(self.files.names(in: "+hashes") == ["b"])
    }

    // MARK: Case

    @Test func idsThatDifferInCaseAreKeptApartWhereTheyCanBe() async throws {
        try await self.store.put("a", content(10, seed: 1))
        try await self.store.put("A", content(10, seed: 2))
        #expect(try await self.store.get("a") == content(10, seed: 1))
        #expect(try await self.store.get("A") == content(10, seed: 2))
    }

    @Test func idsThatDifferInCaseAreRefusedWhereTheyAreTheSame() async throws {
        self.files.set { $0.ignoresCase = true }
        try await self.store.put("aB", content(10))
        for id in ["Ab", "AB", "ab"] as [TransferID] {
            for store in [self.store, try self.reopened()] {
                await expectFailure(.invalidID) { try await store.put(id, content(20)) }
                // Also if the content is equal.
                await expectFailure(.invalidID) { try await store.put(id, content(10)) }
                #expect(try await store.find(id) == nil)
                await expectFailure(.notFound) { _ = try await store.open(id) }
            }
        }
        #expect(try await self.store.put("aB", content(10), writer: 2) == nil)
        #expect(try await self.store.put("aB", content(30), writer: 2) == 0)
        #expect(try await self.store.get("aB") == content(30))
        #expect(self.files.names().filter { !$0.hasPrefix("+") } == ["aB"])
    }

    @Test func idsThatDifferInCaseFromOneThatIsBeingSentAreRefused() async throws {
        self.files.set { $0.ignoresCase = true }
        try await self.store.interruptPut("aB", content(100), after: 10)
        for store in [self.store, try self.reopened()] {
            await expectFailure(.invalidID) { try await store.put("ab", content(20)) }
        }
        #expect(try await self.store.put("aB", content(100)) == 10)
        // A file that another program has created meanwhile.
        let unfinished = try await self.store.beginUnfinished(TransferPut("cD", content(100))).writer
        try await unfinished.append(content(100), from: 0)
        self.files.add("Cd", [1])
        await expectFailure(.invalidID) { try await unfinished.finish() }
        await unfinished.close()
        #expect(self.files.contents(of: "Cd") == [1])
        try await self.expectNothingBut(["aB", "Cd"])
    }

    // MARK: Two processes

    @Test func twoProcessesDoNotWriteTheSameFile() async throws {
        let bytes = content(10_000)
        let other = try FolderTransferStore(path: "/store", self.files)
        let unfinished = try await self.store.beginUnfinished(TransferPut("a", bytes)).writer
        try await unfinished.append(Array(bytes.prefix(4_000)), from: 0)
        await expectStatus(.overloaded) { try await other.put("a", bytes, writer: 2) }
        self.files.advance(by: .seconds(100 * 86_400))
        await other.sweep()
        try await unfinished.append([ByteBuffer(bytes: bytes[4_000..<5_000])])
        await unfinished.close()
        // Then the other put continues.
        #expect(try await other.put("a", bytes, writer: 1) == 5_000)
        #expect(try await self.store.get("a") == bytes)
        try await self.expectNothingBut(["a"])
    }
}
