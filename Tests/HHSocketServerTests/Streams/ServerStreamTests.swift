import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private enum Call {
    static let count: UInt32 = 200
    static let gather: UInt32 = 201
    static let echo: UInt32 = 202
    static let hang: UInt32 = 203
    static let plain: UInt32 = 204
    static let leave: UInt32 = 205
    static let fail: UInt32 = 206
    static let large: UInt32 = 207
}

private struct Oops: Error {}

/// What happened in handlers.
private struct Notes: Sendable {
    /// Items that a handler was given, sent or was told of the end of.
    let lines = Watched<[String]>([])
    let gate = Gate()

    func note(_ line: String) { self.lines.withLockedValue { $0.append(line) } }

    func expect(_ line: String, fileID: String = #fileID, line number: Int = #line) async throws {
        try await self.lines.wait("\"\(line)\"", fileID: fileID, line: number) { $0.contains(line) }
    }
}

private func makeRouter(_ notes: Notes = Notes(), on executor: HandlerExecutor? = nil) -> Router {
    var router = Router()
    router.stream(Call.count, .serverStreaming, on: executor) { stream, context in
        let count = Int(String(buffer: stream.request.body)) ?? 0
        for number in 0..<count {
            try await stream.send(ByteBuffer(string: "\(number)"))
            notes.note("sent \(number)")
        }
        context.answerMetadata = ["sent": "\(count)"]
        return ByteBuffer(string: "this is not sent")
    }
    router.stream(Call.gather, .clientStreaming, on: executor) { stream, _ in
        var all = ""
        for try await item in stream.items { all += String(buffer: item) + ";" }
        return ByteBuffer(string: all)
    }
    router.stream(Call.echo, .bidirectional, on: executor) { stream, _ in
        for try await item in stream.items { try await stream.send(item) }
        return ByteBuffer()
    }
    router.stream(Call.hang, .bidirectional, on: executor) { stream, _ in
        notes.note("hangs \(stream.request.serial)")
        do {
            try await notes.gate.wait()
        } catch {
            notes.note("cancelled \(stream.request.serial)")
            throw error
        }
        return ByteBuffer()
    }
    router.handleSynchronously(Call.plain) { request, _ in request.body }
    router.stream(Call.leave, .bidirectional, on: executor) { stream, _ in
        for try await item in stream.items {
            try await stream.send(item)
            break
        }
        return ByteBuffer()
    }
    router.stream(Call.fail, .bidirectional, on: executor) { stream, context in
        for try await item in stream.items {
            context.answerMetadata = ["why": "because"]
            switch String(buffer: item) {
            case "status": throw StatusError(.noPermission, body: ByteBuffer(string: "no"))
            case "mapped": throw CancellationError()
            default: throw Oops()
            }
        }
        return ByteBuffer()
    }
    router.handleSynchronously(Call.large) { request, _ in
        ByteBuffer(repeating: 120, count: Int(String(buffer: request.body)) ?? 0)
    }
    return router
}

private func withStreams(
    _ configuration: SocketServer.Configuration = .init(),
    _ notes: Notes = Notes(),
    window: UInt32 = 0,
    connectionWindow: UInt32 = 0,
    on executor: HandlerExecutor? = nil,
    _ body: (StreamClient, SocketServer) async throws -> Void
) async throws {
    try await withServer(configuration, makeRouter(notes, on: executor)) { server in
        let client = try await StreamClient(server, window: window, connectionWindow: connectionWindow)
        try await body(client, server)
    }
}

