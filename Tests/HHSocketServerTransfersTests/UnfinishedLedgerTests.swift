// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// The writers of files and their limits, in virtual time.
@Suite struct UnfinishedLedgerTests {
    private static func ledger(_ change: (inout TransferLimits) -> Void = { _ in }) -> UnfinishedLedger {
        var limits = TransferLimits()
        change(&limits)
        return UnfinishedLedger(limits: limits)
    }

    private static func put(
        _ id: TransferID = "a",
        size: UInt64 = 100,
        seed: UInt8 = 0,
        writer: UInt64 = 1,
        owner: String = "o"
    ) -> TransferPut {
        let file = TransferFile(size: size, sha256: TransferFile(of: [seed]).sha256)
        return TransferPut(id: id, file: file, writer: writer, owner: owner)
    }

    /// Begins a put, and records the decision.
    @discardableResult
    private static func begin(
        _ put: TransferPut,
        _ ledger: inout UnfinishedLedger,
        now: UInt64 = 0
    ) throws -> UnfinishedLedger.Plan {
        let plan = try ledger.plan(put, now: now)
        let received = plan.isContentKept ? ledger.entries[put.id]?.received ?? 0 : 0
        ledger.opened(plan.record, received: received, now: now)
        return plan
    }

    @Test func aWriterComesBack() throws {
        var ledger = Self.ledger()
        try Self.begin(Self.put(), &ledger)
        ledger.closed("a", received: 50, now: 1)
        let plan = try Self.begin(Self.put(), &ledger, now: 2)
        #expect(plan.isContentKept && !plan.isChanged && !plan.supersedes && !plan.isRecordNew)
        #expect(ledger.entries["a"]?.received == 50)
    }

