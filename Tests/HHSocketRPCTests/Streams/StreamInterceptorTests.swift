// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Interceptors around a client's streams, each of which they see as one call.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StreamInterceptorTests {
    private typealias Peer = StreamPeer

    /// Makes every call up to three times, and keeps the errors.
    private final class Again: SocketInterceptor {
        let errors = NIOLockedValueBox<[SocketError.Code]>([])

        func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
            for _ in 0..<2 {
                do throws(SocketError) {
                    return try await next(request)
                } catch {
                    self.errors.withLockedValue { $0.append(error.code) }
                }
            }
            return try await next(request)
        }
    }

    private struct Refusing: SocketInterceptor {
        func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
            throw SocketError(.noPermission, message: "not today")
        }
    }

    private struct Cached: SocketInterceptor {
        func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
            let endpoint = Endpoint(host: "cache", port: 0)
            return SocketResponse(type: request.type, body: ByteBuffer(string: "cached"), endpoint: endpoint)
        }
    }

    @Test func oneThatTriesAgainOpensTheStreamAgainWhileNoItemHasMoved() async throws {
        let again = Again()
        let peer = try await Peer { $0.interceptors = [again] }
        peer.server.once(Peer.type, .status(.database))
        peer.server.once(Peer.type, .status(.overloaded))
        peer.server.on(Peer.type, .glued(.item("1"), .item("2"), .status(.ok)))
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
        #expect(try await stream.allTexts().texts == ["1", "2"])
        #expect(again.errors.withLockedValue { $0 } == [.database, .overloaded])
        #expect(peer.client.statistics.openedStreams == 3)
    }

    @Test(arguments: [true, false]) func oneThatTriesAgainGetsTheErrorAgainOnceItemsHaveMoved(
        _ isServers: Bool
    ) async throws {
        let again = Again()
        let peer = try await Peer { $0.interceptors = [again] }
        let (stream, serial) = try await peer.open()
        if isServers {
            try await peer.send(Peer.item(serial, "1"))
            #expect(try await stream.texts(1) == ["1"])
        } else {
            try await stream.send("1")
            _ = try await peer.frames(1, FrameType.item, serial)
        }
        try await peer.send(Peer.end(serial, .database))
        #expect(try await stream.allTexts().error?.code == .database)
        #expect(again.errors.withLockedValue { $0 } == [.database, .database])
        try await peer.fence()
        #expect(peer.server.received.filter { $0.type == Peer.type }.count == 1)
    }

    @Test func aTokenThatIsRefusedAfterItemsIsTheStreamsError() async throws {
        let refreshed = NIOLockedValueBox(0)
        let peer = try await Peer {
            $0.interceptors = [
                TokenInterceptor(token: "old") {
                    refreshed.withLockedValue { $0 += 1 }
                    return "new"
                } apply: { token, request in
                    request.metadata["token"] = token
                }
            ]
        }
        peer.server.once(Peer.type, .glued(.item("1"), .status(.noPermission)))
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
        let (texts, error) = try await stream.allTexts()
        #expect(texts == ["1"] && error?.code == .noPermission)
        // The next stream has the new token.
        let (next, serial) = try await peer.open()
        let opening = try await peer.opening(1)
        #expect(opening.serial == serial && opening.metadata == ["token": "new"])
        #expect(refreshed.withLockedValue { $0 } == 1)
        withExtendedLifetime(next) {}
    }

    @Test func oneThatThrowsKeepsTheStreamFromOpening() async throws {
        let peer = try await Peer { $0.interceptors = [Refusing()] }
        let error = try await socketError { () throws(SocketError) in
            _ = try await peer.client.stream(for: SocketRequest(type: Peer.type))
        }
        #expect(error.code == .noPermission && error.message == "not today")
        #expect(peer.client.statistics.openedStreams == 0)
    }

    @Test func oneThatAnswersEndsTheStreamWithoutItems() async throws {
        let peer = try await Peer { $0.interceptors = [Cached()] }
        let stream = try await peer.client.stream(for: SocketRequest(type: Peer.type), kind: .serverStreaming)
        #expect(try await stream.allTexts().texts == [])
        #expect(try await stream.response.string == "cached")
        #expect(peer.client.statistics.openedStreams == 0)
    }

    @Test func aCancelledStreamCancelsItsInterceptor() async throws {
        struct Waiting: SocketInterceptor {
            let entered: Gate
            let left: Gate
            func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
                self.entered.open()
                do {
                    try await untilCancelled()
                } catch {
                    self.left.open()
                }
                return try await next(request)
            }
        }
        let (entered, left) = (Gate(), Gate())
        let peer = try await Peer { $0.interceptors = [Waiting(entered: entered, left: left)] }
        let opening = Task { try await peer.client.stream(for: SocketRequest(type: Peer.type)) }
        try await entered.wait()
        opening.cancel()
        try await left.wait()
        let result = await opening.result
        #expect(throws: SocketError.self) { try result.get() }
        #expect(peer.client.statistics.openedStreams == 0)
    }
}
