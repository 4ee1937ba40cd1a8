import Foundation
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

private struct Profile: Codable, Sendable { var name: String }
private struct Listing: Codable, Sendable { var items: [Profile] }

actor FolderStore: ResponseStore {
    struct File: Codable {
        var key: [UInt8]
        var response: StoredResponse
    }

    var files: [String: Data] = [:]

    func name(_ key: ResponseKey) -> String { Data(key.bytes).base64EncodedString() }

    func response(for key: ResponseKey) -> StoredResponse? {
        guard let data = self.files[self.name(key)] else { return nil }
        return try? JSONDecoder().decode(File.self, from: data).response
    }

    func store(_ response: StoredResponse, for key: ResponseKey) {
        self.files[self.name(key)] = try? JSONEncoder().encode(File(key: key.bytes, response: response))
    }

    func remove(_ removal: ResponseRemoval) {
        self.files = self.files.filter { _, data in
            guard let file = try? JSONDecoder().decode(File.self, from: data), let key = ResponseKey(bytes: file.key)
            else { return false }
            return !removal.covers(key, file.response)
        }
    }
}

/// The examples of `Docs/AppLayer.md` about managers and their cache, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AppLayerGuideTests {
    @Test func everyExampleOfTheseSectionsIsInThisFile() throws {
        let source = try String(contentsOfFile: #filePath, encoding: .utf8)
        for section in ["A screen's calls", "The cache"] {
            #expect(try DocumentationPage("Docs/AppLayer.md", section: section).examples(missingFrom: source) == [])
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
        let kept = ResponseCache(store: FolderStore())

        let manager = APIManager(client: MockTransport { $0.body }, cache: kept)
        var request = APIRequest(SocketRequest(type: 101, body: "7"))
        request.cachePolicy = .returningCached
        #expect(try await !manager.response(for: request).isHit)
        #expect(try await manager.response(for: request).isHit)
        kept.removeAll(of: manager)
        #expect(try await !manager.response(for: request).isHit)
    }
}
