// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketServer
import NIOCore
import TestSupport
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The store of values of `Protos/examples/key_value.proto`.
private actor Store: Kv_Store.ServiceProtocol {
    private var entries: [String: Kv_Entry] = [:]

    func get(_ request: Kv_GetRequest, context: ServerContext) async throws -> Kv_GetReply {
        var reply = Kv_GetReply()
        reply.entries = self.entries.filter { request.keys.contains($0.key) }
        return reply
    }

    func put(_ request: Kv_Entry, context: ServerContext) async throws -> Kv_PutReply {
        guard !request.key.isEmpty else { throw StatusError(.noPermission) }
        var reply = Kv_PutReply()
        let version = self.entries[request.key]?.version ?? 0
        reply.version = version
        guard !request.hasVersion || request.version == version else {
            reply.outcome = .conflict
            return reply
        }
        reply.outcome = .stored
        reply.version += 1
        self.entries[request.key] = request
        self.entries[request.key]?.version = reply.version
        return reply
    }

    func delete(_ request: Kv_DeleteRequest, context: ServerContext) async throws -> Kv_DeleteReply {
        var reply = Kv_DeleteReply()
        reply.existed = self.entries.removeValue(forKey: request.key) != nil
        return reply
    }

    func scan(
        _ request: Kv_GetRequest,
        to responses: MessageWriter<Kv_Entry>,
        context: ServerContext
    ) async throws {
        for key in request.keys {
            for entry in self.entries.values.sorted(by: { $0.key < $1.key }) where entry.key.hasPrefix(key) {
                try await responses.send(entry)
            }
        }
    }
}

