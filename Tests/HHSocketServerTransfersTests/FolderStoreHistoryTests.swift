// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// Rival writers, faults of the disk, restarts and power cuts in random order, in virtual time.
///
/// The promises: a visible file is one that was put, complete; a file that was reported as complete stays until another
/// replaces it; the offset of a content decreases only for a known reason; and in the end every put succeeds, and
/// nothing unfinished is left.
@Suite struct FolderStoreHistoryTests {
    fileprivate static let ids: [TransferID] = ["a", "b", "c"]

    fileprivate struct History {
        let seed: Int
        var random: SeededGenerator
        let files = MemoryFileSystem()
        var store: FolderTransferStore
        /// The contents that may be visible under an id.
        var possible: [TransferID: Set<[UInt8]?>] = [:]
        /// The least offset that an unfinished content may have.
        var offsets: [String: UInt64] = [:]
        var live: [(put: TransferPut, bytes: [UInt8], writer: any TransferWriter, position: UInt64)] = []

        init(_ seed: Int) throws {
            self.seed = seed
            self.random = SeededGenerator(seed: UInt64(seed))
            self.store = try FolderTransferStore(path: "/store", self.files, durableLength: Self.durableLength(seed))
            for id in FolderStoreHistoryTests.ids { self.possible[id] = [nil] }
        }

        /// In half of the histories content is long enough to survive a power cut.
        static func durableLength(_ seed: Int) -> UInt64 {
            seed.isMultiple(of: 2) ? FolderTransferStore.durableLength : 700
        }

        static func contents() -> [[UInt8]] { (0..<3).map { content([1_000, 2_500, 0][$0], seed: UInt64($0)) } }

        func key(_ put: TransferPut) -> String { "\(put.id) \(put.file.sha256)" }
    }

    @Test func randomHistories() async throws {
        for seed in 0..<scaled(400) {
            var history = try History(seed)
            for _ in 0..<40 {
                try await history.step()
                history.check()
            }
            try await history.end()
        }
    }
}

extension FolderStoreHistoryTests.History {
    mutating func step() async throws {
        switch Int.random(in: 0..<20, using: &self.random) {
        case 0..<6: await self.begin()
        case 6..<11: await self.append()
        case 11..<14: await self.finish()
        case 14:
            guard !self.live.isEmpty else { return }
            let index = Int.random(in: 0..<self.live.count, using: &self.random)
            await self.live.remove(at: index).writer.close()
        case 15: try await self.die()
        case 16:
            let isOn = Bool.random(using: &self.random)
            self.files.set { $0.isReadOnly = isOn }
        case 17:
            let capacity = Bool.random(using: &self.random) ? Int.random(in: 0...8_000, using: &self.random) : .max
            self.files.set { $0.capacity = capacity }
        case 18:
            let length = Bool.random(using: &self.random) ? Int.random(in: 1...300, using: &self.random) : .max
            self.files.set { $0.longestWrite = length }
        default:
            self.files.advance(by: .seconds(Int.random(in: 0...2 * 86_400, using: &self.random)))
            await self.store.sweep()
            // Some unfinished contents may have expired.
            self.offsets = [:]
        }
    }

    private mutating func begin() async {
        let id = FolderStoreHistoryTests.ids[Int.random(in: 0..<3, using: &self.random)]
        let bytes = Self.contents()[Int.random(in: 0..<3, using: &self.random)]
        let put = TransferPut(id, bytes, writer: .random(in: 1...12, using: &self.random))
        do {
            switch try await self.store.begin(put, onEnd: { _ in }) {
            case .complete:
                #expect(self.possible[id]?.contains(bytes) == true, "seed \(self.seed)")
                #expect(self.files.contents(of: id.description) == bytes, "seed \(self.seed)")
                self.possible[id] = [bytes]
            case .unfinished(let writer, _):
                // Other contents of this id have been discarded.
                for other in Self.contents() {
                    let key = self.key(TransferPut(id, other))
                    if other != bytes { self.offsets[key] = nil }
                }
                #expect(writer.offset >= self.offsets[self.key(put)] ?? 0, "seed \(self.seed)")
                self.live.append((put, bytes, writer, writer.offset))
            }
        } catch {
            self.failed(error, put)
        }
    }

