// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The share of an event loop's turn that requests take, beyond that of any peer's units (`PeerRuleTests`), and that
/// all its connections take.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TurnTests {
    /// The type of a request that takes about a millisecond on the event loop.
    private static let slow: UInt32 = 101

    private static var router: Router {
        var router = Router()
        router.handleSynchronously(Self.slow) { request, _ in
            let end = ContinuousClock.now + .milliseconds(1)
            while ContinuousClock.now < end {}
            return request.body
        }
        return router
    }

    /// Routes to a task, after an admission that takes about a millisecond on the event loop.
    private static var routerWithAdmission: Router {
        var router = Router()
        router.admit { _, _ in
            let end = ContinuousClock.now + .milliseconds(1)
            while ContinuousClock.now < end {}
            return .admit
        }
        router.handle(Self.slow) { request, _ in request.body }
        return router
    }

    private func withOneLoop<Result: Sendable>(
        _ router: Router,
        _ configuration: SocketServer.Configuration = .init(),
        _ body: (SocketServer) async throws -> Result
    ) async throws -> Result {
        var configuration = configuration
        configuration.eventLoops = 1
        return try await withServer(configuration, router) { server in try await body(server) }
    }

    @Test func requestsWhoseAdmissionTakesTimeLeaveTurnsToOthers() async throws {
        try await self.withOneLoop(Self.routerWithAdmission) { server in
            let address = try #require(server.address)
            let busy = try await HostileClient(to: address)
            let other = try await HostileClient(to: address)
            // They arrive in about one read.
            await busy.perform(.requests(Self.slow, serials: 1_000..<3_000))
            let first = try await busy.response()
            var pings = 0
            while server.statistics[.requests] < 2_000 {
                await other.perform(.ping())
                _ = try await other.response()
                pings += 1
            }
            // If all requests were handled in one turn, there would be only one.
            #expect(pings >= 10, "\(pings)")
            // No answer is lost.
            let serials = [first.serial] + (try await busy.responses(1_999).map(\.serial))
            #expect(serials.sorted() == Array(1_000..<3_000))
        }
    }

    @Test func requestsThatWaitForATurnAreAnsweredThoughTheClientHasSentItsLast() async throws {
        try await self.withOneLoop(Self.router) { server in
            let client = try await HostileClient(to: try #require(server.address))
            await client.perform(.requests(Self.slow, serials: 1_000..<1_500).then(.halfClose))
            let answers = try await client.responses(500)
            #expect(answers.map(\.serial) == Array(1_000..<1_500))
            try await client.ended()
        }
    }

    @Test func requestsBeyondTheLimitAreRefusedOnceTheClientHasSentItsLast() async throws {
        var router = Self.routerWithAdmission
        router.handle(Self.slow + 1, on: .connection) { request, _ in request.body }
        try await self.withOneLoop(router, .limited { $0.maximumInFlightPerConnection = 10 }) { server in
            let address = try #require(server.address)
            let client = try await HostileClient(to: address)
            // The end arrives before the turn in which the limit is reached has ended.
            await client.perform(.requests(Self.slow + 1, serials: 1_000..<1_100).then(.halfClose))
            let answers = try await client.responses(100, within: .seconds(20))
            #expect(answers.map(\.serial).sorted() == Array(1_000..<1_100))
            #expect(answers.filter { $0.status == .ok }.count >= 10)
            #expect(answers.allSatisfy { $0.status == .ok || $0.status == .overloaded })
            try await client.ended()
            let other = try await HostileClient(to: address)
            await other.perform(.ping())
            _ = try await other.response(within: .seconds(20))
        }
    }

    @Test func pushesToAllReachEachConnectionOnceAndInOrder() async throws {
        try await self.withOneLoop(Self.router) { server in
            let address = try #require(server.address)
            var clients: [HostileClient] = []
            for _ in 0..<600 { clients.append(try await HostileClient(to: address)) }
            try await eventually("every connection") { server.connectionCount == 600 }
            async let first = server.push(type: 200, body: ByteBuffer(string: "first"))
            async let second = server.push(type: 200, body: ByteBuffer(string: "second"))
            // Some clients leave meanwhile.
            for client in clients.prefix(100) { await client.perform(.reset) }
            #expect(await first >= 500)
            #expect(await second >= 500)
            for client in clients.dropFirst(100) {
                let texts = try await client.responses(2).map { String(buffer: $0.payload) }
                #expect(texts.sorted() == ["first", "second"])
            }
            let rest = await server.push(type: 200, body: ByteBuffer(string: "third"))
            try await eventually("the end of those that went") { server.connectionCount == 500 }
            #expect(rest >= 500)
            for client in clients.dropFirst(100) {
                #expect(try await client.response().payload == ByteBuffer(string: "third"))
            }
        }
    }
}
