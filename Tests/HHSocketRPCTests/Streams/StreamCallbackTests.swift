// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Streams with callbacks.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamCallbackTests {
    private typealias Peer = StreamPeer
    private typealias End = Result<SocketResponse, SocketError>

    private final class Log: Sendable {
        let texts = NIOLockedValueBox<[String]>([])
        let ends = NIOLockedValueBox<[End]>([])

        var all: [String] { self.texts.withLockedValue { $0 } }
        var count: Int { self.all.count }
        var end: End? { self.ends.withLockedValue { $0.first } }
    }

    private func open(_ peer: Peer, _ log: Log, on queue: CallbackQueue? = nil) -> SocketStream {
        peer.client.openStream(for: SocketRequest(type: Peer.type), on: queue) { item in
            log.texts.withLockedValue { $0.append(String(buffer: item)) }
        } completionHandler: { end in
            log.ends.withLockedValue { $0.append(end) }
        }
    }

    @Test(arguments: [true, false]) func itemsComeInOrderAndTheEndOnce(_ isInline: Bool) async throws {
        let peer = try await Peer { if isInline { $0.socket.callbackQueue = .socketThread } }
        let log = Log()
        let stream = self.open(peer, log)
        let serial = try await peer.opening(0).serial
        let numbers = (0..<100).map { "\($0)" }
        for number in numbers { try await peer.send(Peer.item(serial, number)) }
        try await peer.send(Peer.end(serial))
        try await eventually("the end") { log.end != nil }
        #expect(log.all == numbers && log.ends.withLockedValue { $0.count } == 1)
        #expect(throws: Never.self) { try log.end?.get() }
        withExtendedLifetime(stream) {}
    }

    @Test func aPausedStreamTakesNothing() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 1_000))
        let log = Log()
        let stream = self.open(peer, log)
        let serial = try await peer.opening(0).serial
        stream.pause()
        for _ in 0..<5 { try await peer.send(Peer.item(serial, length: 84)) }
        try await eventually("five items") { peer.client.statistics.receivedItems == 5 }
        try await peer.fence()
        #expect(log.count == 0 && peer.frames(FrameType.credit, serial).isEmpty)
        stream.resume()
        try await eventually("five callbacks") { log.count == 5 }
        _ = try await peer.frames(1, FrameType.credit, serial)
    }

    @Test func aCancelledStreamEndsEvenIfItIsPaused() async throws {
        let peer = try await Peer()
        let log = Log()
        let stream = self.open(peer, log)
        _ = try await peer.opening(0)
        stream.pause()
        stream.cancel()
        try await eventually("the end") { log.end != nil }
        #expect(throws: SocketError.self) { try log.end?.get() }
    }

    @Test func sendersAreCalledBackWhenTheNextMayFollow() async throws {
        let peer = try await Peer(windows: StreamWindows(stream: 100))
        let log = Log()
        let stream = self.open(peer, log)
        let sent = NIOLockedValueBox<[Bool]>([])
        let serial = try await peer.opening(0).serial
        for _ in 0..<3 {
            stream.send(ByteBuffer(repeating: 1, count: 84)) { result in
                sent.withLockedValue { $0.append((try? result.get()) != nil) }
            }
        }
        _ = try await peer.frames(1, FrameType.item, serial)
        try await peer.fence()
        #expect(peer.frames(FrameType.item, serial).count == 1)
        try await peer.send(StreamFrames.credit(serial: serial, 200))
        _ = try await peer.frames(2, FrameType.item, serial)
        try await peer.send(Peer.end(serial, .database))
        try await eventually("three callbacks") { sent.withLockedValue { $0.count } == 3 }
        #expect(sent.withLockedValue { $0.last } == false)
    }

    @Test func aStreamThatCannotBeOpenedFailsByItsHandler() async throws {
        let peer = try await Peer(policy: nil)
        let log = Log()
        let stream = self.open(peer, log)
        try await eventually("the end") { log.end != nil }
        #expect(throws: SocketError.self) { try log.end?.get() }
        withExtendedLifetime(stream) {}
    }
}
