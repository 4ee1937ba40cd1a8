// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketApp
import HHSocketTesting
import TestSupport
import Testing

private struct Profile: Codable, Sendable { var name: String }
private struct Listing: Codable, Sendable { var items: [Profile] }

actor FolderStore: ResponseStore {
    struct File: Codable {
        var key: [UInt8]
        var response: StoredResponse
    }

    let folder: URL

    init(folder: URL) throws {
        self.folder = folder
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    // A key has any bytes, and may be longer than a file's name. This hash (FNV-1a) is the same after the next start.
    func url(_ key: ResponseKey) -> URL {
        let hash = key.bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return self.folder.appendingPathComponent(String(hash, radix: 16))
    }

    func file(at url: URL) -> File? {
        guard let data = try? Data(contentsOf: url) else { return nil }
        return try? JSONDecoder().decode(File.self, from: data)
    }

    func response(for key: ResponseKey) -> StoredResponse? {
        // Two keys may have one hash; then the file has the answer that was stored last.
        guard let file = self.file(at: self.url(key)), file.key == key.bytes else { return nil }
        return file.response
    }

    func store(_ response: StoredResponse, for key: ResponseKey) {
        let url = self.url(key)
        do {
            try JSONEncoder().encode(File(key: key.bytes, response: response)).write(to: url, options: .atomic)
        } catch {
            try? FileManager.default.removeItem(at: url)
        }
    }

    func remove(_ removal: ResponseRemoval) {
        let urls = try? FileManager.default.contentsOfDirectory(at: self.folder, includingPropertiesForKeys: nil)
        for url in urls ?? [] {
            if let file = self.file(at: url), let key = ResponseKey(bytes: file.key),
                !removal.covers(key, file.response)
            {
                continue
            }
            try? FileManager.default.removeItem(at: url)
        }
    }
}

/// The examples of `AppLayer.md` about managers and their cache, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AppLayerGuideTests {
    @Test func everyExampleOfTheseSectionsIsInThisFile() throws {
        for section in ["API managers", "Response cache"] {
            let allowed: Set<String> = ["Foundation", "HHSocketApp"]
            #expect(try DocumentationPage(guide: "AppLayer", section: section).shortcomings(allowing: allowed) == [])
        }
    }

    @Test func aScreensCalls() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .answer(#"{"name":"ann"}"#))
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.timeout = patience
        configuration.hello = HelloPolicy()
        server.acceptHello()
        let echo = MethodDescriptor<Google_Protobuf_StringValue, Google_Protobuf_StringValue>(
            "test.Echo/Echo",
            type: 130,
            kind: .unary
        )
        let message = Google_Protobuf_StringValue()

        let client = SocketClient(configuration: configuration)
        let cache = ResponseCache()

        let profiles = APIManager(client: client, cache: cache)
        let friends = APIManager(client: client, cache: cache)

        client.connect()

        // A payload as it comes, from a body, in JSON, and by a method of a `.proto`.
        let raw = APIRequest(SocketRequest(type: 101, body: "7"))
        let text = APIRequest(SocketRequest(type: 101, body: "7")) { $0.string }
        var profile = APIRequest(SocketRequest(type: 102, body: "7"), decoding: Profile.self)
        let typed = try APIRequest(echo, message, options: CallOptions(timeout: .seconds(3)))

        profile.cachePolicy = .returningCached
        profile.validity = .seconds(300)
        profile.request.metadata = ["language": "de"]
        profile.significantHeaders = ["language"]

        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        #expect(try await friends.value(for: raw) == ByteBuffer(string: "7"))
        #expect(try await friends.value(for: text) == "7")
        #expect(typed.request.type == 130 && typed.request.timeout == .seconds(3))

        // With a handler, which runs on the client's callback queue, never before `dispatch` has returned.
        let identifier = profiles.dispatch(profile) { result in
            switch result {
            case .success(let response): print(response.value.name, response.source)
            case .failure(let error): print(error)
            }
        }
        profiles.cancelTask(withIdentifier: identifier)

        // With async. Cancelling the Swift task cancels the request.
        let value = try await profiles.value(for: profile)
        let response = try await profiles.response(for: profile)
        print(response.isHit, response.response.metadata)

        profiles.cancelAllTasks()

        #expect(value.name == "ann" && response.isHit)

        profile.cachePolicy = .returningStale(upTo: .seconds(3_600))
        profiles.dispatch(
            profile,
            refreshHandler: { response in print("now it is", response.value.name) },
            completionHandler: { result in print("at once", result) }
        )

        cache.removeAll()
        cache.removeAll(ofType: 102)
        cache.removeAll(of: profiles)

        #expect(try await !friends.response(for: profile).isHit)
        await client.close()
    }

    @Test func lists() async throws {
        let transport = MockTransport { _ in ByteBuffer(string: #"[]"#) }
        let manager = APIManager(client: transport)

        let first = APIRequest(SocketRequest(type: 110, body: "0"), decoding: [Profile].self).page(.first)
        let later = APIRequest(SocketRequest(type: 110, body: "20"), decoding: Listing.self)
            .page(.later) { $0.items.isEmpty }

        let empty = await #expect(throws: SocketError.self) { try await manager.value(for: first) }
        #expect(empty?.code == .noData)
        let other = await #expect(throws: SocketError.self) { try await manager.value(for: later) }
        #expect(other?.code == .decodingFailed)
    }

    @Test func withoutAServer() async throws {
        let transport = MockTransport { request in
            guard request.type == 102 else { throw SocketError(.noPermission, message: "not you") }
            return ByteBuffer(string: #"{"name":"ann"}"#)
        }
        let clock = VirtualClock()
        let manager = APIManager(client: transport, cache: ResponseCache(clock: APIClock(clock)))

        var profile = APIRequest(SocketRequest(type: 102, body: "7"), decoding: Profile.self)
        profile.cachePolicy = .returningCached
        #expect(try await manager.value(for: profile).name == "ann")
        clock.advance(by: .seconds(30))
        #expect(try await manager.response(for: profile).source == .cache(age: .seconds(30)))
        let request = APIRequest(SocketRequest(type: 101))
        let refused = await #expect(throws: SocketError.self) { try await manager.value(for: request) }
        #expect(refused?.code == .noPermission)
    }

    @Test func onADisk() async throws {
        let temporary = try TemporaryFolder()
        let folder = URL(fileURLWithPath: temporary.file("answers"))
        let kept = try ResponseCache(store: FolderStore(folder: folder))

        let manager = APIManager(client: MockTransport { $0.body }, cache: kept, name: "profiles")
        // The body is longer than the limit of a file's name.
        let body = String(repeating: "7/", count: 1_000)
        var request = APIRequest(SocketRequest(type: 101, body: body))
        request.cachePolicy = .returningCached
        #expect(try await !manager.response(for: request).isHit)
        #expect(try await manager.response(for: request).isHit)
        await kept.flush()

        // After the next start.
        let again = APIManager(
            client: MockTransport { $0.body },
            cache: try ResponseCache(store: FolderStore(folder: folder)),
            name: "profiles"
        )
        let fromDisk = try await again.response(for: request)
        #expect(fromDisk.isHit)
        #expect(fromDisk.response.string == body)
        again.cache.removeAll(of: again)
        #expect(try await !again.response(for: request).isHit)
    }
}
