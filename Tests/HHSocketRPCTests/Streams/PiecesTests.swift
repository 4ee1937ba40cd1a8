import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Plain calls and pushes whose payloads leave and come in pieces.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PiecesTests {
    private typealias Peer = StreamPeer

    private static func frame(_ type: UInt32, _ serial: UInt32, _ body: String, isLast: Bool) -> Frame {
        Frame(
            type: isLast ? type : type | FrameType.continuesFlag,
            serial: serial,
            payload: ByteBuffer(string: body)
        )
    }

    @Test func aLongRequestLeavesInPiecesAndASmallOnePasses() async throws {
        let peer = try await Peer { $0.socket.callbackQueue = .socketThread }
        let body = ByteBuffer(bytes: (0..<8_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        try await peer.fence()
        let client = peer.client
        // The long one first.
        client.dispatch(SocketRequest(type: 101)) { _ in
            client.dispatch(SocketRequest(type: 102, body: body, options: .init()))
            client.callBack { client.dispatch(SocketRequest(type: 103, body: "small")) }
        }
        let last = try await eventually("the last piece") { peer.server.received.first { $0.type == 102 } }
        let received = peer.server.received.map(\.frame)
        let pieces = received.filter { $0.serial == last.serial }
        #expect(pieces.count == (body.readableBytes + 65_535) / 65_536)
        #expect(pieces.dropLast().allSatisfy { $0.type == 102 | FrameType.continuesFlag })
        var whole = ByteBuffer()
        for piece in pieces { whole.writeImmutableBuffer(piece.payload) }
        #expect(whole == body)
        let small = try #require(received.firstIndex { $0.type == 103 })
        let end = try #require(received.firstIndex { $0.type == 102 })
        #expect(small < end)
    }

    @Test func withoutStreamsALongRequestIsOneFrame() async throws {
        let peer = try await Peer(accepting: [.metadata])
        let body = ByteBuffer(repeating: 7, count: 1_000_000)
        let request = SocketRequest(type: 101, body: body, options: .init())
        #expect(try await peer.client.data(for: request).body == body)
        #expect(peer.server.received.filter { $0.body.readableBytes > 65_536 }.count == 1)
    }

    @Test func anAnswerInPiecesIsPutTogether() async throws {
        let peer = try await Peer()
        let call = Task { try await peer.client.data(for: SocketRequest(type: 102, body: "hi")) }
        let serial = try await peer.server.received(1, ofType: 102)[0].serial
        try await peer.send(Self.frame(102, serial, "one ", isLast: false))
        try await peer.fence()
        try await peer.send(Self.frame(102, serial, "two", isLast: true))
        #expect(try await call.value.string == "one two")
    }

    @Test func aPushInPiecesIsPutTogether() async throws {
        let peer = try await Peer()
        let pushes = peer.client.pushes(ofType: 2_001)
        try await peer.fence()
        try await peer.send(
            Self.frame(2_001, FrameSerial.push, "one ", isLast: false),
            Self.frame(2_001, FrameSerial.push, "two", isLast: true)
        )
        #expect(try await texts(1, of: pushes) == ["one two"])
    }

    @Test func anAnswerThatFailsInPiecesFailsItsCallAlone() async throws {
        let peer = try await Peer { $0.socket.maximumPayloadLength = 1_000 }
        let call = Task { try await peer.client.data(for: SocketRequest(type: 102)) }
        let serial = try await peer.server.received(1, ofType: 102)[0].serial
        let part = String(repeating: "x", count: 600)
        try await peer.send(
            Self.frame(102, serial, part, isLast: false),
            Self.frame(102, serial, part, isLast: false),
            Self.frame(102, serial, part, isLast: true)
        )
        let error = await call.result
        guard case .failure(let error as SocketError) = error else {
            Issue.record("the call succeeded")
            return
        }
        #expect(error.code == .frameTooLarge)
        try await peer.fence()
    }

    @Test func aCancelledLongRequestStopsLeavingAndIsCancelled() async throws {
        let peer = try await Peer { $0.socket.callbackQueue = .socketThread }
        try await peer.fence()
        let body = ByteBuffer(repeating: 7, count: 8_000_000)
        let client = peer.client
        client.dispatch(SocketRequest(type: 101)) { _ in
            let task = client.dataTask(with: SocketRequest(type: 102, body: body, options: .init()))
            task.resume()
            client.callBack { task.cancel() }
        }
        let first = try await eventually("a piece or its cancel") {
            peer.server.received.first { $0.type & ~FrameType.allFlags == 102 }
        }
        _ = try await peer.frames(1, FrameType.cancel, first.serial)
        try await peer.fence()
        #expect(peer.frames(102, first.serial).allSatisfy { $0.type & FrameType.continuesFlag != 0 })
        #expect(peer.frames(FrameType.cancel, first.serial).count == 1)
    }
}
