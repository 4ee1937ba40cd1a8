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

/// Methods whose handlers run on the event loop, where a short answer is encoded into the frame without a buffer.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SynchronousMethodTests {
    private struct Refused: Error {}

    /// Answers with a value of as many bytes as the second key says; the first one says what else is done.
    private static func answer(
        _ request: Kv_GetRequest,
        _ context: ServerContext,
        keeping kept: NIOLockedValueBox<ServerContext?>
    ) throws -> Kv_GetReply {
        switch request.keys.first {
        case "say": context.answerMetadata = ["said": "this"]
        case "keep": kept.withLockedValue { $0 = context }
        case "say late": kept.withLockedValue { $0?.answerMetadata = ["said": "late"] }
        case "refuse": throw StatusError(.noPermission)
        case "fail": throw Refused()
        default: break
        }
        let length = request.keys.last.flatMap { Int($0) } ?? 0
        return .with { $0.entries["a"] = .with { $0.value = Data(repeating: 7, count: length) } }
    }

    private func withMethod(
        mapsErrors: Bool = false,
        hello: HelloPolicy? = nil,
        configureServer: (inout SocketServer.Configuration) -> Void = { _ in },
        _ body: (SocketClient, SocketServer) async throws -> Void
    ) async throws {
        let kept = NIOLockedValueBox<ServerContext?>(nil)
        var router = Router()
        router.handleSynchronously(Kv_Store.Methods.get) { try Self.answer($0, $1, keeping: kept) }
        if mapsErrors {
            router.mapErrors { $0 is Refused ? StatusError(.database) : nil }
        }
        try await Pair.with(
            .standard,
            router: router,
            configureServer: configureServer,
            configureClient: { if let hello { $0.hello = hello } },
            body
        )
    }

    private func length(of response: MessageResponse<Kv_GetReply>) -> Int? {
        response.message.entries["a"]?.value.count
    }

    private func call(
        _ client: SocketClient,
        _ keys: String...
    ) async throws(SocketError) -> MessageResponse<Kv_GetReply> {
        try await client.response(to: Kv_Store.Methods.get, .with { $0.keys = keys })
    }

    /// The lengths are on both sides of those up to which a message is encoded on the stack, and a body is copied.
    @Test(arguments: [nil, HelloPolicy()])
    func answersOfAnyLengthArriveWhole(hello: HelloPolicy?) async throws {
        try await self.withMethod(hello: hello) { client, server in
            for length in [0, 1, 100, 1_000, 1_023, 1_024, 1_025, 100, 5_000, 100_000, 3, 100_000, 3, 3] {
                #expect(self.length(of: try await self.call(client, "\(length)")) == length)
            }
            try await withThrowingTaskGroup(of: (Int, Int?).self) { group in
                for length in 0..<300 {
                    group.addTask { (length, self.length(of: try await self.call(client, "\(length * 9)"))) }
                }
                for try await (length, answered) in group { #expect(answered == length * 9) }
            }
            #expect(server.statistics[.requests] == 314)
            #expect(server.statistics[.handlerErrors] == 0)
        }
    }

    @Test func anAnswerHasNoMetadataOfTheOneBeforeIt() async throws {
        try await self.withMethod(hello: HelloPolicy()) { client, _ in
            for key in ["first", "second", "say", "third", "keep", "say late", "fourth", "say", "fifth"] {
                let answer = try await self.call(client, key, "20")
                #expect(self.length(of: answer) == 20)
                #expect(answer.response.metadata == (key == "say" ? ["said": "this"] : [:]), "\(key)")
            }
        }
    }

    @Test(arguments: [false, true])
    func errorsAreAnsweredOnceAndTheNextCallSucceeds(mapsErrors: Bool) async throws {
        try await self.withMethod(mapsErrors: mapsErrors) { client, server in
            for (key, code) in [
                ("refuse", .noPermission), ("fail", mapsErrors ? .database : .unknown),
            ] as [(String, SocketError.Code)] {
                let error = await #expect(throws: SocketError.self) { try await self.call(client, key) }
                #expect(error?.code == code)
                let next = try await self.call(client, "30")
                #expect(self.length(of: next) == 30)
            }
            #expect(server.statistics[.handlerErrors] == (mapsErrors ? 0 : 1))
        }
    }

    @Test func answersLongerThanTheLimitAreRefused() async throws {
        try await self.withMethod(configureServer: { $0.limits.maximumAnswerLength = 500 }) { client, server in
            let error = await #expect(throws: SocketError.self) { try await self.call(client, "600") }
            #expect(error?.code == .illegalLength)
            let next = try await self.call(client, "400")
            #expect(self.length(of: next) == 400)
            #expect(server.statistics[.handlerErrors] == 1)
        }
    }

    @Test func aMessageThatCannotBeEncodedIsAnsweredAsAnErrorOfItsHandler() async throws {
        let method = MethodDescriptor<Kv_GetRequest, Google_Protobuf_Value>("kv.Nest/Get", type: 2_999, kind: .unary)
        var router = Router()
        router.handleSynchronously(method) { request, _ in
            var value = Google_Protobuf_Value()
            for _ in 0..<request.keys.count * 60 {
                var list = Google_Protobuf_ListValue()
                list.values = [value]
                value.listValue = list
            }
            return value
        }
        try await Pair.with(.standard, router: router) { client, server in
            for _ in 0..<2 {
                let error = await #expect(throws: SocketError.self) {
                    try await client.call(method, .with { $0.keys = ["deep"] })
                }
                #expect(error?.code == .unknown)
                let shallow = try await client.call(method, Kv_GetRequest())
                #expect(shallow == Google_Protobuf_Value())
            }
            #expect(server.statistics[.handlerErrors] == 2)
        }
    }
}
