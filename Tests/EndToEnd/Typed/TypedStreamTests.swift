// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketServer
import SwiftProtobufSamples
import TestSupport
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

private typealias Everything = Every_Thing_Everything
private typealias Scalars = Every_Thing_Scalars
private typealias News = Every_Thing_News

/// Has one method of each shape.
private struct Service: Every_Thing_Everything.ServiceProtocol {
    func ask(_ request: Scalars, context: ServerContext) async throws -> Every_Thing_Optionals {
        Every_Thing_Optionals()
    }

    func ping(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Google_Protobuf_Empty {
        request
    }

    func inner(
        _ request: Every_Thing_Outer.Middle.Inner,
        context: ServerContext
    ) async throws -> News.Flash {
        News.Flash()
    }

    func old(_ request: Every_Thing_Nothing, context: ServerContext) async throws -> Every_Thing_Nothing { request }

    func watch(_ request: Scalars, to responses: MessageWriter<News>, context: ServerContext) async throws {
        for number in 0..<request.anInt32 { try await responses.send(news("\(request.aString) \(number)")) }
        guard request.aString != "broken" else { throw StatusError(.database) }
        context.answerMetadata = ["sent": "\(request.anInt32)"]
    }

    func upload(_ requests: RequestMessages<Scalars>, context: ServerContext) async throws -> News {
        var sum: Int32 = 0
        for try await request in requests {
            guard request.anInt32 >= 0 else { throw StatusError(.illegalFormat) }
            sum += request.anInt32
        }
        return news("\(sum)")
    }

    func talk(
        _ requests: RequestMessages<Scalars>,
        to responses: MessageWriter<News>,
        context: ServerContext
    ) async throws {
        for try await request in requests { try await responses.send(news("\(request.anInt32)")) }
    }
}

private func news(_ text: String) -> News {
    var news = News()
    news.text = text
    return news
}

private func scalars(_ number: Int32, _ text: String = "") -> Scalars {
    var scalars = Scalars()
    scalars.anInt32 = number
    scalars.aString = text
    return scalars
}

/// Generated methods of each shape, over real connections and with mocks.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TypedStreamTests {
    private struct Broken: Error {}

    private func withService(_ body: (Everything.Client) async throws -> Void) async throws {
        var router = Router()
        router.register(Service())
        try await Pair.with(.standard, router: router, configureClient: { $0.streams = StreamPolicy() }) { client, _ in
            try await body(Everything.Client(client))
        }
    }

    private func texts(_ stream: MessageStream<Scalars, News>) async throws -> [String] {
        var texts: [String] = []
        for try await news in stream { texts.append(news.text) }
        return texts
    }

    @Test func aServersStreamIsASequence() async throws {
        try await self.withService { service in
            let stream = try await service.watch(scalars(1_000, "n"))
            let texts = try await withDeadline("the stream") { try await self.texts(stream) }
            #expect(texts == (0..<1_000).map { "n \($0)" })
            #expect(try await stream.response.metadata == ["sent": "1000"])
        }
    }

