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

/// Disks that are full, cannot be written, or fail, and processes that die between any two steps.
@Suite struct FolderStoreFaultTests {
    private let files = MemoryFileSystem()

    private func store() throws -> FolderTransferStore { try FolderTransferStore(path: "/store", self.files) }

    private func expectNothingUnfinished(sourceLocation: SourceLocation = #_sourceLocation) {
        #expect(self.files.names(in: "+unfinished").isEmpty, sourceLocation: sourceLocation)
        #expect(self.files.writableDescriptorCount == 0, sourceLocation: sourceLocation)
    }

    // MARK: No room

    @Test(arguments: Array(stride(from: 0, through: 2_600, by: 100)))
    func aFullDiskRemovesTheUnfinishedFile(_ capacity: Int) async throws {
        let store = try self.store()
        try await store.put("old", content(1_000))
        self.files.set { $0.capacity = 1_500 + capacity }
        await expectFailure(.noRoom) { try await store.put("a", content(3_000), pieceLength: 400) }
        self.expectNothingUnfinished()
        #expect(self.files.names().filter { !$0.hasPrefix("+") } == ["old"])
        #expect(try await store.get("old") == content(1_000))
        #expect(store.state.withLockedValue { $0.ledger.entries.isEmpty && $0.live.isEmpty })
        self.files.set { $0.capacity = .max }
        #expect(try await store.put("a", content(3_000)) == 0)
    }

    @Test func aFullDiskIsNoticedWhenThePutContinues() async throws {
        let store = try self.store()
        try await store.interruptPut("a", content(3_000), after: 1_000)
        self.files.set { $0.capacity = 1_500 }
        await expectFailure(.noRoom) { try await store.put("a", content(3_000)) }
        self.expectNothingUnfinished()
        // Also if there is no room for the record.
        self.files.set { $0.capacity = .max }
        try await store.interruptPut("a", content(3_000), after: 1_000)
        self.files.set { $0.capacity = 1_000 }
        await expectFailure(.noRoom) { try await store.put("a", content(3_000), writer: 2) }
        self.expectNothingUnfinished()
    }

    @Test(arguments: [ENOSPC, EDQUOT])
    func aDiskThatIsFoundFullInTheEnd(_ code: CInt) async throws {
        let store = try self.store()
        self.files.set { $0.fault = { function, _ in function == "synchronize" ? code : nil } }
        await expectFailure(.noRoom) { try await store.put("a", content(3_000)) }
        self.expectNothingUnfinished()
        #expect(self.files.contents(of: "a") == nil)
    }

    // MARK: Read-only

    @Test func aStoreThatCannotBeWrittenKeepsAndServes() async throws {
        let bytes = content(10_000)
        var store = try self.store()
        try await store.put("old", content(1_000))
        try await store.interruptPut("a", bytes, after: 4_000)
        for isRestarted in [false, true] {
            self.files.set { $0.isReadOnly = true }
            if isRestarted { store = try self.store() }
            await expectFailure(.readOnly) { try await store.put("a", bytes) }
            await expectFailure(.readOnly) { try await store.put("a", bytes, writer: 2) }
            await expectFailure(.readOnly) { try await store.put("a", content(20), writer: 2) }
            await expectFailure(.readOnly) { try await store.put("new", bytes) }
            #expect(try await store.get("old") == content(1_000))
            #expect(try await store.put("old", content(1_000), writer: 9) == nil)
            await store.sweep()
            #expect(self.files.writableDescriptorCount == 0)
            self.files.set { $0.isReadOnly = false }
        }
        #expect(try await store.put("a", bytes) == 4_000)
        try await store.put("new", bytes)
        #expect(try await store.get("a") == bytes)
    }

    @Test func aStoreThatBecomesReadOnlyInTheMiddle() async throws {
        let bytes = content(10_000)
        let store = try self.store()
        let unfinished = try await store.beginUnfinished(TransferPut("a", bytes)).writer
        try await unfinished.append(Array(bytes.prefix(4_000)), from: 0)
        self.files.set { $0.isReadOnly = true }
        await expectFailure(.readOnly) { try await unfinished.append(bytes, from: 4_000) }
        await unfinished.close()
        #expect(self.files.writableDescriptorCount == 0)
        self.files.set { $0.isReadOnly = false }
        #expect(try await store.put("a", bytes) == 4_000)
        // At its very end.
        let last = try await store.beginUnfinished(TransferPut("b", bytes)).writer
        try await last.append(bytes, from: 0)
        self.files.set { $0.isReadOnly = true }
        await expectFailure(.readOnly) { try await last.finish() }
        await last.close()
        self.files.set { $0.isReadOnly = false }
        #expect(try await store.put("b", bytes) == 10_000)
        #expect(try await store.get("b") == bytes)
    }

    @Test func aReadOnlyStoreWithoutAnyFolder() async throws {
        self.files.add("old", content(1_000))
        self.files.set { $0.isReadOnly = true }
        let store = try self.store()
        #expect(try await store.get("old") == content(1_000))
        await expectFailure(.readOnly) { try await store.put("a", content(10)) }
        #expect(try await !store.discard("a", writer: 1))
    }

