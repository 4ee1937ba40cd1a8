// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import NIOCore
import TestSupport
import Testing

/// A message that consists of its text.
private struct Note: MessageBody, Hashable {
    static let protoMessageName = "test.Note"

    var text: String

    init(_ text: String) {
        self.text = text
    }

    init(messageBytes: UnsafeRawBufferPointer) throws {
        guard !messageBytes.contains(0xFF) else { throw SocketError(.decodingFailed, message: "no note") }
        self.text = String(decoding: messageBytes, as: UTF8.self)
    }

    func withMessageBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        try Array(self.text.utf8).withUnsafeBytes(body)
    }
}

/// Streams of messages, on mocks and on a server whose frames the test makes.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MessageStreamTests {
    private static let method = MethodDescriptor<Note, Note>(
        "test.Notes/Talk",
        type: StreamPeer.type,
        kind: .bidirectionalStream
    )

    @Test func aMockedStreamCarriesMessagesBothWays() async throws {
        let (stream, far) = MessageStream<Note, Note>.mock()
        try await stream.send(Note("1"))
        try await stream.send(Note("2"))
        stream.finish()
        var sent: [Note] = []
        for await note in far.requests { sent.append(note) }
        #expect(sent == [Note("1"), Note("2")])
        far.respond(Note("3"))
        far.finish()
        var received: [Note] = []
        for try await note in stream { received.append(note) }
        #expect(received == [Note("3")])
        _ = try await stream.response
        #expect(!far.isCancelled)
    }

    @Test func aMockAnswersAndFails() async throws {
        let (stream, far) = MessageStream<Note, Note>.mock()
        far.answer(Note("sum"))
        #expect(try await stream.answer() == Note("sum"))
        let (failing, end) = MessageStream<Note, Note>.mock()
        end.respond(Note("before"))
        end.finish(throwing: SocketError(.database, message: "broken"))
        var iterator = failing.makeAsyncIterator()
        #expect(try await iterator.next() == Note("before"))
        let error = try await socketError { () throws(SocketError) in _ = try await iterator.next() }
        #expect(error.code == .database)
    }

    private enum Waiting: CaseIterable { case answer, response, message }

    /// As a client's stream is.
    @Test(arguments: Waiting.allCases) private func aMockedStreamIsCancelledWithTheTaskThatWaitsForIt(
        for waiting: Waiting
    ) async throws {
        let (stream, far) = MessageStream<Note, Note>.mock()
        let reading = Task {
            switch waiting {
            case .answer: _ = try await stream.answer()
            case .response: _ = try await stream.response
            case .message: for try await _ in stream {}
            }
        }
        reading.cancel()
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: reading, "its end") }
        #expect(error?.code == .cancelled)
        #expect(far.isCancelled)
        // What is sent on it fails in the same way.
        let late = try await socketError { () async throws(SocketError) in try await stream.send(Note("late")) }
        #expect(late.code == .cancelled)
    }

    @Test func aReleasedMockedStreamIsCancelled() async throws {
        let far = MockStream<Note, Note>()
        do {
            let stream = MessageStream(mock: far)
            try await stream.send(Note("1"))
            #expect(!far.isCancelled)
        }
        #expect(far.isCancelled)
    }

    @Test func messagesGoOverTheWire() async throws {
        let peer = try await StreamPeer()
        let stream = try await peer.client.bidirectionalStream(Self.method)
        let serial = try await peer.opening(0).serial
        try await stream.send(Note("1"))
        #expect(try await peer.frames(1, FrameType.item, serial)[0].payload == ByteBuffer(string: "1"))
        try await peer.send(StreamPeer.item(serial, "2"), StreamPeer.end(serial))
        var received: [Note] = []
        for try await note in stream { received.append(note) }
        #expect(received == [Note("2")])
    }

    @Test func aMessageThatCannotBeReadCancelsItsStream() async throws {
        let peer = try await StreamPeer()
        let stream = try await peer.client.serverStream(Self.method, Note("3"))
        let opening = try await peer.opening(0)
        #expect(opening.string == "3")
        let broken = Frame(
            type: StreamPeer.type,
            serial: opening.serial,
            status: .partial,
            payload: ByteBuffer(bytes: [0xFF])
        )
        try await peer.send(broken)
        var iterator = stream.makeAsyncIterator()
        let error = try await socketError { () throws(SocketError) in _ = try await iterator.next() }
        #expect(error.code == .protobufFailed)
        _ = try await peer.frames(1, FrameType.cancel, opening.serial)
    }

    @Test func theOneAnswerIsDecoded() async throws {
        let peer = try await StreamPeer()
        let stream = try await peer.client.clientStream(Self.method)
        let serial = try await peer.opening(0).serial
        try await stream.send(Note("1"))
        try await peer.send(StreamPeer.end(serial, .ok, "sum"))
        #expect(try await stream.answer() == Note("sum"))
    }

    // MARK: A client that streams, with a closure

    private struct NoMore: Error {}

    @Test(arguments: [true, false]) func anEarlyAnswerStopsTheProducerAndIsReturned(_ isMocked: Bool) async throws {
        let peer = try await StreamPeer(windows: StreamWindows(stream: 100))
        peer.server.onItem(of: StreamPeer.type, .answer("sum"))
        peer.server.on(StreamPeer.type, .drop)
        let (mock, far) = MessageStream<Note, Note>.mock()
        let stream = isMocked ? mock : try await peer.client.clientStream(Self.method)
        if isMocked { far.answer(Note("sum")) }
        let answer = try await withDeadline("the answer") {
            try await stream.answer { stream in
                while true { try await stream.send(Note(String(repeating: "x", count: 84))) }
            }
        }
        #expect(answer == Note("sum"))
        if isMocked { #expect(!far.isCancelled) }
    }

    @Test func aProducerThatFailsCancelsItsStream() async throws {
        let peer = try await StreamPeer()
        let stream = try await peer.client.clientStream(Self.method)
        let serial = try await peer.opening(0).serial
        await #expect(throws: NoMore.self) { try await stream.answer { _ in throw NoMore() } }
        _ = try await peer.frames(1, FrameType.cancel, serial)
    }

    /// An error of another stream does not apply to this one: half an upload must not be taken for the whole.
    @Test func anotherStreamsEndInTheProducerIsNoAnswer() async throws {
        let peer = try await StreamPeer()
        let stream = try await peer.client.clientStream(Self.method)
        let serial = try await peer.opening(0).serial
        let (other, far) = MessageStream<Note, Note>.mock()
        far.answer(Note("other"))
        await #expect(throws: SocketError.self) { try await stream.answer { _ in try await other.send(Note("x")) } }
        _ = try await peer.frames(1, FrameType.cancel, serial)
        #expect(peer.frames(FrameType.end, serial).isEmpty)
    }
}
