// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let signIn: UInt32 = 100
private let hang: UInt32 = 101
private let stubborn: UInt32 = 102
private let who: UInt32 = 103

/// The limits of one identity, regardless of the number of its connections.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct IdentityQuotaTests {
    private let release = Gate()

    private func makeRouter() -> Router {
        var router = Router()
        router.handleSynchronously(signIn) { request, context in
            context.session.authenticate(as: String(buffer: request.body))
            return ByteBuffer()
        }
        router.handleSynchronously(who) { _, context in ByteBuffer(string: context.session.identity ?? "nobody") }
        router.handle(hang) { _, _ in
            try await untilCancelled()
            return ByteBuffer()
        }
        let release = self.release
        router.handle(stubborn) { _, _ in
            // The handler ignores its cancellation.
            await Task.detached { try? await release.wait() }.value
            return ByteBuffer()
        }
        return router
    }

    private func signedIn(_ server: SocketServer, as identity: String) async throws -> HostileClient {
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(signIn, serial: 50, identity))
        #expect(try await client.response().status == .ok)
        return client
    }

    @Test func theOldestSessionMakesRoomForANewOne() async throws {
        try await withServer(.limited { $0.maximumSessionsPerIdentity = 2 }, self.makeRouter()) { server in
            let first = try await self.signedIn(server, as: "ann")
            let second = try await self.signedIn(server, as: "ann")
            let other = try await self.signedIn(server, as: "bob")
            let third = try await self.signedIn(server, as: "ann")
            let goAway = try await first.response()
            #expect(goAway.type == FrameType.goAway)
            let notice: WireGoAway = try goAway.payload.message()
            #expect(notice.retryAfter >= 30_000)
            try await first.ended()
            for client in [second, third, other] {
                await client.perform(.request(who, serial: 51))
                #expect(try await client.response().status == .ok)
            }
            #expect(server.sessions(of: "ann").count == 2)
            #expect(server.statistics[.sessionsDismissed] == 1)
        }
    }

    @Test func requestsInFlightOfAllSessionsOfAnIdentityAreBounded() async throws {
        try await withServer(.limited { $0.maximumInFlightPerIdentity = 3 }, self.makeRouter()) { server in
            let first = try await self.signedIn(server, as: "ann")
            let second = try await self.signedIn(server, as: "ann")
            let other = try await self.signedIn(server, as: "bob")
            for serial in 60..<62 as Range<UInt32> { await first.perform(.request(hang, serial: serial)) }
            await second.perform(.request(hang, serial: 60))
            try await eventually("three requests in flight") { server.requestsInFlight == 3 }
            for client in [first, second] {
                await client.perform(.request(hang, serial: 70))
                #expect(try await client.response().status == .overloaded)
            }
            #expect(server.statistics[.overloadsOfIdentity] == 2)
            #expect(server.statistics[.overloads] == 2)
            await other.perform(.request(hang, serial: 60))
            try await eventually("another's request") { server.requestsInFlight == 4 }
            await first.perform(.cancel(60))
            try await eventually("the end of a request") { server.requestsInFlight == 3 }
            await second.perform(.request(hang, serial: 71))
            try await eventually("one more") { server.requestsInFlight == 4 }
        }
    }

    /// Otherwise a client could reconnect and start as many again.
    @Test func handlersThatDoNotEndCountAlsoWhenTheirSessionsAreGone() async throws {
        try await withServer(.limited { $0.maximumInFlightPerIdentity = 2 }, self.makeRouter()) { server in
            let first = try await self.signedIn(server, as: "ann")
            for serial in 60..<62 as Range<UInt32> { await first.perform(.request(stubborn, serial: serial)) }
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
            await first.perform(.reset)
            try await eventually("the end of the session") { server.sessions(of: "ann").isEmpty }
            let second = try await self.signedIn(server, as: "ann")
            await second.perform(.request(hang, serial: 60))
            #expect(try await second.response().status == .overloaded)
            self.release.open()
            try await eventually("the end of the handlers") { server.requestsInFlight == 0 }
            await second.perform(.request(hang, serial: 61))
            try await eventually("a request in flight") { server.requestsInFlight == 1 }
        }
    }
}