    @Test(arguments: [EACCES, EPERM, EROFS])
    func permissionsThatAreMissing(_ code: CInt) async throws {
        let store = try self.store()
        for function in ["makeFolder", "create", "openForWriting"] {
            if function == "openForWriting" { try await store.interruptPut("a", content(100), after: 10) }
            self.files.set { $0.fault = { name, _ in name == function ? code : nil } }
            await expectFailure(.readOnly) { try await store.put("a", content(100)) }
            self.files.set { $0.fault = nil }
        }
        #expect(try await store.put("a", content(100)) == 10)
    }

    // MARK: Other failures

    @Test func shortWrites() async throws {
        self.files.set { $0.longestWrite = 7 }
        let store = try self.store()
        try await store.put("a", content(5_000))
        #expect(try await store.get("a") == content(5_000))
    }

    @Test func aDiskThatFailsToWriteKeepsWhatWasThere() async throws {
        let bytes = content(10_000)
        let store = try self.store()
        try await store.interruptPut("a", bytes, after: 4_000)
        self.files.set { $0.fault = { function, _ in function == "write" ? EIO : nil } }
        await expectFailure(.storeFailed) { try await store.put("a", bytes) }
        self.files.set { $0.fault = nil }
        #expect(try await store.put("a", bytes) == 4_000)
        #expect(try await store.get("a") == bytes)
    }

    @Test func aDiskThatFailsToSynchronizeGetsItAllAgain() async throws {
        let store = try self.store()
        self.files.set { $0.fault = { function, _ in function == "synchronize" ? EIO : nil } }
        await expectFailure(.storeFailed) { try await store.put("a", content(1_000)) }
        self.expectNothingUnfinished()
        self.files.set { $0.fault = nil }
        #expect(try await store.put("a", content(1_000)) == 0)
    }

    @Test func tooManyOpenFilesAreNoReasonToGiveUp() async throws {
        let store = try self.store()
        try await store.put("a", content(1_000))
        self.files.set { $0.fault = { function, _ in function == "openFolder" ? EMFILE : nil } }
        await expectStatus(.overloaded) { _ = try await store.put("b", content(1_000)) }
        await expectStatus(.overloaded) { _ = try await store.get("a") }
    }

