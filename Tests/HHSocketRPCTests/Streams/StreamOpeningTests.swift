// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The opening of a client's streams, and their reopening.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamOpeningTests {
    private typealias Peer = StreamPeer

    private func refusal(
        _ peer: Peer,
        _ kind: StreamKind = .bidirectional,
        change: (inout SocketRequest) -> Void = { _ in }
    ) async throws -> SocketError {
        var request = SocketRequest(type: Peer.type)
        change(&request)
        let opened = request
        return try await socketError { () throws(SocketError) in
            _ = try await peer.client.stream(for: opened, kind: kind)
        }
    }

    // MARK: What must be agreed on

    @Test func withoutAPolicyNothingIsSent() async throws {
        let peer = try await Peer(policy: nil)
        #expect(try await self.refusal(peer).code == .featureNotAgreed)
        try await peer.fence()
        #expect(!peer.server.received.contains { $0.type == Peer.type || $0.type == FrameType.hello })
    }

    @Test func withoutAnAgreementNothingIsSent() async throws {
        let peer = try await Peer(accepting: [.metadata])
        let error = try await self.refusal(peer)
        #expect(error.code == .featureNotAgreed && error.delivery == .notSent)
        try await peer.fence()
        #expect(!peer.server.received.contains { $0.type == Peer.type })
    }

    @Test func helloAsksForStreamsWithTheWindows() async throws {
        let peer = try await Peer(policy: StreamPolicy(streamWindow: 5_000, connectionWindow: 70_000))
        let hello = try await peer.server.received(1, ofType: FrameType.hello)[0].body.message(as: WireHello.self)
        #expect(hello.features.contains("streams"))
        #expect(hello.streamWindow == 5_000 && hello.connectionWindow == 70_000)
    }

    @Test func aFormatWithoutRoomForStreamsIsRefused() async throws {
        var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.streams = StreamPolicy()
        configuration.socket.wireFormat = try #require(WireFormat.presets.values.first { !$0.supportsStreams })
        let client = SocketClient(configuration: configuration)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .invalidArgument)
    }

    @Test func forbiddenOptionsOfAStreamsRequest() async throws {
        let peer = try await Peer()
        #expect(try await self.refusal(peer) { $0.body = ByteBuffer(string: "x") }.code == .invalidArgument)
        #expect(try await self.refusal(peer) { $0.idempotencyKey = "k" }.code == .invalidArgument)
        #expect(try await self.refusal(peer) { $0.type = 3 }.code == .invalidArgument)
    }

    // MARK: The limit

    @Test(arguments: [true, false]) func streamsBeyondTheLimitWait(_ isServers: Bool) async throws {
        let peer = try await Peer(
            maximumStreams: isServers ? 1 : 100,
            policy: StreamPolicy(maximumStreams: isServers ? 100 : 1)
        )
        let (first, serial) = try await peer.open()
        let second = Task { try await peer.client.stream(for: SocketRequest(type: Peer.type)) }
        let third = Task { try await peer.client.stream(for: SocketRequest(type: Peer.type)) }
        try await peer.fence()
        #expect(peer.server.received.filter { $0.type == Peer.type }.count == 1)
        try await peer.send(Peer.end(serial))
        _ = try await first.response
        let opening = try await peer.opening(1)
        try await peer.send(Peer.end(opening.serial))
        _ = try await peer.opening(2)
        _ = try await (second.value, third.value)
    }

    @Test func theLineAtTheLimitIsBoundedAndWithinTheDeadline() async throws {
        let peer = try await Peer(maximumStreams: 1) { $0.maximumWaiting = 1 }
        let (first, _) = try await peer.open()
        func open(timeout: Duration) -> SocketStream {
            peer.client.openStream(for: SocketRequest(type: Peer.type, timeout: timeout)) { _ in
            } completionHandler: { _ in
            }
        }
        // It waits in line before the next one is opened.
        let second = open(timeout: patience)
        #expect(try await self.refusal(peer).code == .queueFull)
        second.cancel()
        let third = open(timeout: .milliseconds(100))
        let error = await #expect(throws: SocketError.self) { try await third.response }
        #expect(error?.code == .timeout && error?.delivery == .notSent)
        withExtendedLifetime(first) {}
    }

    @Test func aStreamThatIsCancelledInTheLineIsRemovedFromIt() async throws {
        let peer = try await Peer(maximumStreams: 1) { $0.maximumWaiting = 1 }
        let (first, serial) = try await peer.open()
        let second = Task { try await peer.client.stream(for: SocketRequest(type: Peer.type)) }
        try await peer.fence()
        second.cancel()
        #expect(await second.result.error?.code == .cancelled)
        let third = Task { try await peer.client.stream(for: SocketRequest(type: Peer.type)) }
        try await peer.fence()
        try await peer.send(Peer.end(serial))
        _ = try await (third.value, first.response)
        _ = try await peer.opening(1)
        try await peer.fence()
        #expect(peer.server.received.filter { $0.type == Peer.type }.count == 2)
    }

    // MARK: Again

    @Test func aStreamThatADrainingServerRefusesIsOpenedAgain() async throws {
        let peer = try await Peer()
        peer.server.once(Peer.type, .draining)
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type))
        let opening = try await peer.opening(1)
        #expect(opening.connection == 1)
        try await peer.send(Peer.item(opening.serial, "1"), Peer.end(opening.serial), onConnection: 1)
        #expect(try await stream.allTexts().texts == ["1"])
        #expect(peer.client.statistics.resentCalls == 1)
    }

    @Test func aStreamOfWhichItemsHaveMovedIsNotOpenedAgain() async throws {
        let peer = try await Peer { $0.retryPolicy = RetryPolicy(maximumAttempts: 3) }
        let (stream, serial) = try await peer.open { $0.isIdempotent = true }
        try await peer.send(Peer.item(serial, "1"), Peer.end(serial, .draining))
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1"] && error?.code == .draining)
        try await peer.fence()
        #expect(peer.server.received.filter { $0.type == Peer.type }.count == 1)
    }

    @Test func aLostStreamIsOpenedAgainIfItMayBeAndNothingHasMoved() async throws {
        let peer = try await Peer {
            $0.retryPolicy = RetryPolicy(maximumAttempts: 3, backoff: Backoff(base: .milliseconds(1)))
        }
        let (stream, _) = try await peer.open { $0.isIdempotent = true }
        let connection = try await peer.server.connection(0)
        await connection.perform(.close)
        let opening = try await peer.opening(1)
        try await stream.send("after")
        _ = try await peer.frames(1, FrameType.item, opening.serial)
        try await peer.send(Peer.end(opening.serial), onConnection: 1)
        _ = try await stream.response
    }

    // MARK: Go-away

    @Test func openStreamsRunOnUnderGoAwayAndAreNotified() async throws {
        let peer = try await Peer()
        let (stream, serial) = try await peer.open()
        let notified = NIOLockedValueBox(0)
        stream.onDraining { notified.withLockedValue { $0 += 1 } }
        #expect(!stream.isDraining)
        await peer.server.sendGoAway()
        try await eventually("the stream's notification") { notified.withLockedValue { $0 } == 1 }
        #expect(stream.isDraining)
        let other = try await peer.client.stream(for: SocketRequest(type: Peer.type))
        let opening = try await peer.opening(1)
        #expect(opening.connection == 1)
        try await stream.send("still")
        _ = try await peer.frames(1, FrameType.item, serial)
        try await peer.send(Peer.item(serial, "here"), Peer.end(serial))
        #expect(try await stream.allTexts().texts == ["here"])
        // Nothing is in flight on the first connection.
        try await peer.server.ended(connection: 0)
        #expect(!other.isDraining)
    }

    // MARK: Interceptors

    private struct Tenant: SocketInterceptor {
        func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
            var request = request
            request.metadata["tenant"] = "acme"
            var response = try await next(request)
            response.metadata["seen"] = "yes"
            return response
        }
    }

    @Test func anInterceptorSeesAStreamAsOneCall() async throws {
        let peer = try await Peer { $0.interceptors = [Tenant()] }
        let (stream, serial) = try await peer.open()
        let opening = try await peer.opening(0)
        #expect(opening.metadata == ["tenant": "acme"])
        try await stream.send("1")
        _ = try await peer.frames(1, FrameType.item, serial)
        try await peer.send(Peer.item(serial, "2"), Peer.end(serial))
        #expect(try await stream.allTexts().texts == ["2"])
        #expect(try await stream.response.metadata == ["seen": "yes"])
    }

    @Test func aTokenThatIsRefusedIsRefreshedBeforeItemsMove() async throws {
        let tokens = NIOLockedValueBox(0)
        let peer = try await Peer {
            $0.interceptors = [
                TokenInterceptor(token: "old") {
                    tokens.withLockedValue { $0 += 1 }
                    return "new"
                } apply: { token, request in
                    request.metadata["token"] = token
                }
            ]
        }
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
        let refused = try await peer.opening(0)
        try await peer.send(Peer.end(refused.serial, .noPermission))
        let opening = try await peer.opening(1)
        #expect(opening.metadata == ["token": "new"])
        #expect(opening.serial != refused.serial && tokens.withLockedValue { $0 } == 1)
        try await peer.send(Peer.item(opening.serial, "1"), Peer.end(opening.serial))
        #expect(try await stream.allTexts().texts == ["1"])
    }
}

extension Result where Failure == any Error {
    fileprivate var error: SocketError? {
        if case .failure(let error) = self { error as? SocketError } else { nil }
    }
}
