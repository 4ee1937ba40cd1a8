// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketTesting
import SwiftProtobufSamples
import TestSupport
import Testing

/// The reactions of a mock server that send messages, with generated clients.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockServerMessageTests {
    @Test func answersAreMessages() async throws {
        let server = try await MockServer()
        server.on(Kv_Store.Methods.put.type, try .answer(Kv_PutReply.with { $0.version = 7 }))
        let failure = Kv_DeleteReply.with { $0.existed = true }
        server.on(Kv_Store.Methods.delete.type, try .answer(failure, status: .database))
        let client = SocketClient.connecting(to: server.endpoint)
        let store = Kv_Store.Client(client)
        #expect(try await store.put(.with { $0.key = "a" }).version == 7)
        let error = await #expect(throws: SocketError.self) { try await store.delete(Kv_DeleteRequest()) }
        #expect(error?.code == .database)
        #expect(try error?.body?.message(as: Kv_DeleteReply.self) == failure)
        await client.close()
        await server.shutdown()
    }

    @Test func itemsAndPushesAreMessages() async throws {
        let server = try await MockServer()
        server.acceptHello(streams: StreamPolicy())
        let entries = try ["a", "b"].map { key in try MockServer.Reaction.item(Kv_Entry.with { $0.key = key }) }
        server.on(
            Kv_Store.Methods.scan.type,
            .glued([try .push(Kv_Changed.with { $0.deleted = "c" })] + entries + [.status(.ok)])
        )
        let client = SocketClient.connecting(to: server.endpoint) { $0.streams = StreamPolicy() }
        let store = Kv_Store.Client(client)
        let changes = store.pushes(Kv_Changed.self)
        var keys: [String] = []
        for try await entry in try await store.scan(Kv_GetRequest()) { keys.append(entry.key) }
        #expect(keys == ["a", "b"])
        #expect(try await first(of: changes, "the push").deleted == "c")
        await client.close()
        await server.shutdown()
    }

    @Test func messagesOfSwiftProtobufAreSentToo() async throws {
        let server = try await MockServer()
        let method = GeneratedSamples.Files_Transfer.Methods.begin
        server.on(method.type, try .answer(SwiftProtobufSamples.Files_Upload.with { $0.offset = 3 }))
        let client = SocketClient.connecting(to: server.endpoint)
        let transfer = GeneratedSamples.Files_Transfer.Client(client)
        #expect(try await transfer.begin(GeneratedSamples.Files_File()).offset == 3)
        await client.close()
        await server.shutdown()
    }

    @Test func messageThatCannotBeWrittenIsAnError() {
        // It lacks its required fields.
        #expect(throws: MessageError.self) { _ = try MockServer.Reaction.answer(Every_Thing2_Required()) }
        #expect(throws: MessageError.self) { _ = try MockServer.Reaction.item(Every_Thing2_Required()) }
    }
}
