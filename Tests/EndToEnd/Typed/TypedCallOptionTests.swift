// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The options of typed calls of clients and servers, over real connections.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TypedCallOptionTests {
    private static let methods = [Kv_Store.Methods.get.type, Kv_Store.Methods.put.type, Kv_Store.Methods.delete.type]

    /// A server that closes the connection instead of answering the first request of each type.
    private static func forgetful() -> Router {
        let seen = NIOLockedValueBox<Set<UInt32>>([])
        var router = Router()
        for type in Self.methods {
            router.handle(type) { request, context in
                if seen.withLockedValue({ $0.insert(request.type).inserted }) {
                    context.session.close(reason: "forgotten")
                    try await Task.sleep(for: .seconds(60))
                }
                return ByteBuffer()
            }
        }
        return router
    }

    @Test func aMethodThatMayBeRepeatedIsWhereThePolicyAllowsIt() async throws {
        try await Pair.with(
            .standard,
            router: Self.forgetful(),
            configureClient: { configuration in
                configuration.retryPolicy = RetryPolicy(maximumAttempts: 3)
            }
        ) { client, _ in
            let store = Kv_Store.Client(client)
            _ = try await store.get(Kv_GetRequest())
            _ = try await store.delete(Kv_DeleteRequest())
            let error = await #expect(throws: SocketError.self) { try await store.put(Kv_Entry()) }
            #expect(error?.code == .connectionLost)
        }
    }

    @Test func aCallerMaySayOtherwise() async throws {
        try await Pair.with(
            .standard,
            router: Self.forgetful(),
            configureClient: { configuration in
                configuration.retryPolicy = RetryPolicy(maximumAttempts: 3)
            }
        ) { client, _ in
            let store = Kv_Store.Client(client)
            var options = CallOptions()
            options.isIdempotent = false
            let error = await #expect(throws: SocketError.self) {
                try await store.get(Kv_GetRequest(), options: options)
            }
            #expect(error?.code == .connectionLost)
            options.isIdempotent = true
            _ = try await store.put(Kv_Entry(), options: options)
        }
    }

    @Test func anAnswerHasMetadataBesideItsMessage() async throws {
        var router = Router()
        router.handle(Kv_Store.Methods.get) { _, context in
            context.answerMetadata = ["revision": "7"]
            return Kv_GetReply.with { $0.entries["a"] = .with { $0.version = 3 } }
        }
        try await Pair.with(.standard, router: router, configureClient: { $0.hello = HelloPolicy() }) {
            client,
            server in
            let answer = try await client.response(to: Kv_Store.Methods.get, Kv_GetRequest())
            #expect(answer.message.entries["a"]?.version == 3)
            #expect(answer.response.metadata == ["revision": "7"])
            #expect(answer.response.status == .ok)
            #expect(answer.response.endpoint == server.address)
            let again = try await client.response(to: Kv_Store.Methods.get, Kv_GetRequest())
            #expect(again.message == answer.message)
        }
    }

    // MARK: - Limits

    /// Many keys, which take more memory than a limit of a few bytes allows.
    private static let request = Kv_GetRequest.with { request in
        request.keys = (0..<100).map { "a key that does not lie within the string itself, \($0)" }
    }
    private static let narrow = MessageLimits(memory: 100, memoryPerByte: 0)

    @Test func aServerRefusesAMessageBeyondItsLimits() async throws {
        var router = Router()
        router.messageLimits = Self.narrow
        router.handle(Kv_Store.Methods.get) { _, _ in Kv_GetReply() }
        router.group { group in
            group.handleSynchronously(Kv_Store.Methods.delete) { _, _ in Kv_DeleteReply() }
        }
        router.messageLimits = .standard
        router.handleServerStream(Kv_Store.Methods.scan) { _, _, _ in }
        try await Pair.with(.standard, router: router, configureClient: { $0.streams = StreamPolicy() }) { client, _ in
            let store = Kv_Store.Client(client)
            let error = await #expect(throws: SocketError.self) { try await store.get(Self.request) }
            #expect(error?.code == .protobufFailed)
            #expect(
                error?.body.map { String(buffer: $0) }?.contains("would take more than 100 bytes") == true,
                "\(String(describing: error))"
            )
            #expect(try await store.get(.with { $0.keys = ["a"] }) == Kv_GetReply())
            let long = Kv_DeleteRequest.with { $0.key = String(repeating: "x", count: 1_000) }
            let grouped = await #expect(throws: SocketError.self) { try await store.delete(long) }
            #expect(grouped?.code == .protobufFailed)
            // Registered after the limits were changed.
            for try await _ in try await store.scan(Self.request) {}
        }
    }

    @Test func aClientRefusesAMessageBeyondItsLimits() async throws {
        let entry = Kv_Entry.with { $0.value = Data(repeating: 1, count: 1_000) }
        var router = Router()
        router.handle(Kv_Store.Methods.get) { request, _ in
            .with { $0.entries = request.keys.isEmpty ? [:] : ["a": entry] }
        }
        router.handleServerStream(Kv_Store.Methods.scan) { _, responses, _ in try await responses.send(entry) }
        try await Pair.with(
            .standard,
            router: router,
            configureClient: { configuration in
                configuration.messageLimits = Self.narrow
                configuration.streams = StreamPolicy()
            }
        ) { client, server in
            let store = Kv_Store.Client(client)
            let some = Kv_GetRequest.with { $0.keys = ["a"] }
            #expect(try await store.get(Kv_GetRequest()) == Kv_GetReply())
            let error = await #expect(throws: SocketError.self) { try await store.get(some) }
            #expect(error?.code == .protobufFailed)
            #expect((error?.underlying as? MessageError)?.reason == .needsTooMuchMemory(limit: 100))
            let streamed = await #expect(throws: SocketError.self) { for try await _ in try await store.scan(some) {} }
            #expect(streamed?.code == .protobufFailed)
            let pushes = store.pushes(Kv_Changed.self)
            _ = try await store.get(Kv_GetRequest())
            try await server.push(Kv_Changed.with { $0.stored = entry })
            try await server.push(Kv_Changed.with { $0.deleted = "a" })
            #expect(try await first(of: pushes, "the short push") == .with { $0.deleted = "a" })
            try await eventually("it was counted") { client.statistics.malformedPushes == 1 }
        }
    }
}
