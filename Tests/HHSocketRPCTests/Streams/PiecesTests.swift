// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Plain calls and pushes whose payloads are sent and received in pieces.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PiecesTests {
    private typealias Peer = StreamPeer

    private static func frame(_ type: UInt32, _ serial: UInt32, _ body: String, isLast: Bool) -> Frame {
        Frame(
            type: isLast ? type : type | FrameType.continuesFlag,
            serial: serial,
            payload: ByteBuffer(string: body)
        )
    }

    @Test func aLongRequestIsSentInPiecesAndASmallOnePasses() async throws {
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
        let received = peer.server.received
        #expect(last.pieces == (body.readableBytes + 65_535) / 65_536)
        #expect(last.body == body)
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

    @Test func anAnswerHasBegunWithItsFirstPiece() async throws {
        let time = ManualTime()
        let peer = try await Peer { $0.socket.time = SocketTime(time) }
        try await peer.fence()
        var request = SocketRequest(type: 102)
        request.firstResponseTimeout = .seconds(10)
        let call = Task { [request] in try await peer.client.data(for: request) }
        let serial = try await peer.server.received(1, ofType: 102)[0].serial
        try await peer.send(Self.frame(102, serial, "one ", isLast: false))
        try await peer.fence()
        // A later call that has timed out.
        request.type = 103
        async let late = Result { [request] in try await peer.client.data(for: request) }
        _ = try await peer.server.received(1, ofType: 103)
        await time.advance(by: .seconds(10))
        #expect((await late.error as? SocketError)?.code == .timeout)
        try await peer.send(Self.frame(102, serial, "two", isLast: true))
        #expect(try await call.value.string == "one two")
    }

    @Test func theProgressOfAnAnswerInPiecesIsThatOfTheWhole() async throws {
        let peer = try await Peer()
        let task = peer.client.dataTask(with: SocketRequest(type: 102))
        task.resume()
        let serial = try await peer.server.received(1, ofType: 102)[0].serial
        for count in 1...3 {
            try await peer.send(Self.frame(102, serial, "piece", isLast: false))
            try await eventually("\(count) pieces") { task.countOfBytesReceived == 5 * count }
            #expect(task.countOfBytesExpectedToReceive == nil)
        }
        // Half of the last one.
        let last = Self.frame(102, serial, String(repeating: "x", count: 1_000), isLast: true)
        try await peer.server.connection(0).perform(.frame(last).cut(after: 516))
        try await eventually("the length") { task.countOfBytesExpectedToReceive == 1_015 }
        #expect(task.countOfBytesReceived == 515)
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

    @Test func aCancelledLongRequestIsSentNoFurtherAndIsCancelled() async throws {
        let peer = try await Peer { $0.socket.callbackQueue = .socketThread }
        try await peer.fence()
        let body = ByteBuffer(repeating: 7, count: 8_000_000)
        let client = peer.client
        client.dispatch(SocketRequest(type: 101)) { _ in
            let task = client.dataTask(with: SocketRequest(type: 102, body: body, options: .init()))
            task.resume()
            client.callBack { task.cancel() }
        }
        let cancel = try await peer.server.received(1, ofType: FrameType.cancel)[0]
        try await peer.fence()
        // An incomplete request is not recorded.
        #expect(!peer.server.received.contains { $0.type == 102 })
        #expect(peer.frames(FrameType.cancel, cancel.serial).count == 1)
    }
}
