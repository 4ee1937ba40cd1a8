// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The lifetime of a client's streams, and their effect on others.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamLifeTests {
    private typealias Peer = StreamPeer

    private func openOne(_ peer: Peer, _ body: String, _ priority: FramePriority = .default) -> SocketStream {
        var request = SocketRequest(type: Peer.type, body: body)
        request.priority = priority
        return peer.client.openStream(for: request, kind: .serverStreaming) { _ in
        } completionHandler: { _ in
        }
    }

    // MARK: The line

    @Test func streamsThatWaitAreOpenedInOrderOfPriorityAndThenOfTime() async throws {
        let peer = try await Peer(maximumStreams: 1)
        let (first, serial) = try await peer.open()
        let waiting = [
            self.openOne(peer, "second"), self.openOne(peer, "third"), self.openOne(peer, "first", .high),
        ]
        // The streams wait in line.
        try await peer.fence()
        var last = serial
        for (number, text) in ["first", "second", "third"].enumerated() {
            try await peer.send(Peer.end(last))
            let opening = try await peer.opening(number + 1)
            #expect(opening.string == text)
            last = opening.serial
        }
        withExtendedLifetime((first, waiting)) {}
    }

    @Test func streamsThatWaitMoveToTheNextConnection() async throws {
        let peer = try await Peer(maximumStreams: 1)
        let (first, _) = try await peer.open()
        let second = self.openOne(peer, "second")
        try await peer.fence()
        try await peer.server.connection(0).perform(.close)
        let opening = try await peer.opening(1)
        #expect(opening.connection == 1 && opening.string == "second")
        #expect(try await first.allTexts().error?.code == .connectionLost)
        try await peer.send(Peer.end(opening.serial), onConnection: 1)
        _ = try await second.response
    }

    // MARK: Loss

    @Test(arguments: MockServer.Reaction.MidStream.allCases)
    func completeItemsAreDeliveredBeforeTheLoss(_ point: MockServer.Reaction.MidStream) async throws {
        let peer = try await Peer()
        peer.server.once(Peer.type, .dieInMidStream(afterItems: 5, point))
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1", "2", "3", "4", "5"])
        #expect(error?.code == .connectionLost && error?.delivery == .sentUnknown)
    }

    // MARK: Leaving a server

    @Test func streamsContinueWithAServerThatTheClientSwitchesFromAndAreNotified() async throws {
        let (peer, other) = (try await Peer(), try await Peer())
        let (stream, serial) = try await peer.open()
        let notified = Gate()
        stream.onDraining { notified.open() }
        peer.client.switchServer(to: other.server.endpoint)
        try await notified.wait()
        #expect(stream.isDraining)
        try await stream.send("still")
        _ = try await peer.frames(1, FrameType.item, serial)
        try await peer.send(Peer.item(serial, "here"), Peer.end(serial))
        #expect(try await stream.allTexts().texts == ["here"])
        try await peer.server.ended(connection: 0)
        // A later observer is notified immediately, and one of an ended stream never.
        #expect(stream.isDraining)
        let next = try await peer.client.stream(for: SocketRequest(type: Peer.type))
        _ = try await other.opening(0)
        #expect(!next.isDraining)
    }

    @Test func theDrainTimeoutEndsStreamsOfAServerThatTheClientHasLeft() async throws {
        let other = try await Peer()
        let peer = try await Peer { $0.socket.drainTimeout = .milliseconds(20) }
        let (stream, _) = try await peer.open()
        peer.client.switchServer(to: other.server.endpoint)
        let (_, error) = try await stream.allTexts()
        #expect(error?.code == .connectionLost && error?.message.contains("drainTimeout") == true, "\(error as Any)")
        try await peer.server.ended(connection: 0)
    }

    // MARK: Slow consumers

    @Test func anUnreadStreamStopsItsServerAndNothingElse() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000, connectionWindow: 3_000))
        let (slow, slowSerial) = try await peer.open()
        let (fast, fastSerial) = try await peer.open()
        // All that the server may send: it has to stop.
        for _ in 0..<10 { try await peer.send(Peer.item(slowSerial, length: 84)) }
        let reader = Task { try await fast.texts(50) }
        for number in 0..<50 {
            let need = UInt64(number + 1) * 100
            try await eventually("credit for item \(number)") { peer.lastCredit(fastSerial) ?? 1_000 >= need }
            try await peer.send(Peer.item(fastSerial, length: 84))
        }
        #expect(try await reader.value.count == 50)
        _ = try await peer.client.data(for: SocketRequest(type: 101, body: "a call"))
        try await peer.fence()
        #expect(peer.lastCredit(slowSerial) == nil)
        // It continues once it is read.
        #expect(try await slow.texts(10).count == 10)
        try await eventually("credit for the slow one") { peer.lastCredit(slowSerial) ?? 0 >= 1_100 }
    }

    @Test func aServerThatTakesNothingStopsItsSenderAndNothingElse() async throws {
        let peer = try await Peer(windows: StreamWindows(stream: 1_000))
        let (stopped, serial) = try await peer.open()
        let sender = Task { try await stopped.send(String(repeating: "x", count: 84), times: 20) }
        _ = try await peer.frames(10, FrameType.item, serial)
        peer.server.on(Peer.type, .drop)
        let (other, otherSerial) = try await peer.open()
        try await other.send(String(repeating: "x", count: 84), times: 50)
        _ = try await peer.frames(50, FrameType.item, otherSerial)
        _ = try await peer.client.data(for: SocketRequest(type: 101, body: "a call"))
        #expect(peer.frames(FrameType.item, serial).count == 10)
        stopped.cancel()
        let result = await sender.result
        #expect(throws: SocketError.self) { try result.get() }
    }

    // MARK: Cancelling

    /// Opens a stream that times out after the opening was sent.
    private func serialOfAStreamThatTimesOut(_ peer: Peer, cancellationBody: ByteBuffer) async throws -> UInt32 {
        try await peer.client.connected()
        let error = try await withGrowingTimeout { timeout -> SocketError in
            var request = SocketRequest(type: Peer.type, timeout: timeout)
            request.cancellationBody = cancellationBody
            let opening = request
            return try await socketError { () throws(SocketError) in
                for try await _ in try await peer.client.stream(for: opening, kind: .bidirectional).items {}
            }
        } until: {
            $0.delivery != .notSent
        }
        #expect(error.code == .timeout, "\(error)")
        return try await peer.opening(0).serial
    }

    @Test(arguments: ["cancel", "timeout", "release"]) func aCancelCarriesWhatIsToBeUndone(_ how: String) async throws {
        let peer = try await Peer()
        let body = ByteBuffer(string: "seat 7")
        let serial: UInt32
        if how == "timeout" {
            serial = try await self.serialOfAStreamThatTimesOut(peer, cancellationBody: body)
        } else {
            var stream: SocketStream?
            (stream, serial) = try await peer.open { $0.cancellationBody = body }
            if how == "cancel" { stream?.cancel() }
            stream = nil
        }
        #expect(try await peer.frames(1, FrameType.cancel, serial)[0].payload == ByteBuffer(string: "seat 7"))
        // The next stream has no such body.
        let (next, nextSerial) = try await peer.open()
        next.cancel()
        #expect(try await peer.frames(1, FrameType.cancel, nextSerial)[0].payload.readableBytes == 0)
    }
}

extension SocketStream {
    fileprivate func send(_ text: String, times count: Int) async throws(SocketError) {
        for _ in 0..<count { try await self.send(text) }
    }
}
