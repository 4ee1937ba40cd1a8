// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketServer
import HHSocketTransferValues
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// A store's few threads, of which each client gets its share, however many files it asks for.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StoreOwnerTests {
    /// Keeps a thread of a store from its work.
    private func occupy(_ store: FolderTransferStore, _ count: Int, until end: DispatchSemaphore) {
        for _ in 0..<count { store.threads.submit(for: 99) { end.wait() } }
    }

    @Test func threadsAlternateBetweenClientsAndNotFiles() async throws {
        let files = MemoryFileSystem()
        let store = try FolderTransferStore(path: "/store", files)
        let many = (0..<16).map { TransferID("many\($0)") }.compactMap { $0 }
        let asked = NIOLockedValueBox<[String]>([])
        let names = Set((many + ["one"]).map(\.description))
        files.set { state in
            state.fault = { _, name in
                if names.contains(name) { asked.withLockedValue { if $0.last != name { $0.append(name) } } }
                return nil
            }
        }
        // All threads but one stay busy; that one begins when everything waits.
        let (first, others) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        self.occupy(store, 1, until: first)
        self.occupy(store, FolderTransferStore.threadCount - 1, until: others)
        defer { for _ in 1..<FolderTransferStore.threadCount { others.signal() } }
        try await eventually("all threads are busy") { store.threads.waitingCount == 0 }
        var finds: [Task<Bool, any Error>] = []
        for (owner, id) in many.map({ (1, $0) }) + [(2, "one")] {
            let waiting = store.threads.waitingCount
            finds.append(
                Task {
                    try await StoreOwner.$current.withValue(UInt64(owner)) { try await store.find(id) == nil }
                }
            )
            try await eventually("\(id) waits") { store.threads.waitingCount == waiting + 1 }
        }
        first.signal()
        for find in finds { #expect(try await waitForValue(of: find, "a find")) }
        #expect(asked.withLockedValue { Array($0.prefix(2)) } == ["many0", "one"])
    }

    /// Records in whose turn it is called.
    private final class Spy: TransferStore {
        let owners = NIOLockedValueBox<[UInt64?]>([])

        private func note() { self.owners.withLockedValue { $0.append(StoreOwner.current) } }

        func take() -> [UInt64?] {
            self.owners.withLockedValue { owners in
                defer { owners = [] }
                return owners
            }
        }

        func find(_ id: TransferID) async throws -> StoredFile? {
            self.note()
            return nil
        }

        func open(_ id: TransferID) async throws -> any TransferReader {
            self.note()
            throw TransferError(.notFound, "there is none")
        }

        func begin(
            _ put: TransferPut,
            onEnd: @escaping @Sendable (any Error) -> Void
        ) async throws -> TransferBeginning {
            self.note()
            return .complete
        }

        func discard(_ id: TransferID, writer: UInt64) async throws -> Bool {
            self.note()
            return false
        }
    }

    /// All that a service does in its store is done in the turn of its client.
    @Test func eachMethodIsDoneForItsClient() async throws {
        let spy = Spy()
        try await withTransfers(store: spy) { calls, server, _ in
            let other = TransferCalls(try #require(server.address))
            try await calls.signIn("one")
            try await other.signIn("two")
            var rounds: [Set<UInt64?>] = []
            for client in [calls, other] {
                _ = try await client.find("a")
                _ = try await client.get("b")
                try await client.put("c", content(10))
                _ = try await client.discard("d", writer: 1)
                let owners = spy.take()
                #expect(owners.count == 4)
                rounds.append(Set(owners))
            }
            #expect(rounds.allSatisfy { $0.count == 1 && !$0.contains(nil) })
            #expect(rounds[0] != rounds[1])
            await other.client.close()
        }
    }
}