/// Generated clients and services over real connections.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TypedCallTests {
    private func withStore(
        change: (inout Router) -> Void = { _ in },
        _ body: (Kv_Store.Client, SocketServer) async throws -> Void
    ) async throws {
        var router = Router()
        router.register(Store())
        change(&router)
        try await Pair.with(.standard, router: router) { client, server in
            try await body(Kv_Store.Client(client), server)
        }
    }

    private func entry(_ key: String, _ value: String) -> Kv_Entry {
        var entry = Kv_Entry()
        entry.key = key
        entry.value = Data(value.utf8)
        return entry
    }

    @Test func callsAreAnsweredWithMessages() async throws {
        try await self.withStore { store, _ in
            let first = try await store.put(self.entry("colour", "red"))
            #expect(first.outcome == .stored)
            #expect(first.version == 1)
            var conflicting = self.entry("colour", "green")
            conflicting.version = 7
            let second = try await store.put(conflicting)
            #expect(second.outcome == .conflict)

            var request = Kv_GetRequest()
            request.keys = ["colour", "shape"]
            let found = try await store.get(request, options: .init(timeout: .seconds(5)))
            #expect(found.entries.keys.sorted() == ["colour"])
            #expect(found.entries["colour"]?.value == Data("red".utf8))

            var deletion = Kv_DeleteRequest()
            deletion.key = "colour"
            let reply = try await store.delete(deletion)
            #expect(reply.existed)
            let again = try await store.delete(deletion)
            #expect(!again.existed)
        }
    }

    /// Generated code registers with a group as with a router.
    @Test func aServiceMayBeInAGroupAndItsMethodsHaveLimits() async throws {
        var router = Router()
        router.handle(20_000) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        router.group(AuthenticationMiddleware(), limits: RouteLimits(maximumBodyLength: 100)) { group in
            group.register(Store())
            group.limit(Kv_Store.Methods.get.type, to: RouteLimits(maximumBodyLength: 10))
        }
        try await Pair.with(.standard, router: router) { client, _ in
            let store = Kv_Store.Client(client)
            func code<Value>(_ call: () async throws -> Value) async -> SocketError.Code? {
                await #expect(throws: SocketError.self) { _ = try await call() }?.code
            }
            #expect(await code { try await store.put(self.entry("a", "b")) } == .noPermission)
            _ = try await client.data(for: SocketRequest(type: 20_000))
            #expect(try await store.put(self.entry("a", "b")).outcome == .stored)
            let long = String(repeating: "x", count: 50)
            #expect(try await store.put(self.entry("a", long)).outcome == .stored)
            #expect(await code { try await store.put(self.entry(long, long)) } == .illegalLength)
            var request = Kv_GetRequest()
            request.keys = ["a"]
            #expect(try await store.get(request).entries.count == 1)
            request.keys = [long]
            #expect(await code { try await store.get(request) } == .illegalLength)
        }
    }

    @Test func tasksAreResumedAndCancelledAsOthers() async throws {
        try await self.withStore { store, _ in
            let result: Result<Kv_PutReply, SocketError> = try await withCheckedThrowingContinuation { continuation in
                do {
                    try store.client.messageTask(with: Kv_Store.Methods.put, self.entry("a", "1")) { result in
                        continuation.resume(returning: result)
                    }.resume()
                } catch {
                    continuation.resume(throwing: error)
                }
            }
            #expect(try result.get().outcome == .stored)
        }
    }

    @Test func statusThatAServiceThrowsReachesTheCaller() async throws {
        try await self.withStore { store, _ in
            let error = await #expect(throws: SocketError.self) { try await store.put(self.entry("", "nothing")) }
            #expect(error?.code == .noPermission)
            #expect(error?.delivery == .answered)
        }
    }

    @Test func requestThatIsNoSuchMessageIsRefusedAndTheConnectionStays() async throws {
        try await self.withStore { store, server in
            let malformed = SocketRequest(type: Kv_Store.Methods.put.type, body: [0xFF, 0xFF] as [UInt8])
            let error = await #expect(throws: SocketError.self) { try await store.client.data(for: malformed) }
            #expect(error?.code == .protobufFailed)
            // The client is told what is wrong with the request.
            let reason = error?.body.map { String(buffer: $0) } ?? ""
            #expect(reason.hasPrefix("kv.Entry: the bytes end within a field"), "\(reason)")
            let reply = try await store.put(self.entry("still", "here"))
            #expect(reply.outcome == .stored)
            #expect(server.statistics[.connectionsAccepted] == 1)
        }
    }

    @Test func answerThatIsNoSuchMessageSaysSo() async throws {
        try await self.withStore(change: { router in
            router.handle(Kv_Store.Methods.get.type) { _, _ in ByteBuffer(bytes: [0x0A, 0xFF]) }
        }) { store, _ in
            let error = await #expect(throws: SocketError.self) { try await store.get(Kv_GetRequest()) }
            #expect(error?.code == .protobufFailed)
            #expect(error?.delivery == .answered)
            #expect(error?.serial != nil)
            #expect((error?.underlying as? MessageError)?.reason == .truncated)
            #expect(
                error?.message.hasPrefix("The answer to kv.Store/Get from 127.0.0.1:") == true,
                "\(error?.message ?? "")"
            )
            #expect(
                error?.message.hasSuffix(
                    "of 2 bytes, is no kv.GetReply: kv.GetReply: the bytes end within a field (at byte 1). "
                        + "Do both sides have the same .proto?"
                ) == true,
                "\(error?.message ?? "")"
            )
        }
    }

    @Test func pushesAreMessagesAndMalformedOnesAreCounted() async throws {
        try await self.withStore { store, server in
            let changes = store.pushes(Kv_Changed.self)
            // A call was answered, so the server has registered the connection.
            _ = try await store.put(self.entry("a", "1"))
            var change = Kv_Changed()
            change.deleted = "a"
            #expect(try await server.push(change) == 1)
            #expect(await server.push(type: Kv_Changed.pushType, body: ByteBuffer(bytes: [0xFF])) == 1)
            change.stored = self.entry("b", "2")
            #expect(try await server.push(change) == 1)

            let received = try await withDeadline("two pushes") {
                var iterator = changes.makeAsyncIterator()
                return [await iterator.next()?.change, await iterator.next()?.change]
            }
            #expect(received == [.deleted("a"), .stored(self.entry("b", "2"))])
            try await eventually("it was counted") { store.client.statistics.malformedPushes == 1 }
        }
    }

    @Test func pushesToOneConnectionAndToOneClientAreMessages() async throws {
        try await self.withStore(change: { router in
            router.handle(Kv_Store.Methods.delete) { request, context in
                context.session.authenticate(as: "ann")
                let isTaken = try await context.session.push(Kv_Changed.with { $0.deleted = request.key })
                #expect(isTaken)
                return Kv_DeleteReply()
            }
        }) { store, server in
            let changes = store.pushes(Kv_Changed.self)
            _ = try await store.delete(.with { $0.key = "a" })
            #expect(try await server.push(Kv_Changed.with { $0.deleted = "b" }, to: "ann") == 1)
            #expect(try await server.push(Kv_Changed.with { $0.deleted = "c" }, to: "bob") == 0)
            let received = try await withDeadline("two pushes") {
                var iterator = changes.makeAsyncIterator()
                return [await iterator.next()?.deleted, await iterator.next()?.deleted]
            }
            #expect(received == ["a", "b"])
        }
    }

    @Test func handlerOfPushesIsGivenMessages() async throws {
        try await self.withStore { store, server in
            let heard = Watched<[String]>([])
            store.client.onPush(Kv_Changed.self) { change in
                heard.withLockedValue { $0.append(change.deleted) }
            }
            _ = try await store.put(self.entry("a", "1"))
            var change = Kv_Changed()
            change.deleted = "a"
            try await server.push(change)
            try await heard.wait("the handler was called") { $0 == ["a"] }
        }
    }

    @Test func handlersOnTheEventLoopSpeakMessagesToo() async throws {
        try await self.withStore(change: { router in
            router.handleSynchronously(Kv_Store.Methods.delete) { request, _ in
                var reply = Kv_DeleteReply()
                reply.existed = request.key == "there"
                return reply
            }
        }) { store, _ in
            var deletion = Kv_DeleteRequest()
            deletion.key = "there"
            let reply = try await store.delete(deletion)
            #expect(reply.existed)
        }
    }

    @Test func mocksAnswerAndPush() async throws {
        var mock = Kv_Store.MockClient()
        mock.onDelete = { request in
            if request.key == "broken" { throw SocketError(.timeout, message: "no answer") }
            var reply = Kv_DeleteReply()
            reply.existed = request.key == "there"
            return reply
        }
        let store: any Kv_Store.ClientProtocol = mock
        var deletion = Kv_DeleteRequest()
        deletion.key = "there"
        let reply = try await store.delete(deletion)
        #expect(reply.existed)
        deletion.key = "broken"
        let error = await #expect(throws: SocketError.self) { try await store.delete(deletion) }
        #expect(error?.code == .timeout)
        // An unset function of the mock throws an error that names it.
        let unset = await #expect(throws: SocketError.self) { try await store.get(Kv_GetRequest()) }
        #expect(unset?.message == "Kv_Store.MockClient was not told what to answer: set its onGet.")

        let changes = store.pushes(Kv_Changed.self)
        var change = Kv_Changed()
        change.deleted = "a"
        mock.pushSource.send(change)
        let first = try await withDeadline("a push") {
            var iterator = changes.makeAsyncIterator()
            return await iterator.next()
        }
        #expect(first == change)
    }

    /// The code under test tells a cancelled call from one that has failed, as it does with a client.
    @Test func cancelledMockAnswersAsAClientDoes() async throws {
        var mock = Kv_Store.MockClient()
        let isCalled = Watched(false)
        mock.onGet = { _ in
            isCalled.withLockedValue { $0 = true }
            try await untilCancelled()
            return Kv_GetReply()
        }
        let store: any Kv_Store.ClientProtocol = mock
        let call = Task { try await store.get(Kv_GetRequest()) }
        try await isCalled.wait("the call") { $0 }
        call.cancel()
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: call, "its end") }
        #expect(error?.code == .cancelled)
        #expect(error?.delivery == .sentUnknown)
        // Any other error is the handler's own.
        struct Unexpected: Error {}
        mock.onGet = { _ in throw Unexpected() }
        let failing: any Kv_Store.ClientProtocol = mock
        let other = await #expect(throws: SocketError.self) { try await failing.get(Kv_GetRequest()) }
        #expect(other?.code == .unknown)
        #expect(other?.delivery == .answered)
    }

    /// In real time, in which a mock's timeouts are by default.
    @Test func mockTimesOut() async throws {
        var mock = Kv_Store.MockClient()
        mock.onGet = { _ in
            try await untilCancelled()
            return Kv_GetReply()
        }
        let store: any Kv_Store.ClientProtocol = mock
        let error = await #expect(throws: SocketError.self) {
            try await store.get(Kv_GetRequest(), options: .init(timeout: .milliseconds(1)))
        }
        #expect(error?.code == .timeout)
    }

    @Test func methodsSayWhatTheyAre() {
        #expect(Kv_Store.Methods.scan.kind == .serverStream)
        #expect(Kv_Store.Methods.get.kind == .unary)
        #expect(Kv_Store.Methods.get.type == 201)
        #expect(Files_Transfer.Methods.sendAll.kind == .clientStream)
        #expect(Kv_Store.serviceName == "kv.Store")
    }
}