    /// Fails each call once: the store reports the error, and the next attempt succeeds.
    @Test(arguments: [EIO, ENOSPC, EROFS, EMFILE])
    func anyCallMayFailOnce(_ code: CInt) async throws {
        let bytes = content(3_000)
        let old = content(500, seed: 5)
        for number in 0..<200 {
            let files = MemoryFileSystem()
            let store = try FolderTransferStore(path: "/store", files)
            try await store.put("a", old)
            try await store.interruptPut("a", bytes, after: 1_000, writer: 2)
            let counter = CallCounter(failing: number, with: code)
            files.set { $0.fault = { _, _ in counter.next() } }
            let failure: (any Error)?
            do {
                try await store.put("a", bytes, writer: 3)
                failure = nil
            } catch {
                failure = error
            }
            files.set { $0.fault = nil }
            let isThere = files.contents(of: "a")
            #expect(isThere == old || isThere == bytes, "call \(number)")
            if failure == nil { #expect(isThere == bytes, "call \(number)") }
            _ = try await store.put("a", bytes, writer: 3)
            #expect(try await store.get("a") == bytes, "call \(number)")
            #expect(files.names(in: "+unfinished").isEmpty, "call \(number)")
            try await files.areClosed()
            #expect(store.state.withLockedValue { $0.ledger.inconsistency } == nil)
            if counter.count <= number { return }
        }
        Issue.record("a put makes more calls than this test counts")
    }

    // MARK: The disk's time

    private func synchronizations(_ body: () async throws -> Void) async throws -> Int {
        let count = NIOLockedValueBox(0)
        self.files.set { state in
            state.fault = { function, _ in
                if function == "synchronize" { count.withLockedValue { $0 += 1 } }
                return nil
            }
        }
        try await body()
        self.files.set { $0.fault = nil }
        return count.withLockedValue { $0 }
    }

    /// Announcing files costs clients nothing.
    @Test func beginningALargeFileDoesNotWaitForTheDisk() async throws {
        let store = try self.store()
        let file = TransferFile(size: 8 << 30, sha256: TransferDigest(SHA256()))
        let count = try await self.synchronizations {
            for writer in 1...20 as ClosedRange<UInt64> {
                let put = TransferPut(id: "a", file: file, writer: writer, owner: "somebody")
                let unfinished = try await store.beginUnfinished(put).writer
                if writer > 10 { try await unfinished.append(content(100), from: 0) }
                await unfinished.close()
            }
            try await store.isIdle()
        }
        #expect(count == 0)
    }

    /// Content of some length survives with its record, also where another writer has just taken over.
    @Test(arguments: [false, true]) func receivedContentSurvivesAPowerCut(isTakenOver: Bool) async throws {
        let bytes = content(3_000)
        for seed in 0..<UInt64(scaled(40)) {
            var random = SeededGenerator(seed: seed)
            let files = MemoryFileSystem()
            let store = try FolderTransferStore(path: "/store", files, durableLength: 1_000)
            // In two attempts, neither of which has sent enough by itself.
            try await store.interruptPut("a", bytes, after: 600)
            try await store.interruptPut("a", bytes, after: 1_400)
            try await store.isIdle()
            if isTakenOver { _ = try await store.beginUnfinished(TransferPut("a", bytes, writer: 2)) }
            files.cutPower(&random)
            let record = files.contents(of: FolderNames.record("a"), in: "+unfinished")
            let writer = record.flatMap { UnfinishedRecord(bytes: $0) }?.writer
            #expect(writer == 1 || isTakenOver && writer == 2, "seed \(seed)")
            let again = try FolderTransferStore(path: "/store", files)
            let offset = try await again.beginUnfinished(TransferPut("a", bytes, writer: 3)).writer.offset
            // The disk was asked to write this much.
            #expect(offset >= 1_000, "seed \(seed)")
        }
    }

    // MARK: Death

    /// The process dies, or the power fails, after any step of a put that replaces a file: then either the old or the
    /// new file is complete and visible, and the next put succeeds. A file that was reported as complete survives.
    @Test(arguments: [false, true])
    func deathAfterEachStep(_ isPowerCut: Bool) async throws {
        let (old, new) = (content(2_000, seed: 1), content(3_000, seed: 2))
        for step in 0..<100 {
            var wasDone = false
            for seed in 0..<UInt64(isPowerCut ? scaled(8) : 1) {
                var random = SeededGenerator(seed: seed << 32 | UInt64(step))
                let files = MemoryFileSystem()
                let store = try FolderTransferStore(path: "/store", files)
                try await store.put("a", old)
                files.set {
                    $0.steps = 0
                    $0.lastStep = step
                }
                let isDone = (try? await store.put("a", new, writer: 2, pieceLength: 600)) != nil
                if isPowerCut { files.cutPower(&random) } else { files.restart() }
                let isThere = files.contents(of: "a")
                #expect(isThere == old && !isDone || isThere == new, "step \(step), seed \(seed)")
                let again = try FolderTransferStore(path: "/store", files)
                do {
                    try await again.put("a", new, writer: 2)
                } catch let error as TransferError where error.code == .wrongHash && isPowerCut {
                    // The content has zeros in place of bytes that were not on the disk. The next put succeeds.
                    #expect(try await again.put("a", new, writer: 2) == 0, "step \(step), seed \(seed)")
                }
                #expect(files.contents(of: "a") == new, "step \(step), seed \(seed)")
                files.advance(by: .seconds(3_600))
                await again.sweep()
                #expect(files.names(in: "+unfinished").isEmpty, "step \(step), seed \(seed)")
                wasDone = isDone
            }
            if wasDone {
                #expect(step > 10)
                return
            }
        }
        Issue.record("a put makes more steps than this test counts")
    }

    /// The process dies while a writer takes over from another, or sends another content.
    @Test(arguments: [false, true])
    func deathAfterEachStepOfAChange(_ isPowerCut: Bool) async throws {
        let (first, second) = (content(2_000, seed: 1), content(3_000, seed: 2))
        for step in 0..<100 {
            var random = SeededGenerator(seed: UInt64(step))
            let files = MemoryFileSystem()
            let store = try FolderTransferStore(path: "/store", files)
            try await store.interruptPut("a", first, after: 1_500, writer: 1)
            files.set {
                $0.steps = 0
                $0.lastStep = step
            }
            let isDone = (try? await store.put("a", second, writer: 2)) != nil
            if isPowerCut { files.cutPower(&random) } else { files.restart() }
            let isThere = files.contents(of: "a")
            #expect(isThere == nil && !isDone || isThere == second, "step \(step)")
            let again = try FolderTransferStore(path: "/store", files)
            _ = try? await again.put("a", second, writer: 2)
            _ = try await again.put("a", second, writer: 2)
            #expect(files.contents(of: "a") == second, "step \(step)")
            files.advance(by: .seconds(3_600))
            await again.sweep()
            #expect(files.names(in: "+unfinished").isEmpty, "step \(step)")
            if isDone { return }
        }
        Issue.record("a put makes more steps than this test counts")
    }
}

/// Fails one call of many.
private final class CallCounter: Sendable {
    private let box: Watched<Int>
    private let failing: Int
    private let code: CInt

    init(failing: Int, with code: CInt) {
        self.box = Watched(0)
        self.failing = failing
        self.code = code
    }

    var count: Int { self.box.withLockedValue { $0 } }

    func next() -> CInt? {
        self.box.withLockedValue { count in
            count += 1
            return count - 1 == self.failing ? self.code : nil
        }
    }
}