    @Test func sentItemsAreDeliveredBeforeTheError() async throws {
        try await self.withService { service in
            let stream = try await service.watch(scalars(3, "broken"), options: .init(timeout: .seconds(60)))
            var count = 0
            let error = await #expect(throws: SocketError.self) {
                for try await _ in stream { count += 1 }
            }
            #expect(count == 3)
            #expect(error?.code == .database)
        }
    }

    @Test func aClientsStreamHasOneAnswer() async throws {
        try await self.withService { service in
            let stream = try await service.upload()
            for number in 1...100 { try await stream.send(scalars(Int32(number))) }
            #expect(try await stream.answer() == news("5050"))

            let sum = try await service.upload { stream in
                for number in 1...3 { try await stream.send(scalars(Int32(number))) }
            }
            #expect(sum == news("6"))
        }
    }

    @Test func aClosureThatThrowsCancelsItsStream() async throws {
        try await self.withService { service in
            await #expect(throws: Broken.self) {
                try await service.upload { stream in
                    try await stream.send(scalars(1))
                    throw Broken()
                }
            }
            let refused = await #expect(throws: SocketError.self) {
                try await service.upload(options: .init(timeout: .seconds(60))) { try await $0.send(scalars(-1)) }
            }
            #expect(refused?.code == .illegalFormat)
        }
    }

    @Test func bothSidesTalk() async throws {
        try await self.withService { service in
            let stream = try await service.talk()
            var iterator = stream.makeAsyncIterator()
            for number in 1...100 {
                try await stream.send(scalars(Int32(number)))
                #expect(try await iterator.next()?.text == "\(number)")
            }
            stream.finish()
            #expect(try await iterator.next() == nil)
        }
    }

    @Test func messagesOfSwiftProtobufAreStreamedToo() async throws {
        struct Transfer: GeneratedSamples.Files_Transfer.ServiceProtocol {
            typealias Upload = GeneratedSamples.Files_Upload
            typealias Piece = GeneratedSamples.Files_Piece

            func begin(_ request: GeneratedSamples.Files_File, context: ServerContext) async throws -> Upload {
                Upload()
            }
            func send(_ request: Piece, context: ServerContext) async throws -> Upload { Upload() }
            func fetch(_ request: GeneratedSamples.Files_PieceRequest, context: ServerContext) async throws -> Piece {
                Piece()
            }
            func sendAll(_ requests: RequestMessages<Piece>, context: ServerContext) async throws -> Upload {
                var upload = Upload()
                for try await piece in requests { upload.offset += UInt64(piece.bytes.count) }
                return upload
            }
        }
        var router = Router()
        router.register(Transfer())
        try await Pair.with(.standard, router: router, configureClient: { $0.streams = StreamPolicy() }) { client, _ in
            let transfer = SwiftProtobufSamples.Files_Transfer.Client(client)
            let upload = try await transfer.sendAll { stream in
                for length in [100_000, 0, 7] {
                    var piece = SwiftProtobufSamples.Files_Piece()
                    piece.bytes = Data(repeating: 1, count: length)
                    try await stream.send(piece)
                }
            }
            #expect(upload.offset == 100_007)
        }
    }

    @Test func withoutStreamsNothingIsSent() async throws {
        var router = Router()
        router.register(Service())
        try await Pair.with(.standard, router: router) { client, _ in
            let error = await #expect(throws: SocketError.self) { try await Everything.Client(client).talk() }
            #expect(error?.code == .featureNotAgreed)
        }
    }

    @Test func mocksStream() async throws {
        var mock = Everything.MockClient()
        mock.onWatch = { request in
            let (stream, far) = MessageStream<Scalars, News>.mock()
            for number in 0..<request.anInt32 { far.respond(news("\(number)")) }
            far.finish()
            return stream
        }
        mock.onUpload = {
            let (stream, far) = MessageStream<Scalars, News>.mock()
            Task {
                var sum: Int32 = 0
                for await request in far.requests { sum += request.anInt32 }
                far.answer(news("\(sum)"))
            }
            return stream
        }
        let service: any Everything.ClientProtocol = mock
        #expect(try await self.texts(service.watch(scalars(3))) == ["0", "1", "2"])
        let sum = try await service.upload { stream in
            for number in 1...3 { try await stream.send(scalars(Int32(number))) }
        }
        #expect(sum == news("6"))
        let unset = await #expect(throws: SocketError.self) { try await service.talk() }
        #expect(unset?.message == "Every_Thing_Everything.MockClient was not told what to answer: set its onTalk.")
    }

    /// Properties of a mock and functions of a client may have equal names.
    @Test func namesOfAStreamAreNoOthers() async throws {
        var mock = Every_Thing_Taken.MockClient()
        let (stream, far) = MessageStream<Every_Thing_Nothing, Every_Thing_Nothing>.mock()
        mock.onSend = { stream }
        mock.onOnSend = { throw SocketError(.timeout, message: "no answer") }
        far.answer(Every_Thing_Nothing())
        #expect(try await mock.send { _ in } == Every_Thing_Nothing())
        let error = await #expect(throws: SocketError.self) { try await mock.onSend() }
        #expect(error?.code == .timeout)
    }
}