    @Test func aNewWriterContinuesWithTheSameContentAndEndsTheOldOne() throws {
        var ledger = Self.ledger()
        try Self.begin(Self.put(writer: 1), &ledger)
        let plan = try Self.begin(Self.put(writer: 2), &ledger)
        #expect(plan.isContentKept && !plan.isChanged && plan.supersedes && plan.isRecordNew)
        #expect(plan.record.superseded == [1])
        #expect { try ledger.plan(Self.put(writer: 1), now: 0) } throws: { ($0 as? TransferError)?.code == .superseded }
        // Regardless of its content.
        #expect { try ledger.plan(Self.put(seed: 9, writer: 1), now: 0) } throws: {
            ($0 as? TransferError)?.code == .superseded
        }
        try Self.begin(Self.put(writer: 2), &ledger)
    }

    @Test func anotherContentBeginsAgain() throws {
        var ledger = Self.ledger()
        try Self.begin(Self.put(), &ledger)
        ledger.closed("a", received: 50, now: 1)
        let same = try Self.begin(Self.put(seed: 1), &ledger, now: 2)
        #expect(!same.isContentKept && same.isChanged && !same.supersedes)
        #expect(same.record.begun == 2)
        let other = try Self.begin(Self.put(size: 101, seed: 1, writer: 2), &ledger, now: 3)
        #expect(!other.isContentKept && other.isChanged && other.supersedes)
    }

    @Test func aSupersededWriterIsRememberedAfterTheFileIsWhole() throws {
        var ledger = Self.ledger()
        try Self.begin(Self.put(writer: 1), &ledger)
        try Self.begin(Self.put(writer: 2), &ledger)
        ledger.remove("a")
        #expect { try ledger.plan(Self.put(writer: 1), now: 0) } throws: { ($0 as? TransferError)?.code == .superseded }
        // The other id is independent, and its writer may continue.
        try Self.begin(Self.put("b", writer: 1), &ledger)
        try Self.begin(Self.put(writer: 2), &ledger)
    }

    @Test func rememberedWritersAreBounded() throws {
        var ledger = Self.ledger()
        for writer in 1...200 { try Self.begin(Self.put(writer: UInt64(writer)), &ledger) }
        #expect(ledger.entries["a"]?.record.superseded == (136...199).map { UInt64($0) })
        #expect(UnfinishedRecord(bytes: ledger.entries["a"]?.record.bytes ?? []) == ledger.entries["a"]?.record)
    }

    @Test func theFilesOfAnIdentityAreBounded() throws {
        var ledger = Self.ledger { $0.maximumFilesPerIdentity = 2 }
        try Self.begin(Self.put("a"), &ledger)
        try Self.begin(Self.put("b"), &ledger)
        #expect { try ledger.plan(Self.put("c"), now: 0) } throws: { ($0 as? TransferError)?.code == .quota }
        // Continuing does not count as beginning, nor does replacing.
        try Self.begin(Self.put("a"), &ledger)
        try Self.begin(Self.put("a", seed: 1, writer: 2), &ledger)
        try Self.begin(Self.put("c", owner: "other"), &ledger)
        // A writer that takes over a file becomes its owner.
        try Self.begin(Self.put("a", writer: 3, owner: "other"), &ledger)
        try Self.begin(Self.put("d"), &ledger)
        #expect { try ledger.plan(Self.put("b", writer: 9, owner: "other"), now: 0) } throws: {
            ($0 as? TransferError)?.code == .quota
        }
    }

    @Test func theBytesOfAnIdentityAreBounded() throws {
        var ledger = Self.ledger { $0.maximumBytesPerIdentity = 150 }
        try Self.begin(Self.put("a", size: 100), &ledger)
        #expect { try ledger.plan(Self.put("b", size: 51), now: 0) } throws: { ($0 as? TransferError)?.code == .quota }
        try Self.begin(Self.put("b", size: 50), &ledger)
        // Announced bytes count although they have not arrived.
        ledger.closed("a", received: 1, now: 0)
        #expect { try ledger.plan(Self.put("c", size: 1), now: 0) } throws: { ($0 as? TransferError)?.code == .quota }
        try Self.begin(Self.put("a", size: 100, seed: 2, writer: 2), &ledger)
        for size in [151, UInt64(Int64.max), .max] {
            #expect { try ledger.plan(Self.put("b", size: size), now: 0) } throws: {
                ($0 as? TransferError)?.code == .quota
            }
        }
    }

    @Test func filesAndBytesAreBoundedInTotal() throws {
        var ledger = Self.ledger {
            $0.maximumFiles = 2
            $0.maximumBytes = 150
        }
        try Self.begin(Self.put("a", size: 100, owner: "1"), &ledger)
        #expect { try ledger.plan(Self.put("b", size: 51, owner: "2"), now: 0) } throws: {
            ($0 as? TransferError)?.code == .quota
        }
        // A file without an active writer counts with its received bytes.
        ledger.closed("a", received: 10, now: 0)
        try Self.begin(Self.put("b", size: 51, owner: "2"), &ledger)
        #expect { try ledger.plan(Self.put("c", size: 1, owner: "3"), now: 0) } throws: {
            ($0 as? TransferError)?.code == .quota
        }
        ledger.remove("b")
        try Self.begin(Self.put("c", size: 1, owner: "3"), &ledger)
    }

    @Test func filesExpire() throws {
        var ledger = Self.ledger { $0.lifetime = .seconds(10) }
        try Self.begin(Self.put("a"), &ledger, now: 1_000)
        #expect(ledger.expired(now: 100_000).isEmpty)
        ledger.closed("a", received: 1, now: 2_000)
        #expect(ledger.expired(now: 12_000).isEmpty)
        #expect(ledger.expired(now: 12_001) == ["a"])
        // A clock that was set back.
        #expect(ledger.expired(now: 0).isEmpty)
    }

    @Test func longOwnersAreShortened() throws {
        let owner = String(repeating: "x", count: 100_000)
        let record = UnfinishedRecord(Self.put(owner: owner), begun: 0)
        #expect(record.owner.utf8.count < 100)
        #expect(UnfinishedRecord(bytes: record.bytes) == record)
        var ledger = Self.ledger { $0.maximumFilesPerIdentity = 1 }
        try Self.begin(Self.put("a", owner: owner), &ledger)
        #expect { try ledger.plan(Self.put("b", owner: owner), now: 0) } throws: {
            ($0 as? TransferError)?.code == .quota
        }
    }

    private static let ids: [TransferID] = ["a", "b", "c", "d", "e", "f", "g"]

    /// Sums agree with their parts, limits hold, and a writer that was superseded is never let in again.
    @Test func randomHistories() {
        for seed in 0..<historyCount {
            var random = SeededGenerator(seed: UInt64(seed))
            var ledger = Self.ledger {
                $0.maximumFilesPerIdentity = 3
                $0.maximumBytesPerIdentity = 1_000
                $0.maximumFiles = 5
                $0.maximumBytes = 2_000
                $0.lifetime = .seconds(20)
            }
            var superseded: Set<String> = []
            var now: UInt64 = 1_000
            for _ in 0..<60 {
                let id = Self.ids[Int.random(in: 0..<7, using: &random)]
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<6:
                    let put = Self.put(
                        id,
                        size: .random(in: 0...700, using: &random),
                        seed: .random(in: 0...2, using: &random),
                        writer: .random(in: 1...6, using: &random),
                        owner: ["x", "y", "z"][Int.random(in: 0..<3, using: &random)]
                    )
                    let former = ledger.entries[id]?.record.writer
                    guard (try? Self.begin(put, &ledger, now: now)) != nil else { break }
                    #expect(!superseded.contains("\(id) \(put.writer)"), "seed \(seed)")
                    if let former, former != put.writer { superseded.insert("\(id) \(former)") }
                case 6: ledger.closed(id, received: .random(in: 0...700, using: &random), now: now)
                case 7: ledger.remove(id)
                case 8: for id in ledger.expired(now: now) { ledger.remove(id) }
                default: now += .random(in: 0...10_000, using: &random)
                }
                #expect(ledger.inconsistency == nil, "seed \(seed)")
                #expect(ledger.entries.count <= 5, "seed \(seed)")
                for owner in ["x", "y", "z"] {
                    let own = ledger.entries.values.filter { $0.record.owner == owner }
                    #expect(own.count <= 3, "seed \(seed)")
                    #expect(own.reduce(0) { $0 + $1.record.file.size } <= 1_000, "seed \(seed)")
                }
            }
        }
    }
}
