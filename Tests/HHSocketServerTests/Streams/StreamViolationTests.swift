// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Violations of a client on a stream, which end the stream but not the connection.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamViolationTests {
    /// A violation on the stream 50.
    enum Mistake: CaseIterable {
        case beyondWindow, itemAfterEnd, endWithinItem, unexpectedItem, metadataOnItem, compressedItem
        case otherPiece, request

        /// Opens the stream, and commits the violation.
        func make(on client: StreamClient) async throws {
            try await client.open(self == .unexpectedItem ? StreamCall.flood : StreamCall.read)
            switch self {
            case .beyondWindow:
                // The window is 1,000, and its frame costs 16 as well.
                await client.item(50, length: 985)
            case .itemAfterEnd:
                await client.end()
                await client.item(50, "late")
            case .endWithinItem:
                await client.piece(FrameType.item, length: 1)
                await client.end()
            case .unexpectedItem:
                await client.item(50, "unexpected")
            case .metadataOnItem:
                let sealed = try Envelope.seal(
                    type: FrameType.item,
                    body: ByteBuffer(string: "x"),
                    metadata: WireMetadata(["a": "b"]),
                    compression: nil
                )
                await client.send(sealed.type, 50, sealed.payload)
            case .compressedItem:
                await client.send(FrameType.item | FrameType.compressionFlag, 50, ByteBuffer(string: "not agreed on"))
            case .otherPiece:
                await client.piece(FrameType.item, length: 1)
                await client.send(FrameType.item | FrameType.compressionFlag, 50, ByteBuffer(string: "x"))
            case .request:
                await client.send(StreamCall.plain, 50)
            }
        }
    }

    /// A reader that returned at the end of its items would answer before the violation arrives.
    private static func makeRouter(_ notes: StreamNotes, on executor: HandlerExecutor) -> Router {
        var router = makeStreamRouter(notes, on: executor)
        router.stream(StreamCall.read, kind: .bidirectional, on: executor) { stream, _ in
            do throws(StatusError) {
                for try await _ in stream.items {}
            } catch {
                notes.note("failed \(error.status.rawValue)")
                throw error
            }
            try await untilCancelled()
            return ByteBuffer()
        }
        return router
    }

    @Test(arguments: Mistake.allCases, [HandlerExecutor.global, .connection])
    func aMistakeIsAnswered303AndTheConnectionContinues(_ mistake: Mistake, _ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        let configuration = SocketServer.Configuration.streaming { $0.streamWindow = 1_000 }
        try await withServer(configuration, Self.makeRouter(notes, on: executor)) { server in
            // The server sends no item: it has no credit for one.
            let client = try await StreamClient(server, window: 1)
            try await mistake.make(on: client)
            try await client.expectEnd(50, .illegalFormat)
            // Items that were in transit when the client was notified are ignored.
            await client.item(50, "late")
            await client.end()
            try await client.expectService()
            switch mistake {
            case .itemAfterEnd: break
            case .unexpectedItem: try await notes.expect("stopped 50")
            default: try await notes.expect("failed 303")
            }
            try await server.becomesIdle()
            #expect(server.statistics[.illegalRequests] == 1)
            // The serial is free again.
            try await client.open(StreamCall.gather)
            await client.item(50, "x")
            await client.end()
            try await client.expectEnd(50, .ok, "x;")
        }
    }

    @Test func anOpeningWithABodyIsInvalidWhereTheClientStreams() async throws {
        try await withStreams { client, server in
            for type in [StreamCall.gather, StreamCall.echo] {
                try await client.open(type, 50, "body")
                try await client.expectEnd(50, .illegalFormat)
                try await client.open(type, 50, "body", WireMetadata(["a": "b"]))
                try await client.expectEnd(50, .illegalFormat)
            }
            try await client.expectService()
            #expect(server.statistics[.illegalRequests] == 4)
            #expect(server.statistics[.streamsOpened] == 0)
            try await server.becomesIdle()
        }
    }

    @Test func anIdempotencyKeyOnAStreamIsAnswered303() async throws {
        try await withStreams(features: ["metadata", "streams", "idempotency"]) { client, server in
            #expect(client.reply.features.contains("idempotency"))
            for type in [StreamCall.gather, StreamCall.count] {
                try await client.open(type, 50, "", WireMetadata(key: "key"))
                try await client.expectEnd(50, .illegalFormat)
            }
            try await client.expectService()
            #expect(server.statistics[.streamsOpened] == 0)
            try await server.becomesIdle()
        }
    }

    @Test func moreThanTheConnectionsWindowClosesIt() async throws {
        let notes = StreamNotes()
        let configuration = SocketServer.Configuration.streaming { $0.connectionWindow = 1_000 }
        try await withStreams(configuration, notes) { client, server in
            try await client.open(StreamCall.hang, 50)
            try await client.open(StreamCall.hang, 51)
            try await notes.expect("hangs 50")
            try await notes.expect("hangs 51")
            await client.item(50, length: 900)
            await client.item(51, length: 900)
            try await client.client.ended()
            try await notes.expect("cancelled 50")
            try await notes.expect("cancelled 51")
            try await eventually("the connection is gone") { server.connectionCount == 0 }
            try await server.becomesIdle()
            #expect(server.statistics[.protocolErrors] == 1)
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func aDamagedItemIsAnswered302(_ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes, on: executor) { client, server in
            try await client.open(StreamCall.read)
            await client.item(50, "sound")
            try await notes.expect("item sound")
            await client.client.perform(.request(FrameType.item, serial: 50, "damaged").corrupted())
            try await client.expectEnd(50, .lostPacket)
            try await notes.expect("failed 50 302")
            // A damaged frame of no stream has no effect.
            await client.client.perform(.request(FrameType.item, serial: 50, "damaged").corrupted())
            try await client.expectService()
            try await server.becomesIdle()
            #expect(server.statistics[.badChecksums] == 2)
            #expect(!notes.lines.current.contains("item damaged"))
        }
    }

    @Test func moreThanMayBeHeldIsAnswered503() async throws {
        let notes = StreamNotes()
        let configuration = SocketServer.Configuration.streaming { $0.maximumHeldBytes = 10_000 }
        try await withStreams(configuration, notes) { client, server in
            try await client.open(StreamCall.hang)
            try await notes.expect("hangs 50")
            await client.item(50, length: 6_000)
            await client.item(50, length: 6_000)
            try await client.expectEnd(50, .overloaded)
            try await client.expectService()
            try await server.becomesIdle()
            #expect(server.statistics[.overloadsOfMemory] == 1)
        }
    }

    /// The handler has returned, and no request is in flight.
    @Test func aRequestOnAStreamWhoseAnswerWaitsIsAMistakeToo() async throws {
        let (first, second) = (Gate(), Gate())
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .serverStreaming, on: .connection) { stream, _ in
            try await (stream.request.serial == 50 ? first : second).wait()
            try await stream.send(ByteBuffer(repeating: 120, count: 80))
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server, connectionWindow: 100)
            // The type that was looked up last is the call's.
            try await client.expectService()
            try await client.open(StreamCall.read, 50)
            try await client.open(StreamCall.read, 51)
            try await eventually("both handlers wait") { first.waitingCount == 1 && second.waitingCount == 1 }
            try await client.expectService()
            first.open()
            #expect(try await client.answer().payload.readableBytes == 80)
            try await client.expectEnd(50)
            // There is no more credit for its item.
            second.open()
            try await eventually("both handlers have returned") { server.requestsInFlight == 0 }
            try await client.expectService()
            await client.send(StreamCall.plain, 51)
            try await client.expectEnd(51, .illegalFormat)
            try await client.expectService(51)
            try await server.becomesIdle()
        }
    }
}