/// Streams as a client sees them that speaks frames.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerStreamTests {
    // MARK: Hello

    @Test func helloAgreesOnStreamsWhereTheClientAsksForThem() async throws {
        var configuration = SocketServer.Configuration()
        try await withServer(configuration, makeRouter()) { server in
            let client = try await StreamClient(server)
            #expect(client.reply.features == ["metadata", "streams"])
            #expect(
                (client.reply.streamWindow, client.reply.connectionWindow, client.reply.maximumStreams) == (0, 0, 0)
            )
            let plain = try await StreamClient(server, features: ["metadata"])
            #expect(plain.reply.features == ["metadata"])
        }
        configuration.streams = StreamPolicy(streamWindow: 1_000, connectionWindow: 5_000, maximumStreams: 7)
        try await withServer(configuration, makeRouter()) { server in
            let client = try await StreamClient(server)
            #expect(client.reply.streamWindow == 1_000)
            #expect(client.reply.connectionWindow == 5_000)
            #expect(client.reply.maximumStreams == 7)
        }
    }

    @Test func aServerThatAnswersInOrderOrHasNoPolicyDoesNotAgree() async throws {
        var inOrder = SocketServer.Configuration()
        inOrder.answersInOrder = true
        var without = SocketServer.Configuration()
        without.streams = nil
        for configuration in [inOrder, without] {
            try await withStreams(configuration) { client, server in
                #expect(client.reply.features == ["metadata"])
                try await client.open(Call.echo)
                try await client.expectEnd(50, .illegalFormat)
                #expect(server.statistics.illegalRequests == 1)
            }
        }
    }

    @Test func withoutHelloAStreamIsAnswered303() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(Call.count, serial: 50, "3"))
            #expect(try await client.response().status == .illegalFormat)
            await client.perform(.request(Call.plain, serial: 51, "hi"))
            #expect(try await client.response().status == .ok)
        }
    }

    // MARK: The three kinds

    @Test(arguments: [HandlerExecutor.global, .connection])
    func aServerStreams(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(Call.count, 50, "3")
            for number in 0..<3 { try await client.expectItem(50, "\(number)") }
            let end = try await client.answer()
            let envelope = try Envelope.open(end, agreedFlags: FrameType.metadataFlag, maximumBodyLength: 1_000)
            #expect(end.status == .ok)
            #expect(envelope.frame.type == Call.count)
            #expect(envelope.frame.payload.readableBytes == 0)
            #expect(envelope.metadata?.values == ["sent": "3"])
            try await server.becomesIdle()
            #expect(server.statistics.streamsOpened == 1)
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func aClientStreams(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(Call.gather)
            for item in ["a", "", "c"] { await client.item(50, item) }
            await client.end()
            try await client.expectEnd(50, .ok, "a;;c;")
            try await server.becomesIdle()
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func bothStream(_ executor: HandlerExecutor) async throws {
        try await withStreams(on: executor) { client, server in
            try await client.open(Call.echo)
            for item in ["a", "b", ""] {
                await client.item(50, item)
                try await client.expectItem(50, item)
            }
            await client.end()
            try await client.expectEnd()
            try await server.becomesIdle()
        }
    }

    @Test func aSerialIsFreeOnceItsStreamHasEnded() async throws {
        try await withStreams { client, _ in
            for _ in 0..<3 {
                try await client.open(Call.gather)
                await client.item(50, "x")
                await client.end()
                try await client.expectEnd(50, .ok, "x;")
            }
        }
    }

    // MARK: Windows

    @Test func aSlowClientStopsItsHandlerExactlyAtTheWindow() async throws {
        let notes = Notes()
        // Each item costs 17 bytes: 10 of them fit, and the eleventh waits in `send`.
        try await withStreams(.init(), notes, window: 170) { client, server in
            try await client.open(Call.count, 50, "10000")
            for number in 0..<10 { try await client.expectItem(50, "\(number)") }
            try await notes.expect("sent 9")
            await client.send(Call.plain, 51, ByteBuffer(string: "still there"))
            #expect(try await client.answer().serial == 51)
            #expect(notes.lines.current.last == "sent 9")
            // Room for one more.
            await client.credit(50, 170 + 18)
            try await client.expectItem(50, "10")
            try await notes.expect("sent 10")
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }

    @Test func theConnectionsWindowCountsForAllStreams() async throws {
        try await withStreams(window: 1 << 20, connectionWindow: 340) { client, server in
            try await client.open(Call.count, 50, "10")
            for number in 0..<10 { try await client.expectItem(50, "\(number)") }
            try await client.expectTrailers(50)
            try await client.open(Call.count, 51, "100")
            for number in 0..<10 { try await client.expectItem(51, "\(number)") }
            await client.send(Call.plain, 52, ByteBuffer(string: "still there"))
            #expect(try await client.answer().serial == 52)
            await client.credit(0, 1 << 20)
            for number in 10..<100 { try await client.expectItem(51, "\(number)") }
            try await client.expectTrailers(51)
            try await server.becomesIdle()
        }
    }

    @Test func aClientGetsCreditWhenItsItemsAreTakenAndNotBefore() async throws {
        let gate = Gate()
        var router = Router()
        router.stream(Call.gather, .clientStreaming) { stream, _ in
            var iterator = stream.items.makeAsyncIterator()
            try await gate.wait()
            _ = try await iterator.next()
            _ = try await iterator.next()
            try await untilCancelled()
            return ByteBuffer()
        }
        router.handleSynchronously(Call.plain) { request, _ in request.body }
        var configuration = SocketServer.Configuration()
        configuration.streams = StreamPolicy(streamWindow: 200_000)
        try await withServer(configuration, router) { server in
            let client = try await StreamClient(server)
            try await client.open(Call.gather)
            // All of the window, in whole frames.
            for _ in 0..<4 { await client.item(50, length: 50_000 - 16) }
            await client.send(Call.plain, 51)
            #expect(try await client.next().serial == 51)
            #expect(server.bufferedBytes >= 200_000)
            gate.open()
            // Nothing is still to come of the last grant, so that each item that is taken leads to one.
            var granted: UInt64 = 200_000
            while granted < 300_000 {
                let credit = try await client.next()
                #expect((credit.type, credit.serial) == (FrameType.credit, 50))
                granted = StreamFrames.credit(in: credit.payload) ?? 0
            }
            #expect(granted == 300_000)
            await client.send(Call.plain, 52)
            #expect(try await client.next().serial == 52)
            await client.client.perform(.cancel(50))
            try await server.becomesIdle()
        }
    }

    // MARK: Ends

    @Test func aCancelEndsAStreamAndItsTask() async throws {
        let notes = Notes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(Call.hang, 50)
            try await notes.expect("hangs 50")
            await client.item(50, "unread")
            await client.client.perform(.cancel(50))
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            #expect(server.statistics.cancelledRequests == 1)
            // Nothing is answered.
            await client.send(Call.plain, 51)
            #expect(try await client.answer().serial == 51)
        }
    }

    @Test func theEndOfAConnectionEndsItsStreams() async throws {
        let notes = Notes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(Call.hang, 50)
            try await client.open(Call.gather, 51)
            await client.item(51, "x")
            try await notes.expect("hangs 50")
            await client.client.perform(.reset)
            try await notes.expect("cancelled 50")
            try await eventually("the connection is gone") { server.connectionCount == 0 }
            try await server.becomesIdle()
        }
    }

    @Test func aHandlerThatReturnsBeforeTheItemsHaveEndedEndsTheStream() async throws {
        try await withStreams { client, server in
            try await client.open(Call.leave)
            for item in ["a", "b", "c"] { await client.item(50, item) }
            try await client.expectItem(50, "a")
            try await client.expectEnd()
            // Late ones harm nothing.
            await client.item(50, "d")
            await client.end()
            await client.send(Call.plain, 51)
            #expect(try await client.answer().serial == 51)
            try await server.becomesIdle()
        }
    }

    @Test func lateItemsAreNoFloodOfFrames() async throws {
        var configuration = SocketServer.Configuration()
        configuration.limits.unproductiveFrameRate = RequestRate(perSecond: 0.001, burst: 100)
        try await withStreams(configuration) { client, server in
            try await client.open(Call.leave)
            await client.item(50, "a")
            try await client.expectItem(50, "a")
            try await client.expectEnd()
            for _ in 0..<1_000 { await client.item(50, "late") }
            await client.send(Call.plain, 51)
            #expect(try await client.answer().serial == 51)
            // More than it had credit for.
            for _ in 0..<20 { await client.item(50, length: 60_000) }
            try await client.expectItemsOfNobody(300)
            try await client.client.ended()
            #expect(server.statistics.frameFloods == 1)
        }
    }

    @Test func whatAHandlerThrowsIsTheFinalStatus() async throws {
        var router = makeRouter()
        router.mapErrors { $0 is CancellationError ? StatusError(.database) : nil }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            for (serial, item, status) in [
                (50, "status", Status.noPermission), (51, "error", .unknown),
            ] as [(UInt32, String, Status)] {
                try await client.open(Call.fail, serial)
                await client.item(serial, item)
                let end = try await client.answer()
                let envelope = try Envelope.open(end, agreedFlags: FrameType.metadataFlag, maximumBodyLength: 1_000)
                #expect((end.serial, end.status) == (serial, status))
                #expect(envelope.frame.payload.readableBytes == 0)
                #expect(envelope.metadata?.values == ["why": "because"])
            }
            #expect(server.statistics.handlerErrors == 1)
            try await server.becomesIdle()
        }
    }

    @Test func aDeadlineCoversTheWholeStream() async throws {
        let notes = Notes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(Call.hang, 50, "", WireMetadata(deadline: 200))
            try await client.expectEnd(50, .deadlineExceeded)
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            #expect(server.statistics.deadlinesExceeded == 1)
        }
    }

    @Test func aStreamThatDoesNotMoveEnds() async throws {
        let notes = Notes()
        var configuration = SocketServer.Configuration()
        configuration.streams = StreamPolicy(idleLimit: .milliseconds(200))
        try await withStreams(configuration, notes) { client, server in
            try await client.open(Call.hang, 50)
            try await client.expectEnd(50, .deadlineExceeded)
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
            #expect(server.statistics.idleStreams == 1)
        }
    }

    // MARK: Half-close

    @Test func aHalfClosedClientGetsWhatItHasAskedFor() async throws {
        try await withStreams { client, server in
            try await client.open(Call.count, 50, "3")
            try await client.open(Call.echo, 51)
            await client.item(51, "x")
            await client.end(51)
            await client.client.perform(.halfClose)
            var frames: [Frame] = []
            while let frame = try? await client.answer() { frames.append(frame) }
            #expect(frames.filter { $0.serial == 50 }.map(\.status) == [.partial, .partial, .partial, .ok])
            #expect(frames.filter { $0.serial == 51 }.map(\.status) == [.partial, .ok])
            try await client.client.ended()
            try await server.becomesIdle()
        }
    }

    @Test func aHalfClosedClientsUnfinishedStreamsAreCancelled() async throws {
        let notes = Notes()
        try await withStreams(.init(), notes) { client, server in
            try await client.open(Call.hang, 50)
            try await client.open(Call.gather, 51)
            await client.item(51, "x")
            try await notes.expect("hangs 50")
            await client.client.perform(.halfClose)
            try await client.client.ended()
            try await notes.expect("cancelled 50")
            try await server.becomesIdle()
        }
    }

    @Test func aHalfClosedClientGetsNoMoreThanItsCredit() async throws {
        try await withStreams(window: 170) { client, server in
            try await client.open(Call.count, 50, "100")
            await client.client.perform(.halfClose)
            var frames: [Frame] = []
            while let frame = try? await client.answer() { frames.append(frame) }
            #expect(frames.map { String(buffer: $0.payload) } == (0..<10).map { "\($0)" })
            try await client.client.ended()
            try await server.becomesIdle()
        }
    }

    // MARK: Pieces

    @Test func longAnswersLeaveInPiecesAndShortOnesPassBetween() async throws {
        try await withStreams { client, server in
            await client.client.perform(.stopReading)
            await client.client.perform(
                .request(Call.large, serial: 50, "8000000").then(.request(Call.plain, serial: 51, "short"))
            )
            await client.client.perform(.startReading)
            var (length, frames, place) = (0, 0, 0)
            while length < 8_000_000 {
                let frame = try await client.answer()
                guard frame.serial == 50 else {
                    #expect(String(buffer: frame.payload) == "short")
                    place = frames
                    continue
                }
                frames += 1
                length += frame.payload.readableBytes
                #expect(frame.payload.readableBytes <= 65_536)
                #expect((frame.type & FrameType.continuesFlag != 0) == (length < 8_000_000))
            }
            #expect(frames == 123)
            #expect(place > 0 && place < 100)
            try await server.becomesIdle()
        }
    }

    @Test func requestsComeInPieces() async throws {
        try await withStreams { client, server in
            let pieces = ["one ", "two ", "", "three"]
            for (index, piece) in pieces.enumerated() {
                let isLast = index == pieces.count - 1
                await client.send(
                    isLast ? Call.plain : Call.plain | FrameType.continuesFlag,
                    50,
                    ByteBuffer(string: piece)
                )
                // What is whole passes between.
                await client.send(Call.plain, 51, ByteBuffer(string: "short"))
                let answer = try await client.answer()
                if isLast, answer.serial == 50 {
                    #expect(String(buffer: answer.payload) == "one two three")
                    #expect(try await client.answer().serial == 51)
                } else {
                    #expect(String(buffer: answer.payload) == "short")
                }
            }
            try await server.becomesIdle()
        }
    }

    @Test func pushesLeaveInPiecesAndInOrder() async throws {
        try await withStreams { client, server in
            _ = await server.push(type: 300, body: ByteBuffer(repeating: 1, count: 200_000))
            _ = await server.push(type: 300, body: ByteBuffer(repeating: 2, count: 10))
            var lengths: [Int] = []
            for _ in 0..<5 {
                let frame = try await client.answer()
                #expect(frame.serial == FrameSerial.push)
                lengths.append(frame.payload.readableBytes)
            }
            #expect(lengths == [65_536, 65_536, 65_536, 3_392, 10])
            try await server.becomesIdle()
        }
    }
}

extension StreamClient {
    /// Expects the end of everything, with metadata.
    func expectTrailers(_ serial: UInt32, sourceLocation: SourceLocation = #_sourceLocation) async throws {
        let frame = try await self.answer()
        #expect((frame.serial, frame.status) == (serial, .ok), sourceLocation: sourceLocation)
    }

    /// Sends items for a serial that is no stream.
    func expectItemsOfNobody(_ count: Int) async throws {
        for _ in 0..<count { await self.item(9_999, "nobody's") }
    }
}
