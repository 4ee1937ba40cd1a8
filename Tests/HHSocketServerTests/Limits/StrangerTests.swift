// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let echo: UInt32 = 100
private let hang: UInt32 = 101
private let key: UInt32 = 102
private let signIn: UInt32 = 110
private let signOut: UInt32 = 111
private let hangForAll: UInt32 = 112
private let keyForAll: UInt32 = 113

/// Clients without a required identity, and clients that send useless frames.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StrangerTests {
    private static func router(_ counter: Watched<Int> = Watched(0)) -> Router {
        var router = Router()
        router.use(AuthenticationMiddleware(except: [signIn, signOut, hangForAll, keyForAll]))
        router.handle(echo) { request, _ in request.body }
        for type in [hang, hangForAll] {
            router.handle(type) { _, _ in
                try await untilCancelled()
                return ByteBuffer()
            }
        }
        for type in [key, keyForAll] {
            router.handle(type) { _, context in
                ByteBuffer(string: "\(counter.increment()) \(context.idempotencyKey ?? "-")")
            }
        }
        router.handle(signIn) { _, context in
            context.session.authenticate(as: "ann")
            return ByteBuffer()
        }
        router.handle(signOut) { _, context in
            context.session.authenticate(as: nil)
            return ByteBuffer()
        }
        return router
    }

    private static func status(_ greeter: Greeter, _ type: UInt32, serial: UInt32 = 50) async throws -> Status {
        try await greeter.call(type, serial: serial)
        return try await greeter.answer().frame.status
    }

    @Test func longFramesOfStrangersAreRefusedByTheirHeader() async throws {
        try await withServer(.init(), Self.router()) { server in
            let stranger = try await Greeter(server)
            _ = try await stranger.greet()
            #expect(try await Self.status(stranger, echo) == .noPermission)
            let long = Frame(type: echo, serial: 50, payload: ByteBuffer(repeating: 1, count: (128 << 10) + 1))
            await stranger.client.perform(.frame(long).cut(after: 12))
            #expect(try await stranger.client.response().status == .illegalLength)
            try await stranger.client.ended()
            // A client with an identity may send the usual amount.
            let known = try await Greeter(server)
            #expect(try await Self.status(known, signIn) == .ok)
            await known.client.perform(.frame(long))
            #expect(try await known.client.response().status == .ok)
            // A stranger again may not.
            #expect(try await Self.status(known, signOut) == .ok)
            await known.client.perform(.frame(long))
            #expect(try await known.client.response().status == .illegalLength)
        }
    }

    @Test func withoutRequirementsNoClientIsAStranger() async throws {
        var router = Router()
        router.handle(echo) { request, _ in request.body }
        let time = ManualTime()
        var limits = SocketServer.Configuration.limited { $0.strangers.timeToBecomeKnown = .seconds(10) }
        limits.time = SocketTime(time)
        try await withServer(limits, router) { server in
            let client = try await Greeter(server)
            try await client.call(echo, ByteBuffer(repeating: 1, count: 1 << 20))
            #expect(try await client.answer().frame.payload.readableBytes == 1 << 20)
            await time.advance(by: .seconds(60))
            try await client.call(echo)
            #expect(try await client.answer().frame.status == .ok)
            #expect(server.statistics[.strangerTimeouts] == 0)
        }
    }

    @Test func whereHelloIsRequiredItMakesAClientKnown() async throws {
        var router = Router()
        router.handle(echo) { request, _ in request.body }
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        try await withServer(configuration, router) { server in
            let long = Frame(type: echo, serial: 50, payload: ByteBuffer(repeating: 1, count: 1 << 20))
            let stranger = try await Greeter(server)
            await stranger.client.perform(.frame(long).cut(after: 12))
            #expect(try await stranger.client.response().status == .illegalLength)
            let known = try await Greeter(server)
            _ = try await known.greet()
            await known.client.perform(.frame(long))
            #expect(try await known.client.response().status == .ok)
        }
    }

    @Test func fewRequestsOfStrangersAreInFlight() async throws {
        try await withServer(.init(), Self.router()) { server in
            let client = try await Greeter(server)
            for serial in 50..<54 as Range<UInt32> { try await client.call(hangForAll, serial: serial) }
            #expect(try await Self.status(client, hangForAll, serial: 54) == .overloaded)
            await client.client.perform(.cancel(50))
            try await eventually("the cancel") { server.requestsInFlight == 3 }
            #expect(try await Self.status(client, signIn, serial: 55) == .ok)
            for serial in 60..<80 as Range<UInt32> { try await client.call(hang, serial: serial) }
            try await eventually("the requests of a client with an identity") { server.requestsInFlight == 23 }
        }
    }

    @Test func strangerThatDoesNotBecomeKnownIsSentAway() async throws {
        let time = ManualTime()
        var limits = SocketServer.Configuration.limited { $0.strangers.timeToBecomeKnown = .seconds(10) }
        limits.time = SocketTime(time)
        try await withServer(limits, Self.router()) { server in
            let known = try await Greeter(server)
            #expect(try await Self.status(known, signIn) == .ok)
            let stranger = try await Greeter(server)
            // The stranger sends various frames.
            _ = try await stranger.greet()
            #expect(try await Self.status(stranger, echo) == .noPermission)
            try await stranger.call(hangForAll)
            await time.advance(by: .seconds(11))
            let notice = try await stranger.client.response()
            #expect(notice.type == FrameType.goAway)
            await time.advance(by: .seconds(1))
            try await stranger.client.ended()
            try await eventually("the count") { server.statistics[.strangerTimeouts] == 1 }
            #expect(try await Self.status(known, echo, serial: 51) == .ok)
            // A client that signs out has the whole time again.
            #expect(try await Self.status(known, signOut, serial: 52) == .ok)
            await time.advance(by: .seconds(9))
            #expect(try await Self.status(known, echo, serial: 53) == .noPermission)
            await time.advance(by: .seconds(2))
            #expect(try await known.client.response().type == FrameType.goAway)
            try await eventually("the count") { server.statistics[.strangerTimeouts] == 2 }
        }
    }

    @Test func timeStandsStillWhileTheServerAuthenticates() async throws {
        let (release, time) = (Gate(), ManualTime())
        var configuration = SocketServer.Configuration.limited { $0.strangers.timeToBecomeKnown = .seconds(10) }
        configuration.time = SocketTime(time)
        configuration.hello.authenticate = { _, _ in
            try await release.wait()
            return "ann"
        }
        try await withServer(configuration, Self.router()) { server in
            let client = try await Greeter(server)
            let hello = Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                payload: try ByteBuffer(message: WireHello.all)
            )
            await client.client.perform(.frame(hello))
            try await eventually("the hello") { release.waitingCount == 1 }
            // A later client that sends nothing.
            let silent = try await HostileClient.connect(to: server.address)
            try await eventually("two connections") { server.connectionCount == 2 }
            await time.advance(by: .seconds(12))
            try await silent.ended()
            release.open()
            #expect(try await client.client.response().status == .ok)
            #expect(try await Self.status(client, echo) == .ok)
            try await eventually("the count") { server.statistics[.strangerTimeouts] == 1 }
        }
    }

    @Test func nothingIsInflatedOrKeptForStrangers() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { token, _ in token.isEmpty ? nil : String(decoding: token, as: UTF8.self) }
        let counter = Watched(0)
        try await withServer(configuration, Self.router(counter)) { server in
            let stranger = try await Greeter(server)
            let features = try await stranger.greet().1.features
            #expect(features == ["metadata", "idempotency"])
            let body = ByteBuffer(repeating: 0, count: 100_000)
            try await stranger.call(keyForAll, body, compression: CompressionPolicy())
            #expect(try await stranger.answer().frame.status == .illegalFormat)
            for run in 1...2 {
                try await stranger.call(keyForAll, ByteBuffer(), WireMetadata(key: "k"))
                #expect(try await stranger.answer().frame.payload == ByteBuffer(string: "\(run) -"))
            }
            #expect(try await Self.status(stranger, signIn) == .ok)
            for _ in 0..<2 {
                try await stranger.call(key, ByteBuffer(), WireMetadata(key: "k"))
                #expect(try await stranger.answer().frame.payload == ByteBuffer(string: "3 k"))
            }

            var hello = WireHello.all
            hello.sessionToken = Data("bob".utf8)
            let known = try await Greeter(server)
            let agreed = try await known.greet(hello).1.features
            #expect(agreed.contains("compression"))
            try await known.call(echo, body, compression: CompressionPolicy())
            #expect(try await known.answer().frame.payload == body)
            // Compression was agreed on, but a stranger's body is rejected without inflating it.
            #expect(try await Self.status(known, signOut) == .ok)
            await known.client.perform(
                .frame(Frame(type: echo | FrameType.compressionFlag, serial: 50, payload: ByteBuffer(string: "x")))
            )
            #expect(try await known.answer().frame.status == .noPermission)
        }
    }

    // MARK: Frames that ask for nothing

    private static func plainRouter() -> Router {
        var router = Router()
        router.handleSynchronously(echo) { request, _ in request.body }
        return router
    }

    @Test(arguments: ["heartbeats", "cancels", "unknown types", "reserved serials", "hellos"])
    func clientWithTooManyUnproductiveFramesIsClosed(what: String) async throws {
        let limits = SocketServer.Configuration.limited {
            $0.unproductiveFrameRate = RequestRate(perSecond: 1, burst: 1_000)
        }
        try await withServer(limits, Self.plainRouter()) { server in
            let act: HostileClient.Act =
                switch what {
                case "heartbeats": .frame(Frame(type: FrameType.heartbeat, serial: 0))
                case "cancels": .cancel(77)
                case "unknown types": .request(99, serial: 50, "what")
                case "reserved serials": .request(echo, serial: 49, "no")
                default: .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello))
                }
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(act.times(1_000))
            await client.perform(.request(echo, serial: 60, "still here"))
            var frame = try await client.response()
            while frame.serial != 60 { frame = try await client.response() }
            #expect(frame.status == .ok)
            #expect(server.statistics[.frameFloods] == 0)
            await client.perform(act.times(100))
            try await client.ended()
            #expect(server.statistics[.frameFloods] == 1)
            #expect(server.statistics[.goAwaysSent] == 1)
        }
    }

    @Test func pingsOfAWebSocketThatCarriesFramesAreAmongThem() async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        configuration.limits.unproductiveFrameRate = RequestRate(perSecond: 1, burst: 1_000)
        // The interval of the checks.
        configuration.limits.readStallTimeout = .milliseconds(200)
        try await withServer(configuration, Self.plainRouter()) { server in
            let port = try #require(server.address?.port)
            let client = try await HostileClient(to: try Endpoint(url: "ws://127.0.0.1:\(port)/rpc"))
            await client.perform(.webSocketFrame(.ping()).times(500))
            await #expect(throws: NothingHappened.self) { try await client.ended(within: .milliseconds(500)) }
            await client.perform(.webSocketFrame(.ping()).times(2_000))
            try await client.ended()
            #expect(server.statistics[.frameFloods] == 1)
        }
    }

    /// Uses the default limit.
    @Test func clientThatCancelsTenThousandCallsAtOnceLives() async throws {
        try await withServer(.init(), Self.plainRouter()) { server in
            let client = SocketClient.connecting(to: try #require(server.address))
            _ = try await client.data(for: SocketRequest(type: echo, body: "warm"))
            let tasks = (0..<10_000).map { _ in client.dataTask(with: SocketRequest(type: echo, body: "x")) }
            for task in tasks { task.resume() }
            for task in tasks { task.cancel() }
            #expect(try await client.data(for: SocketRequest(type: echo, body: "after")).string == "after")
            #expect(server.statistics[.frameFloods] == 0)
            #expect(server.connectionCount == 1)
            await client.close()
        }
    }

    // MARK: Rates

    @Test func addressHasARateOnAllItsConnections() async throws {
        let limits = SocketServer.Configuration.limited {
            $0.requestRatePerAddress = RequestRate(perSecond: 0.001, burst: 3)
        }
        try await withServer(limits, Self.plainRouter()) { server in
            var statuses: [Status] = []
            for _ in 0..<5 {
                let client = try await Greeter(server)
                statuses.append(try await Self.status(client, echo))
            }
            #expect(statuses == [.ok, .ok, .ok, .overloaded, .overloaded])
            #expect(server.statistics[.overloadsOfRate] == 2)
        }
    }

    @Test func identityHasARateOnAllItsConnections() async throws {
        var configuration = SocketServer.Configuration.limited {
            $0.requestRatePerIdentity = RequestRate(perSecond: 0.001, burst: 3)
        }
        configuration.hello.authenticate = { token, _ in String(decoding: token, as: UTF8.self) }
        try await withServer(configuration, Self.plainRouter()) { server in
            var statuses: [Status] = []
            for name in ["ann", "ann", "ann", "ann", "bob"] {
                let client = try await Greeter(server)
                var hello = WireHello.all
                hello.sessionToken = Data(name.utf8)
                _ = try await client.greet(hello)
                statuses.append(try await Self.status(client, echo))
            }
            #expect(statuses == [.ok, .ok, .ok, .overloaded, .ok])
            // A client without an identity has no rate here.
            let nobody = try await Greeter(server)
            for serial in 50..<60 as Range<UInt32> {
                let status = try await Self.status(nobody, echo, serial: serial)
                #expect(status == .ok)
            }
        }
    }
}