    private mutating func append() async {
        guard !self.live.isEmpty else { return }
        let index = Int.random(in: 0..<self.live.count, using: &self.random)
        let live = self.live[index]
        let count = Int.random(in: 0...1_000, using: &self.random)
        var piece = Array(live.bytes.dropFirst(Int(live.position)).prefix(count))
        // A client that sends other content than it has announced.
        if Int.random(in: 0..<30, using: &self.random) == 0, !piece.isEmpty { piece[0] ^= 1 }
        do {
            try await live.writer.append([ByteBuffer(bytes: piece)])
            // What the disk is asked to write in the background is part of the step.
            if !self.seed.isMultiple(of: 2) { try await self.store.isIdle() }
            self.live[index].position += UInt64(piece.count)
            self.offsets[self.key(live.put)] = self.live[index].position
        } catch {
            self.failed(error, live.put)
            self.live.remove(at: index)
            await live.writer.close()
        }
    }

    private mutating func finish() async {
        guard let index = self.live.indices.randomElement(using: &self.random) else { return }
        let live = self.live[index]
        guard live.position == live.put.file.size else { return }
        self.live.remove(at: index)
        do {
            try await live.writer.finish()
            self.possible[live.put.id] = [live.bytes]
            self.offsets[self.key(live.put)] = nil
        } catch {
            self.failed(error, live.put)
        }
        await live.writer.close()
    }

    /// The process dies, perhaps during an operation, and perhaps in a power cut.
    private mutating func die() async throws {
        let step = Int.random(in: 0..<20, using: &self.random)
        self.files.set {
            $0.steps = 0
            $0.lastStep = step
        }
        let isPowerCut = Bool.random(using: &self.random)
        var finishing: [(TransferID, [UInt8])] = []
        for live in self.live {
            if live.position == live.put.file.size {
                finishing.append((live.put.id, live.bytes))
                if (try? await live.writer.finish()) != nil {
                    self.possible[live.put.id] = [live.bytes]
                    continue
                }
            }
            self.possible[live.put.id]?.formUnion(finishing.filter { $0.0 == live.put.id }.map { $0.1 })
        }
        self.live = []
        // A content that a put had begun to publish may be visible or not.
        if isPowerCut {
            self.files.cutPower(&self.random)
            self.offsets = [:]
        } else {
            self.files.restart()
            for (id, bytes) in finishing { self.offsets[self.key(TransferPut(id, bytes))] = nil }
        }
        let isReadOnly = self.files.state.withLockedValue { $0.isReadOnly }
        self.files.set { $0.isReadOnly = false }
        self.store = try FolderTransferStore(
            path: "/store",
            self.files,
            durableLength: Self.durableLength(self.seed)
        )
        self.files.set { $0.isReadOnly = isReadOnly }
    }

    private mutating func failed(_ error: any Error, _ put: TransferPut) {
        switch (error as? TransferError)?.code {
        // Its content has been discarded.
        case .wrongHash?: self.offsets[self.key(put)] = nil
        // So has the content that it was to replace.
        case .noRoom?: for bytes in Self.contents() { self.offsets[self.key(TransferPut(put.id, bytes))] = nil }
        case .readOnly?, .superseded?, .quota?, .invalidRequest?: break
        default:
            // Another attempt of the same writer.
            if (error as? StatusError)?.status != .cancelledByServer { Issue.record("seed \(self.seed): \(error)") }
        }
    }

    func check() {
        for id in FolderStoreHistoryTests.ids {
            let visible = self.files.contents(of: id.description)
            #expect(self.possible[id]?.contains(visible) == true, "seed \(self.seed), \(id)")
        }
        #expect(self.store.state.withLockedValue { $0.ledger.inconsistency } == nil, "seed \(self.seed)")
        let unfinished = self.files.names(in: "+unfinished").compactMap { FolderNames.purpose(of: $0) }
        let records = unfinished.count { if case .record = $0 { true } else { false } }
        let contents = unfinished.count { if case .content = $0 { true } else { false } }
        #expect(records <= FolderStoreHistoryTests.ids.count, "seed \(self.seed)")
        #expect(contents <= FolderStoreHistoryTests.ids.count * 2, "seed \(self.seed)")
    }

    mutating func end() async throws {
        for live in self.live { await live.writer.close() }
        try await self.files.areClosed()
        self.files.set { state in
            state.isReadOnly = false
            state.capacity = .max
            state.longestWrite = .max
        }
        for (number, id) in FolderStoreHistoryTests.ids.enumerated() {
            let bytes = content(1_500, seed: 99)
            try await self.store.put(id, bytes, writer: UInt64(1_000 + number))
            #expect(try await self.store.get(id) == bytes, "seed \(self.seed)")
        }
        self.files.advance(by: .seconds(3_600))
        await self.store.sweep()
        #expect(self.files.names(in: "+unfinished").isEmpty, "seed \(self.seed)")
        try await self.files.areClosed()
    }
}
