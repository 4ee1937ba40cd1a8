// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import HHSocketSystem
import HHSocketTesting
import HHSocketTransferValues
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// The small files of the store, intact and damaged.
@Suite struct TransferRecordTests {
    private static let unfinished: UnfinishedRecord = {
        var record = UnfinishedRecord(TransferPut("some.id", content(100), writer: 7, owner: "identity ä"), begun: 12)
        record.continueWith(TransferPut("some.id", content(100), writer: 8, owner: "address 1"), now: 13)
        record.continueWith(TransferPut("some.id", content(200), writer: 9, owner: "address 1"), now: 14)
        return record
    }()

    private static let hash: HashRecord = {
        let status = FileStatus(kind: .regular, size: 100, modified: -5, changed: .max, inode: .max)
        return HashRecord(id: "some.id", key: FileKey(status), digest: TransferFile(of: content(100)).sha256)
    }()

    @Test func recordsAreReadAsTheyWereWritten() {
        #expect(UnfinishedRecord(bytes: Self.unfinished.bytes) == Self.unfinished)
        #expect(Self.unfinished.superseded == [7, 8])
        #expect(Self.unfinished.begun == 14)
        #expect(HashRecord(bytes: Self.hash.bytes) == Self.hash)
    }

    @Test func aRecordIsNoRecordOfAnotherKind() {
        #expect(HashRecord(bytes: Self.unfinished.bytes) == nil)
        #expect(UnfinishedRecord(bytes: Self.hash.bytes) == nil)
    }

    @Test func truncatedAndDamagedRecordsAreRejected() {
        for bytes in [Self.unfinished.bytes, Self.hash.bytes] {
            for count in 0..<bytes.count {
                #expect(UnfinishedRecord(bytes: Array(bytes.prefix(count))) == nil)
                #expect(HashRecord(bytes: Array(bytes.prefix(count))) == nil)
            }
            for index in bytes.indices {
                var damaged = bytes
                damaged[index] ^= 1 << UInt8(index % 8)
                #expect(UnfinishedRecord(bytes: damaged) == nil)
                #expect(HashRecord(bytes: damaged) == nil)
            }
        }
    }

    /// Any process that writes into the folder can compute a valid hash of anything.
    @Test func sealedNonsenseIsNoRecord() {
        for seed in 0..<scaled(2_000) {
            var random = SeededGenerator(seed: UInt64(seed))
            let count = Int.random(in: 0...300, using: &random)
            let body = random.bytes(count)
            for kind in ["HHU1", "HHH1"] {
                let bytes = SealedRecord.seal(kind) { $0.writeBytes(body) }
                // Reading must not trap; a hash record of the right length may even be one.
                if let record = UnfinishedRecord(bytes: bytes) { #expect(record.bytes == bytes) }
                if let record = HashRecord(bytes: bytes) { #expect(record.bytes == bytes) }
            }
        }
    }

    @Test func namesSayTheirPurpose() {
        let digest = TransferFile(of: []).sha256
        #expect(FolderNames.purpose(of: FolderNames.record("a.b")) == .record("a.b"))
        #expect(FolderNames.purpose(of: FolderNames.temporary("a.b")) == .temporary("a.b"))
        #expect(FolderNames.purpose(of: FolderNames.content("a.b", digest)) == .content("a.b", digest))
        for name in ["", "a", "+record", "a+", "a+records", "a/b+record", "a+\(digest)0", "..+record", "a++record"] {
            #expect(FolderNames.purpose(of: name) == nil)
        }
    }

    @Test func idsThatDifferInCase() {
        #expect(FolderNames.otherCase("aB.1") == "Ab.1")
        #expect(FolderNames.otherCase("1.2") == nil)
        #expect(FolderNames.differOnlyInCase("Ab", "aB"))
        #expect(!FolderNames.differOnlyInCase("ab", "ab"))
        #expect(!FolderNames.differOnlyInCase("a.", "aN"))
        #expect(!FolderNames.differOnlyInCase("abc", "ab"))
    }
}
