// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Streams of a client, over real TCP, with a server whose frames the test makes.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ClientStreamTests {
    private typealias Peer = StreamPeer

    // MARK: Items

    @Test func itemsGoBothWaysAndTheAnswerEndsThem() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        for text in ["one", "", "three"] { try await stream.send(text) }
        stream.finish()
        stream.finish()
        _ = try await peer.frames(1, FrameType.end, serial)
        #expect(peer.frames(FrameType.item, serial).map { String(buffer: $0.payload) } == ["one", "", "three"])
        #expect(peer.frames(FrameType.end, serial).count == 1)
        try await peer.send(Peer.item(serial, "1"), Peer.item(serial, ""), Peer.item(serial, "3"), Peer.end(serial))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1", "", "3"] && error == nil)
        let response = try await stream.response
        #expect(response.serial == serial && response.body.readableBytes == 0)
        #expect(stream.metrics?.attempts == 1)
        // Items are counted after the read that contains them, for which their reader does not wait.
        try await peer.fence()
        let statistics = peer.client.statistics
        #expect(statistics.openedStreams == 1 && statistics.sentItems == 3 && statistics.receivedItems == 3)
    }

    @Test func aSecondReaderFailsAndTheFirstGetsTheItem() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        let first = Task { try await stream.items.first { _ in true } }
        try await eventually("the first reader") { stream.call.port.inbox.hasWaitingReader }
        let second = Task {
            var reader = stream.items.makeAsyncIterator()
            return try await socketError { () throws(SocketError) in _ = try await reader.next() }
        }
        let error = try await waitForValue(of: second, "the error of the second reader")
        #expect(error.code == .invalidArgument)
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial))
        #expect(try await waitForValue(of: first, "the item") == ByteBuffer(string: "1"))
    }

    @Test func theTrailersAreTheAnswersMetadata() async throws {
        let peer = try await Peer()
        peer.server.on(Peer.type, .answer("sum").withMetadata(["count": "3"]))
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .clientStreaming)
        let response = try await stream.response
        #expect(response.string == "sum" && response.metadata == ["count": "3"])
        #expect(try await stream.allTexts().texts == [])
    }

    @Test func theOneMessageOfAClientIsTheOpening() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open(.serverStreaming, body: "3") { $0.metadata = ["tenant": "acme"] }
        let opening = peer.server.received.last { $0.serial == serial }
        #expect(opening?.metadata == ["tenant": "acme"] && opening?.string == "3")
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial))
        #expect(try await stream.allTexts().texts == ["1"])
        let refused = try await socketError { () throws(SocketError) in try await stream.send("no") }
        #expect(refused.code == .invalidArgument)
        #expect(peer.frames(FrameType.end, serial).isEmpty && peer.frames(FrameType.item, serial).isEmpty)
    }

    @Test func itemsInPiecesAndCompressedOnesAreWhole() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        let text = String(repeating: "compressible ", count: 100)
        let envelope = try Envelope.seal(
            type: Peer.type,
            body: ByteBuffer(string: text),
            compression: CompressionPolicy(minimumLength: 0)
        )
        let compressed = Frame(type: envelope.type, serial: serial, status: .partial, payload: envelope.payload)
        try await peer.send(
            Peer.item(serial, "a", flags: FrameType.continuesFlag),
            Peer.item(serial, "b", flags: FrameType.continuesFlag),
            Peer.item(serial, "c"),
            compressed,
            Peer.end(serial)
        )
        #expect(try await stream.allTexts().texts == ["abc", text])
    }

    @Test func itemsAreCompressedWhereThatIsAgreedOn() async throws {
        let peer = try await Peer { $0.compression = CompressionPolicy(minimumLength: 100) }
        let (stream, serial) = try await peer.open()
        let text = String(repeating: "compressible ", count: 100)
        // The first item may have waited before the agreement was known.
        try await stream.send("short")
        try await stream.send(text)
        let items = try await peer.server.receivedItems(2, of: Peer.type, serial: serial)
        #expect(items.map(\.isCompressed) == [false, true])
        #expect(items.map(\.string) == ["short", text])
    }

    @Test func anItemThatIsTooLongIsRefusedAndTheStreamContinues() async throws {
        let peer = try await Peer { $0.socket.maximumPayloadLength = 1_000 }
        let (stream, serial) = try await peer.open()
        let error = try await socketError { () throws(SocketError) in
            try await stream.send(String(repeating: "x", count: 1_001))
        }
        #expect(error.code == .frameTooLarge)
        try await stream.send("short")
        #expect(try await peer.frames(1, FrameType.item, serial)[0].payload == ByteBuffer(string: "short"))
    }

    // MARK: Backpressure

    @Test func aSenderStopsAtTheStreamsWindow() async throws {
        // Ten items of 84 bytes, with 16 each.
        let peer = try await Peer(windows: StreamWindows(stream: 1_000))
        let (stream, serial) = try await peer.open()
        let returned = Watched(0)
        let sender = Task {
            for _ in 0..<30 {
                try await stream.send(String(repeating: "x", count: 84))
                returned.withLockedValue { $0 += 1 }
            }
        }
        _ = try await peer.frames(10, FrameType.item, serial)
        try await peer.fence()
        #expect(peer.frames(FrameType.item, serial).count == 10)
        // One more item waits here, with its sender.
        try await returned.wait("ten items are sent") { $0 == 10 }
        try await peer.send(StreamFrames.credit(serial: serial, 2_000))
        _ = try await peer.frames(20, FrameType.item, serial)
        try await peer.fence()
        #expect(peer.frames(FrameType.item, serial).count == 20)
        try await returned.wait("twenty items are sent") { $0 == 20 }
        try await peer.send(StreamFrames.credit(serial: serial, 10_000))
        try await sender.value
        _ = try await peer.frames(30, FrameType.item, serial)
    }

    @Test func aSenderStopsAtTheConnectionsWindow() async throws {
        let peer = try await Peer(windows: StreamWindows(connection: 1_000))
        let (stream, serial) = try await peer.open()
        let sender = Task { for _ in 0..<20 { try await stream.send(String(repeating: "x", count: 84)) } }
        _ = try await peer.frames(10, FrameType.item, serial)
        try await peer.fence()
        #expect(peer.frames(FrameType.item, serial).count == 10)
        try await peer.send(StreamFrames.credit(serial: FrameSerial.connectionCredit, 2_000))
        try await sender.value
        _ = try await peer.frames(20, FrameType.item, serial)
    }

    @Test func creditIsGrantedOnceItemsAreTaken() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000, connectionWindow: 10_000))
        let (stream, serial) = try await peer.open()
        for _ in 0..<10 { try await peer.send(Peer.item(serial, length: 84)) }
        try await eventually("ten items") { peer.client.statistics.receivedItems == 10 }
        try await peer.fence()
        #expect(peer.frames(FrameType.credit, serial).isEmpty)
        _ = try await stream.texts(1)
        let credits = try await peer.frames(1, FrameType.credit, serial)
        #expect(StreamFrames.credit(in: credits[0].payload) == 1_100)
        _ = try await stream.texts(9)
        try await eventually("all is granted") {
            peer.frames(FrameType.credit, serial).last.flatMap { StreamFrames.credit(in: $0.payload) } == 2_000
        }
    }

    @Test func moreThanTheWindowIsAViolation() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000))
        let (stream, serial) = try await peer.open()
        for _ in 0..<11 { try await peer.send(Peer.item(serial, length: 84)) }
        let error = try await socketError { () throws(SocketError) in _ = try await stream.response }
        #expect(error.code == .protocolViolation && error.serial == serial)
        _ = try await peer.frames(1, FrameType.cancel, serial)
        let (texts, end) = try await stream.allTexts()
        #expect(texts.count == 10 && end?.code == .protocolViolation)
        try await peer.fence()
    }

    @Test func beyondTheConnectionsWindowTheConnectionCloses() async throws {
        let peer = try await Peer(policy: StreamPolicy(connectionWindow: 1_000))
        let (stream, serial) = try await peer.open()
        for _ in 0..<11 { try await peer.send(Peer.item(serial, length: 84)) }
        // Items that are taken earlier would be granted again.
        let failure = try await socketError { () throws(SocketError) in _ = try await stream.response }
        #expect(failure.code == .protocolViolation)
        let (texts, error) = try await stream.allTexts()
        #expect(texts.count == 10 && error?.code == .protocolViolation)
        try await peer.server.ended(connection: 0)
    }

    // MARK: Ends

    @Test func aDamagedItemEndsItsStreamAlone() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        let (other, otherSerial) = try await peer.open()
        let connection = try await peer.server.connection(0)
        await connection.perform(.frame(Peer.item(serial, "damaged")).corrupted())
        let (texts, error) = try await stream.allTexts()
        #expect(texts == [] && error?.code == .checksumMismatch)
        _ = try await peer.frames(1, FrameType.cancel, serial)
        try await peer.send(Peer.item(otherSerial, "sound"), Peer.end(otherSerial))
        #expect(try await other.allTexts().texts == ["sound"])
    }

    @Test func anErrorOfTheServerComesAfterTheItems() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial, .database, "why"))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1"] && error?.code == .database && error?.body == ByteBuffer(string: "why"))
        let again = try await socketError { () throws(SocketError) in try await stream.send("late") }
        #expect(again.code == .database)
    }

    @Test func aLostConnectionComesAfterTheItems() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        let connection = try await peer.server.connection(0)
        await connection.perform(
            .glued(.frame(Peer.item(serial, "1")), .frame(Peer.item(serial, "2")), .close)
        )
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1", "2"] && error?.code == .connectionLost && error?.delivery == .sentUnknown)
    }

    @Test func cancellingNotifiesTheServerAndLateItemsAreSwallowed() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000, connectionWindow: 2_000))
        let (stream, serial) = try await peer.open()
        try await peer.send(Peer.item(serial, "1"))
        #expect(try await stream.texts(1) == ["1"])
        stream.cancel()
        let (texts, error) = try await stream.allTexts()
        #expect(texts == [] && error?.code == .cancelled)
        _ = try await peer.frames(1, FrameType.cancel, serial)
        // Together more than the connection's window: dropped items are granted immediately.
        for _ in 0..<30 {
            try await peer.send(Peer.item(serial, length: 84))
            try await peer.fence()
        }
        try await peer.send(Peer.end(serial))
        try await peer.fence()
        #expect(peer.client.statistics.lateResponses == 1)
        #expect(peer.frames(FrameType.cancel, serial).count == 1)
    }

    @Test func aReleasedStreamIsCancelled() async throws {
        let peer = try await Peer()
        let serial = try await peer.open().serial
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    @Test func theSequenceOfItemsKeepsItsStream() async throws {
        let peer = try await Peer()
        var (items, serial): (SocketStream.Items?, UInt32) = try await {
            let (stream, serial) = try await peer.open()
            return (stream.items, serial)
        }()
        try await peer.send(Peer.item(serial, "1"))
        var iterator = items?.makeAsyncIterator()
        items = nil
        #expect(try await iterator?.next() == ByteBuffer(string: "1"))
        #expect(peer.frames(FrameType.cancel, serial).isEmpty)
        iterator = nil
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    @Test(arguments: ["items", "response", "send"]) func aCancelledTaskCancelsItsStream(_ what: String) async throws {
        let peer = try await Peer(windows: StreamWindows(stream: 100))
        let (stream, serial) = try await peer.open()
        let waiter = Task { () async -> SocketError? in
            do throws(SocketError) {
                switch what {
                case "items": for try await _ in stream.items {}
                case "response": _ = try await stream.response
                default: while true { try await stream.send(String(repeating: "x", count: 84)) }
                }
                return nil
            } catch {
                return error
            }
        }
        try await peer.fence()
        waiter.cancel()
        #expect(await waiter.value?.code == .cancelled)
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    @Test func aDeadlineCoversTheWholeStream() async throws {
        let time = ManualTime()
        let peer = try await Peer { $0.socket.time = SocketTime(time) }
        let (stream, serial) = try await peer.open { $0.timeout = .seconds(20) }
        try await peer.send(Peer.item(serial, "1"))
        try await peer.fence()
        await time.advance(by: .seconds(20))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1"] && error?.code == .timeout)
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    @Test func theClientsTimeoutIsNoDeadlineOfAStream() async throws {
        let peer = try await Peer { $0.timeout = .milliseconds(200) }
        try await peer.client.connected()
        let (stream, serial) = try await peer.open()
        // Another call with a longer timeout ends earlier.
        let request = SocketRequest(type: 102, timeout: .milliseconds(300))
        _ = try await socketError { () throws(SocketError) in _ = try await peer.client.data(for: request) }
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial))
        #expect(try await stream.allTexts().error == nil)
    }

    @Test func aStreamOnWhichNothingMovesEnds() async throws {
        let peer = try await Peer(policy: StreamPolicy(idleLimit: .milliseconds(100)))
        let (stream, serial) = try await peer.open()
        let (_, error) = try await stream.allTexts()
        #expect(error?.code == .timeout && error?.message.contains("idleLimit") == true)
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    @Test func aReleasedClientEndsItsStreams() async throws {
        var peer: Peer? = try await Peer()
        let stream = try #require(try await peer?.open().stream)
        // The server stays, so that no connection is lost.
        let server = try #require(peer?.server)
        peer = nil
        let (_, error) = try await stream.allTexts()
        #expect(error?.code == .cancelled)
        let again = try await socketError { () throws(SocketError) in try await stream.send("late") }
        #expect(again.code == .cancelled)
        withExtendedLifetime(server) {}
    }
}
