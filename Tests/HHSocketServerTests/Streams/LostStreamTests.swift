// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Handlers of streams that are ended from outside.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LostStreamTests {
    /// The ways in which a client ends its connection.
    enum Way: CaseIterable {
        case cancel, reset, close, halfClose
    }

    @Test(arguments: Way.allCases, [HandlerExecutor.global, .connection])
    func readersAreNotifiedByAnErrorAndSendersToo(_ way: Way, _ executor: HandlerExecutor) async throws {
        let notes = StreamNotes()
        try await withStreams(.init(), notes, window: 17, on: executor) { client, server in
            try await client.open(StreamCall.read, 50)
            try await client.open(StreamCall.hang, 51)
            try await client.open(StreamCall.flood, 52, "x")
            try await client.expectItem(52, "x")
            await client.item(50, "one")
            try await notes.expect("item one")
            try await notes.expect("hangs 51")
            let act: HostileClient.Act =
                switch way {
                case .cancel: .glued(.cancel(50), .cancel(51), .cancel(52))
                case .reset: .reset
                case .close: .close
                case .halfClose: .halfClose
                }
            await client.client.perform(act)
            try await notes.expect("failed 50 409")
            try await notes.expect("cancelled 51")
            try await notes.expect("stopped 52")
            try await server.becomesIdle()
            #expect(!notes.lines.current.contains("read 50"))
            if way == .cancel { try await client.expectService() }
        }
    }

    @Test(arguments: [HandlerExecutor.global, .connection])
    func theEndOfAStreamIsNoFailureOfItsHandler(_ executor: HandlerExecutor) async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        try await withStreams(configuration, window: 17, on: executor) { client, server in
            for _ in 0..<20 {
                let lost = try await StreamClient(server, window: 17)
                // Its handler is notified by the error of `send`, which it rethrows.
                try await lost.open(StreamCall.count, 50, "1000")
                try await lost.expectItem(50, "0")
                await lost.client.perform(.reset)
            }
            try await server.becomesIdle()
            // A stream that fails, whose line follows theirs.
            try await client.open(StreamCall.fail, 50)
            await client.item(50, "error")
            try await eventually("a line") { log.entries.contains { $0.level == .error } }
            #expect(log.entries.count { $0.level == .error } == 1)
        }
    }

    @Test func bodyOfAStatusThatEndsAServersStreamIsLogged() async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        try await withStreams(configuration) { client, _ in
            try await client.open(StreamCall.fail, 50)
            await client.item(50, "status")
            #expect(try await client.answer().status == .noPermission)
            let message: Logger.Message = "the body of a stream's end was dropped"
            try await eventually("a line") { log.entries.contains { $0.message == message && $0.level == .warning } }
        }
    }

    @Test func itemsThatAHandlerHasNotTakenAreDroppedWithItsStream() async throws {
        let gate = Gate()
        let notes = StreamNotes()
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .clientStreaming) { stream, _ in
            var iterator = stream.items.makeAsyncIterator()
            let first = try await iterator.next().map { String(buffer: $0) } ?? "none"
            notes.note("first \(first)")
            try? await gate.wait()
            do throws(StatusError) {
                _ = try await iterator.next()
            } catch {
                notes.note("failed \(error.status.rawValue)")
            }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server)
            try await client.open(StreamCall.read)
            await client.client.perform(
                .request(FrameType.item, serial: 50, "a").then(.request(FrameType.item, serial: 50, "b"))
            )
            try await notes.expect("first a")
            await client.client.perform(.cancel(50))
            try await client.expectService()
            gate.open()
            try await notes.expect("failed 409")
            try await server.becomesIdle()
        }
    }

    @Test func theBodyOfAnErrorIsSentWhereTheServerDoesNotStream() async throws {
        try await withStreams { client, server in
            try await client.open(StreamCall.refuse)
            await client.item(50, "x")
            await client.end()
            try await client.expectEnd(50, .noPermission, "no")
            // If the server streams, the status has no body.
            try await client.open(StreamCall.fail, 51)
            await client.item(51, "status")
            let end = try await client.answer()
            let envelope = try Envelope.open(end, agreedFlags: FrameType.metadataFlag, maximumBodyLength: 1_000)
            #expect((end.serial, end.status) == (51, .noPermission))
            #expect(envelope.frame.payload.readableBytes == 0)
            try await server.becomesIdle()
        }
    }

    @Test func aSenderWhoseTaskIsCancelledDoesNotSend() async throws {
        let notes = StreamNotes()
        var router = makeStreamRouter()
        router.stream(StreamCall.read, kind: .serverStreaming) { stream, _ in
            let sender = Task {
                try await stream.send(ByteBuffer(string: "0"))
                notes.note("sent 0")
                do {
                    // There is no credit for this item.
                    try await stream.send(ByteBuffer(repeating: 120, count: 1_000))
                } catch is CancellationError {
                    notes.note("cancelled")
                }
            }
            try await notes.gate.wait()
            sender.cancel()
            try await sender.value
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await StreamClient(server, window: 17)
            try await client.open(StreamCall.read)
            try await client.expectItem(50, "0")
            try await notes.expect("sent 0")
            notes.gate.open()
            try await notes.expect("cancelled")
            await client.credit(50, 1 << 20)
            // The item arrives only if the connection had it before its sender was cancelled.
            var end = try await client.answer()
            if end.status == .partial { end = try await client.answer() }
            #expect((end.serial, end.status) == (50, .ok))
            try await server.becomesIdle()
        }
    }
}
