// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// A store like an app's, with a file for each answer.
private actor FileStore: ResponseStore {
    private struct File: Codable {
        var key: [UInt8]
        var response: StoredResponse
    }

    private let folder: URL

    init(_ folder: URL) {
        self.folder = folder
    }

    private func url(_ key: ResponseKey) -> URL {
        // An app would use a digest, since the length of names is limited.
        self.folder.appendingPathComponent(key.bytes.map { String($0, radix: 16) }.joined(separator: "-"))
    }

    private func read(_ url: URL) -> File? {
        (try? Data(contentsOf: url)).flatMap { try? JSONDecoder().decode(File.self, from: $0) }
    }

    func response(for key: ResponseKey) -> StoredResponse? {
        self.read(self.url(key)).flatMap { $0.key == key.bytes ? $0.response : nil }
    }

    func store(_ response: StoredResponse, for key: ResponseKey) {
        try? JSONEncoder().encode(File(key: key.bytes, response: response)).write(to: self.url(key))
    }

    func remove(_ removal: ResponseRemoval) {
        let urls =
            (try? FileManager.default.contentsOfDirectory(at: self.folder, includingPropertiesForKeys: nil)) ?? []
        for url in urls {
            guard let file = self.read(url), let key = ResponseKey(bytes: file.key),
                removal.covers(key, file.response)
            else { continue }
            try? FileManager.default.removeItem(at: url)
        }
    }
}

/// A store that performs one operation at a time, as slowly as the test requests.
private final class SlowStore: ResponseStore {
    let gate = Gate()
    let log = Watched<[String]>([])
    private let memory = MemoryResponseStore()

    func response(for key: ResponseKey) async -> StoredResponse? {
        let response = await self.memory.response(for: key)
        self.log.withLockedValue { $0.append("read") }
        try? await self.gate.wait()
        return response
    }

    func store(_ response: StoredResponse, for key: ResponseKey) async {
        self.log.withLockedValue { $0.append("store") }
        await self.memory.store(response, for: key)
    }

    func remove(_ removal: ResponseRemoval) async {
        self.log.withLockedValue { $0.append("remove") }
        await self.memory.remove(removal)
    }

    var count: Int { self.memory.count }
}

/// Stores that supplement memory.
@Suite(.timeLimit(.minutes(5))) struct CacheFileStoreTests {
    private func request(_ body: String = "7", type: UInt32 = 101) -> APIRequest<String> {
        var request = APIRequest(SocketRequest(type: type, body: body)) { $0.string }
        request.cachePolicy = .returningCached
        return request
    }

    @Test func answersInFilesOutliveTheCache() async throws {
        let folder = try TemporaryFolder()
        let files = URL(fileURLWithPath: folder.file("answers"))
        try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
        func cache() -> ResponseCache { ResponseCache(store: FileStore(files)) }
        let transport = MockTransport { ByteBuffer(string: "answer to \($0.body.readableBytes)") }
        let first = APIManager(client: transport, cache: cache(), name: "profile")
        #expect(try await first.response(for: self.request()).source == .network)
        _ = try await first.value(for: self.request("88", type: 102))
        await first.cache.flush()
        // The situation after a restart.
        let second = APIManager(client: transport, cache: cache(), name: "profile")
        let hit = try await second.response(for: self.request())
        #expect(hit.isHit && hit.value == "answer to 1")
        second.cache.removeAll(ofType: 101)
        #expect(try await second.response(for: self.request()).source == .network)
        #expect(try await second.response(for: self.request("88", type: 102)).isHit)
        second.cache.removeAll(of: first)
        await second.cache.flush()
        #expect(try FileManager.default.contentsOfDirectory(atPath: files.path).isEmpty)
        withExtendedLifetime(folder) {}
    }

    @Test func aSlowStoreIsAskedForOneThingAfterTheOther() async throws {
        let store = SlowStore()
        let cache = ResponseCache(store: store)
        let manager = APIManager(client: MockTransport { $0.body }, cache: cache)
        async let first = manager.value(for: self.request("1"))
        try await store.log.wait("the first look") { $0 == ["read"] }
        // Callers do not wait for the store to be free.
        let reported = Watched(0)
        manager.dispatch(self.request("1")) { _ in reported.withLockedValue { $0 += 1 } }
        cache.removeAll()
        manager.dispatch(self.request("1")) { _ in reported.withLockedValue { $0 += 1 } }
        store.gate.open()
        #expect(try await first == "1")
        try await reported.wait("all") { $0 == 2 }
        await cache.flush()
        // The removal precedes the second read, and only answers requested after it are kept.
        #expect(store.log.current == ["read", "remove", "read", "store"])
        #expect(store.count == 1)
    }
}
