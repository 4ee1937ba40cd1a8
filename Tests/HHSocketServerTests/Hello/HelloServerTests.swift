// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketTesting
import InMemoryLogging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private enum Call {
    static let echo: UInt32 = 100
    static let metadata: UInt32 = 101
    static let metadataAtOnce: UInt32 = 102
    static let hang: UInt32 = 103
    static let count: UInt32 = 104
    static let countAtOnce: UInt32 = 105
    static let hold: UInt32 = 106
}

private func makeRouter(_ counter: Watched<Int> = Watched(0)) -> Router {
    var router = Router()
    let metadata: @Sendable (ServerRequest, ServerContext) -> ByteBuffer = { request, context in
        context.answerMetadata = ["seen": context.metadata["asked"] ?? "nothing"]
        return request.body
    }
    router.handleSynchronously(Call.echo) { request, _ in request.body }
    router.handle(Call.metadata) { metadata($0, $1) }
    router.handleSynchronously(Call.metadataAtOnce) { metadata($0, $1) }
    router.handle(Call.hang) { _, _ in
        try await untilCancelled()
        return ByteBuffer()
    }
    router.handle(Call.count) { _, context in
        await Task.yield()
        return ByteBuffer(string: "\(counter.increment()) \(context.idempotencyKey ?? "-")")
    }
    router.handleSynchronously(Call.countAtOnce) { _, context in
        ByteBuffer(string: "\(counter.increment()) \(context.idempotencyKey ?? "-")")
    }
    return router
}

private func withGreeter(
    _ configuration: SocketServer.Configuration = .init(),
    _ router: Router = makeRouter(),
    _ body: (Greeter, SocketServer) async throws -> Void
) async throws {
    try await withServer(configuration, router) { server in
        try await body(Greeter(server), server)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HelloServerTests {
    @Test func commonFeaturesAreAgreedOn() async throws {
        try await withGreeter { greeter, server in
            var hello = WireHello.all
            hello.features.append("telepathy")
            hello.version = 7
            let (status, reply) = try await greeter.greet(hello)
            #expect(status == .ok)
            #expect(reply.version == 1)
            #expect(reply.features == ["metadata", "compression", "idempotency"])
            #expect(server.statistics[.hellos] == 1)
        }
    }

    @Test func metadataAndContextOfAHandlerDoNotAffectTheNextAnswer() async throws {
        let kept = NIOLockedValueBox<ServerContext?>(nil)
        var router = Router()
        router.handleSynchronously(Call.echo) { request, context in
            switch String(buffer: request.body) {
            case "say": context.answerMetadata = ["said": "this"]
            case "keep": kept.withLockedValue { $0 = context }
            case "say late": kept.withLockedValue { $0?.answerMetadata = ["said": "late"] }
            default: break
            }
            return request.body
        }
        try await withGreeter(.init(), router) { greeter, _ in
            _ = try await greeter.greet()
            let bodies = ["first", "second", "say", "third", "keep", "say late", "fourth", "say", "fifth"]
            for (serial, body) in zip((50 as UInt32)..., bodies) {
                try await greeter.call(Call.echo, serial: serial, ByteBuffer(string: body))
                let answer = try await greeter.answer()
                #expect(answer.frame.serial == serial)
                #expect(answer.frame.payload == ByteBuffer(string: body))
                #expect(answer.metadata == (body == "say" ? ["said": "this"] : [:]), "\(body)")
            }
            let large = ByteBuffer(repeating: 7, count: 4_000)
            for (length, isCompressed) in [(4_000, true), (1_024, true), (1_023, false), (4_000, true)] {
                let body = large.getSlice(at: 0, length: length) ?? ByteBuffer()
                try await greeter.call(Call.echo, body)
                let frame = try await greeter.client.response()
                #expect((frame.type & FrameType.compressionFlag != 0) == isCompressed)
                #expect((frame.payload == body) != isCompressed)
            }
        }
    }

    @Test func whereHelloIsRequiredWhatFollowsItIsServed() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        try await withGreeter(configuration) { greeter, server in
            _ = try await greeter.greet()
            for serial in 50..<60 as Range<UInt32> {
                try await greeter.call(Call.echo, serial: serial, ByteBuffer(string: "served"))
                #expect(try await greeter.answer().frame.status == .ok)
            }
            #expect(server.statistics[.illegalRequests] == 0)
        }
    }

    @Test func aClientWithATooNewOrMalformedHelloIsServedWithoutHello() async throws {
        try await withGreeter { greeter, server in
            var hello = WireHello.all
            hello.version = 9
            hello.minimumVersion = 2
            #expect(try await greeter.greet(hello).0 == .illegalFormat)
            try await greeter.call(Call.echo, ByteBuffer(string: "all the same"))
            #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "all the same"))
            let other = try await Greeter(server)
            await other.client.perform(
                .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: ByteBuffer(string: "\u{7}")))
            )
            #expect(try await other.client.response().status == .protobufFailed)
        }
    }

    @Test(arguments: [Call.metadata, Call.metadataAtOnce])
    func metadataReachesTheHandlerAndItsComesBack(type: UInt32) async throws {
        try await withGreeter { greeter, _ in
            _ = try await greeter.greet()
            try await greeter.call(type, ByteBuffer(string: "body"), WireMetadata(["asked": "why"]))
            let (frame, metadata) = try await greeter.answer()
            #expect((frame.status, frame.payload) == (.ok, ByteBuffer(string: "body")))
            #expect(metadata == ["seen": "why"])
            // A request without metadata may still be answered with some.
            try await greeter.call(type, serial: 51)
            #expect(try await greeter.answer().metadata == ["seen": "nothing"])
        }
    }

    @Test func flagsWithoutAgreementAreIllegal() async throws {
        try await withGreeter { greeter, server in
            try await greeter.call(Call.echo, ByteBuffer(), WireMetadata(["a": "b"]))
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            var hello = WireHello.all
            hello.features = ["metadata"]
            _ = try await greeter.greet(hello)
            let body = ByteBuffer(repeating: 0, count: 10_000)
            try await greeter.call(Call.echo, serial: 51, body, compression: CompressionPolicy())
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            try await greeter.call(Call.echo, serial: 52, body, WireMetadata(["a": "b"]))
            #expect(try await greeter.answer().frame.status == .ok)
            #expect(server.statistics[.illegalRequests] == 2)
        }
    }

    @Test func bodiesAreCompressedBothWays() async throws {
        try await withGreeter { greeter, _ in
            _ = try await greeter.greet()
            let body = ByteBuffer(string: String(repeating: "a long story ", count: 1_000))
            try await greeter.call(Call.echo, body, compression: CompressionPolicy())
            let raw = try await greeter.client.response()
            #expect(raw.type == Call.echo | FrameType.compressionFlag)
            #expect(raw.payload.readableBytes < 1_000)
            try await greeter.call(Call.echo, serial: 51, body, compression: CompressionPolicy())
            #expect(try await greeter.answer().frame.payload == body)
        }
    }

    @Test func aCompressionBombIsRefusedAndTheConnectionStays() async throws {
        try await withGreeter(.limited { $0.maximumPayloadLength = 1 << 20 }) { greeter, server in
            _ = try await greeter.greet()
            let bomb = ByteBuffer(repeating: 0, count: 64 << 20)
            let sealed = try Envelope.seal(type: Call.echo, body: bomb, compression: CompressionPolicy())
            #expect(sealed.payload.readableBytes < 1 << 20)
            await greeter.client.perform(.frame(Frame(type: sealed.type, serial: 50, payload: sealed.payload)))
            #expect(try await greeter.answer().frame.status == .illegalLength)
            await greeter.client.perform(
                .frame(Frame(type: Call.echo | FrameType.compressionFlag, serial: 51, payload: ByteBuffer(string: "x")))
            )
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            try await greeter.call(Call.echo, serial: 52)
            #expect(try await greeter.answer().frame.status == .ok)
        }
    }

    @Test func decompressedBodiesCountAsHeld() async throws {
        let release = Gate()
        var router = makeRouter()
        router.handle(Call.hold) { _, _ in
            try await release.wait()
            return ByteBuffer()
        }
        let limits = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 700_000
            $0.maximumBufferedBytesPerConnection = 2_000_000
        }
        try await withGreeter(limits, router) { greeter, server in
            _ = try await greeter.greet()
            // The body is in a buffer whose length is a power of two.
            let body = ByteBuffer(repeating: 0, count: 600_000)
            try await greeter.call(Call.hold, body, compression: CompressionPolicy())
            try await eventually("the body") { server.bufferedBytes >= 600_000 }
            #expect(server.bufferedBytes < 1_200_000)
            // The first is still held, and both together exceed the limit.
            try await greeter.call(Call.echo, serial: 51, body, compression: CompressionPolicy())
            let refused = try await greeter.answer().frame
            #expect((refused.serial, refused.status) == (51, .overloaded))
            #expect(server.statistics[.overloadsOfMemory] == 1)
            release.open()
            #expect(try await greeter.answer().frame.serial == 50)
            try await eventually("the release of every body") { server.bufferedBytes == 0 }
            try await greeter.call(Call.echo, serial: 52, body, compression: CompressionPolicy())
            #expect(try await greeter.answer().frame.payload == body)
        }
    }

    @Test func refusedBodiesAreNotDecompressed() async throws {
        let limits = SocketServer.Configuration.limited { $0.requestRate = RequestRate(perSecond: 0.001, burst: 1) }
        try await withGreeter(limits) { greeter, _ in
            _ = try await greeter.greet()
            // Neither can be decompressed; the second is rejected before that is detected.
            for (serial, status) in [(50, .illegalFormat), (51, .overloaded)] as [(UInt32, Status)] {
                let type = Call.echo | FrameType.compressionFlag
                await greeter.client.perform(
                    .frame(Frame(type: type, serial: serial, payload: ByteBuffer(string: "no zlib")))
                )
                #expect(try await greeter.answer().frame.status == status)
            }
        }
    }

    @Test func aLargeAnswerIsNotCompressedOnTheEventLoop() async throws {
        try await withGreeter { greeter, _ in
            _ = try await greeter.greet()
            let body = ByteBuffer(repeating: 1, count: AnswerSeal.largestBodyCompressedOnLoop + 1)
            for (type, answered) in [(Call.echo, Call.echo), (Call.metadata, Call.metadata | FrameType.allFlags)] {
                try await greeter.call(type, body)
                let raw = try await greeter.client.response()
                #expect(raw.type == answered & ~FrameType.continuesFlag)
            }
        }
    }

    // MARK: Deadlines

    @Test func workThatIsStaleWhenItComesIsNotBegun() async throws {
        let counter = Watched(0)
        try await withGreeter(.init(), makeRouter(counter)) { greeter, server in
            _ = try await greeter.greet()
            for (serial, type) in [(50, Call.count), (51, Call.countAtOnce)] as [(UInt32, UInt32)] {
                try await greeter.call(type, serial: serial, ByteBuffer(), WireMetadata(deadline: 0))
                #expect(try await greeter.answer().frame.status == .deadlineExceeded)
            }
            #expect(counter.current == 0)
            #expect(server.statistics[.deadlinesExceeded] == 2)
        }
    }

    @Test func aHandlerIsCancelledAtItsDeadlineAndTheRequestAnswered() async throws {
        let cancelled = Gate()
        var router = makeRouter()
        router.handle(200) { _, context in
            #expect(context.deadline != nil)
            do {
                try await untilCancelled()
            } catch {
                cancelled.open()
                throw error
            }
            return ByteBuffer()
        }
        try await withGreeter(.init(), router) { greeter, server in
            _ = try await greeter.greet()
            try await greeter.call(200, ByteBuffer(), WireMetadata(deadline: 20))
            #expect(try await greeter.answer().frame.status == .deadlineExceeded)
            try await cancelled.wait()
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
            #expect(server.statistics[.deadlinesExceeded] == 1)
            #expect(server.statistics[.handlerErrors] == 0)
        }
    }

    @Test func aDistantDeadlineDoesNoHarm() async throws {
        try await withGreeter { greeter, server in
            _ = try await greeter.greet()
            for (serial, deadline) in [(50, 60_000), (51, .max)] as [(UInt32, UInt64)] {
                try await greeter.call(Call.metadata, serial: serial, ByteBuffer(), WireMetadata(deadline: deadline))
                #expect(try await greeter.answer().frame.status == .ok)
            }
            #expect(server.statistics[.deadlinesExceeded] == 0)
        }
    }

    // MARK: Idempotency

    @Test(arguments: [Call.count, Call.countAtOnce])
    func aRepeatGetsTheFirstAnswerAlsoOnAnotherConnection(type: UInt32) async throws {
        let counter = Watched(0)
        try await withGreeter(.init(), makeRouter(counter)) { greeter, server in
            _ = try await greeter.greet()
            for serial in 50..<53 as Range<UInt32> {
                try await greeter.call(type, serial: serial, ByteBuffer(), WireMetadata(key: "k1"))
                #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "1 k1"))
            }
            let other = try await Greeter(server)
            _ = try await other.greet()
            try await other.call(type, ByteBuffer(), WireMetadata(key: "k1"))
            #expect(try await other.answer().frame.payload == ByteBuffer(string: "1 k1"))
            try await other.call(type, serial: 51, ByteBuffer(), WireMetadata(key: "k2"))
            #expect(try await other.answer().frame.payload == ByteBuffer(string: "2 k2"))
            #expect(server.statistics[.idempotentRepeats] == 3)
        }
    }

    @Test func anotherRequestWithTheSameKeyIsRefused() async throws {
        try await withGreeter { greeter, server in
            _ = try await greeter.greet()
            try await greeter.call(Call.count, ByteBuffer(string: "pay 1"), WireMetadata(key: "k1"))
            #expect(try await greeter.answer().frame.status == .ok)
            let others: [(UInt32, UInt32, String)] = [(51, Call.count, "pay 2"), (52, Call.countAtOnce, "pay 1")]
            for (serial, type, body) in others {
                try await greeter.call(type, serial: serial, ByteBuffer(string: body), WireMetadata(key: "k1"))
                #expect(try await greeter.answer().frame.status == .illegalFormat)
            }
            #expect(server.statistics[.illegalRequests] == 2)
            #expect(server.statistics[.idempotentRepeats] == 0)
        }
    }

    @Test func repeatsThatComeWhileTheFirstIsAtWorkWaitForIt() async throws {
        let counter = Watched(0)
        let release = Gate()
        var router = Router()
        router.handle(200) { _, _ in
            counter.increment()
            try await release.wait()
            return ByteBuffer(string: "done")
        }
        try await withGreeter(.init(), router) { greeter, server in
            _ = try await greeter.greet()
            for serial in 50..<60 as Range<UInt32> {
                try await greeter.call(200, serial: serial, ByteBuffer(), WireMetadata(key: "k"))
            }
            // One of the waiting requests is cancelled.
            await greeter.client.perform(.cancel(59))
            try await eventually("the cancel") {
                server.statistics[.cancelledRequests] == 1 && server.requestsInFlight == 9
            }
            release.open()
            for _ in 50..<59 { #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "done")) }
            #expect(counter.current == 1)
        }
    }

    @Test func aFirstThatWasCancelledIsReplacedByTheNext() async throws {
        let counter = Watched(0)
        let started = Gate()
        var router = Router()
        router.handle(200) { _, _ in
            if counter.increment() == 1 {
                started.open()
                try await untilCancelled()
            }
            return ByteBuffer(string: "second")
        }
        try await withGreeter(.init(), router) { greeter, server in
            _ = try await greeter.greet()
            try await greeter.call(200, serial: 50, ByteBuffer(), WireMetadata(key: "k"))
            try await started.wait()
            try await greeter.call(200, serial: 51, ByteBuffer(), WireMetadata(key: "k"))
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
            await greeter.client.perform(.cancel(50))
            #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "second"))
        }
    }

    /// A database that is unavailable for a second causes no permanent rejection.
    @Test(
        arguments: [nil, .unknown, .database, .noPermission, .deadlineExceeded, .cancelledByServer, .overloaded]
            as [Status?]
    )
    func transientFailureIsNotKeptForTheKey(status: Status?) async throws {
        struct Outage: Error {}
        let counter = Watched(0)
        var router = Router()
        router.handle(200) { _, _ in
            guard counter.increment() > 1 else {
                guard let status else { throw Outage() }
                throw StatusError(status)
            }
            return ByteBuffer(string: "done")
        }
        try await withGreeter(.init(), router) { greeter, _ in
            _ = try await greeter.greet()
            try await greeter.call(200, serial: 50, ByteBuffer(), WireMetadata(key: "k"))
            #expect(try await greeter.answer().frame.status == status ?? .unknown)
            for serial in 51..<53 as Range<UInt32> {
                try await greeter.call(200, serial: serial, ByteBuffer(), WireMetadata(key: "k"))
                #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "done"))
            }
            #expect(counter.current == 2)
        }
    }

    @Test(arguments: [.illegalFormat, .notModified, .protobufFailed, .emptyProtobuf, Status(rawValue: 777)])
    func finalFailureIsKeptForTheKey(status: Status) async throws {
        let counter = Watched(0)
        var router = Router()
        router.handle(200) { _, _ in
            counter.increment()
            throw StatusError(status)
        }
        try await withGreeter(.init(), router) { greeter, _ in
            _ = try await greeter.greet()
            for serial in 50..<53 as Range<UInt32> {
                try await greeter.call(200, serial: serial, ByteBuffer(), WireMetadata(key: "k"))
                #expect(try await greeter.answer().frame.status == status)
            }
            #expect(counter.current == 1)
        }
    }

    @Test func aHandlerThatReturnsAlthoughItsConnectionHasEndedHasRunOnce() async throws {
        let counter = Watched(0)
        let (started, cancelled) = (Gate(), Gate())
        var router = Router()
        router.handle(200) { _, _ in
            guard counter.increment() == 1 else { return ByteBuffer(string: "again") }
            started.open()
            // Completes its work even if no client waits.
            try? await untilCancelled()
            cancelled.open()
            return ByteBuffer(string: "first")
        }
        try await withGreeter(.init(), router) { greeter, server in
            _ = try await greeter.greet()
            try await greeter.call(200, ByteBuffer(), WireMetadata(key: "k"))
            try await started.wait()
            await greeter.client.perform(.reset)
            try await cancelled.wait()
            let other = try await Greeter(server)
            _ = try await other.greet()
            try await other.call(200, ByteBuffer(), WireMetadata(key: "k"))
            #expect(try await other.answer().frame.payload == ByteBuffer(string: "first"))
            #expect(counter.current == 1)
        }
    }

    // MARK: Who it is

    @Test func theTokenSaysWhoTheClientIs() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { token, _ in
            guard token == Array("secret".utf8) else { throw StatusError(.noPermission) }
            return "ann"
        }
        var router = makeRouter()
        router.use(AuthenticationMiddleware())
        try await withGreeter(configuration, router) { greeter, server in
            var hello = WireHello.all
            hello.sessionToken = Data("secret".utf8)
            #expect(try await greeter.greet(hello).0 == .ok)
            try await greeter.call(Call.echo)
            #expect(try await greeter.answer().frame.status == .ok)
            #expect(server.sessions(of: "ann").count == 1)
            #expect(await server.push(type: 2_001, body: ByteBuffer(string: "for you"), to: "ann") == 1)
            #expect(try await greeter.answer().frame.payload == ByteBuffer(string: "for you"))
            #expect(await server.push(type: 2_001, body: ByteBuffer(), to: "bob") == 0)

            let stranger = try await Greeter(server)
            hello.sessionToken = Data("guess".utf8)
            #expect(try await stranger.greet(hello).0 == .noPermission)
            try await stranger.client.ended()

            await greeter.client.perform(.close)
            try await eventually("the end of ann's session") { server.sessions(of: "ann").isEmpty }
        }
    }

    @Test func whereHelloIsRequiredNothingIsServedWithoutIt() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        // Less than the time to become known.
        configuration.limits.firstFrameTimeout = .seconds(5)
        let time = ManualTime()
        configuration.time = SocketTime(time)
        try await withGreeter(configuration) { greeter, server in
            try await eventually("the connection") { server.connectionCount == 1 }
            await time.advance(by: .seconds(4))
            try await greeter.call(Call.echo)
            #expect(try await greeter.answer().frame.status == .illegalFormat)
            // Other frames than hello do not extend its time.
            await time.advance(by: .seconds(3))
            #expect(try await greeter.client.response().type == FrameType.goAway)
            await time.advance(by: .seconds(1))
            try await greeter.client.ended()
            try await eventually("the count") { server.statistics[.firstFrameTimeouts] == 1 }
            let polite = try await Greeter(server)
            #expect(try await polite.greet().0 == .ok)
            try await polite.call(Call.echo)
            #expect(try await polite.answer().frame.status == .ok)
        }
    }

    @Test func whereHelloIsRequiredTheNextRequestIsRefusedAsTheFirst() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        try await withGreeter(configuration) { greeter, _ in
            // All requests have one type, whose route is looked up once.
            await greeter.client.perform(.requests(Call.echo, serials: 50..<60))
            let answers = try await greeter.client.responses(10)
            #expect(answers.allSatisfy { $0.status == .illegalFormat })
            await greeter.client.perform(.request(Call.echo, serial: 60))
            #expect(try await greeter.client.response().status == .illegalFormat)
        }
    }

    @Test func aClientThatHasSaidTheRequiredHelloMayBeSilent() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        // In a later turn of the event loop than the one in which hello arrived.
        configuration.hello.authenticate = { _, _ in
            await Task.yield()
            return "ann"
        }
        let time = ManualTime()
        configuration.time = SocketTime(time)
        try await withGreeter(configuration) { greeter, server in
            #expect(try await greeter.greet().0 == .ok)
            await time.advance(by: .seconds(60))
            #expect(server.statistics[.firstFrameTimeouts] == 0)
            try await greeter.call(Call.echo)
            #expect(try await greeter.answer().frame.status == .ok)
        }
    }

    /// The client has sent hello in time; the time of the server's authentication does not count.
    @Test func aClientThatIsBeingAuthenticatedIsNotTooSlow() async throws {
        let (release, time) = (Gate(), ManualTime())
        var configuration = SocketServer.Configuration()
        configuration.hello.isRequired = true
        configuration.hello.authenticate = { _, _ in
            try await release.wait()
            return "ann"
        }
        // Less than the time to become known.
        configuration.limits.firstFrameTimeout = .seconds(5)
        configuration.time = SocketTime(time)
        try await withGreeter(configuration) { greeter, server in
            await greeter.client.perform(
                .frame(
                    Frame(
                        type: FrameType.hello,
                        serial: FrameSerial.hello,
                        payload: try ByteBuffer(message: WireHello.all)
                    )
                )
            )
            try await eventually("the hello") { release.waitingCount == 1 }
            // A later client that sends nothing.
            let silent = try await HostileClient.connect(to: server.address)
            try await eventually("two connections") { server.connectionCount == 2 }
            await time.advance(by: .seconds(7))
            try await silent.ended()
            release.open()
            #expect(try await greeter.client.response().status == .ok)
            try await eventually("the count") { server.statistics[.firstFrameTimeouts] == 1 }
            try await greeter.call(Call.echo)
            #expect(try await greeter.answer().frame.status == .ok)
        }
    }

    /// If it stayed connected, it would have no identity for as long as the connection lasts.
    @Test func aClientThatCannotBeAuthenticatedNowIsSentAway() async throws {
        struct DatabaseIsAway: Error {}
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { _, _ in throw DatabaseIsAway() }
        try await withGreeter(configuration) { greeter, server in
            #expect(try await greeter.greet().0 == .overloaded)
            let notice: WireGoAway = try await greeter.client.response().payload.message()
            #expect(notice.retryAfter >= 1_000)
            try await greeter.client.ended()
        }
    }

    /// The operator sees why clients do not come, and no line is forged by what they are called.
    @Test func aRefusedHelloIsLoggedAndNamesAreEscaped() async throws {
        let log = InMemoryLogHandler()
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test", factory: { _ in log })
        configuration.hello.authenticate = { token, _ in
            guard !token.isEmpty else { throw StatusError(.noPermission) }
            return String(decoding: token, as: UTF8.self)
        }
        var router = Router()
        router.handle(Call.echo) { _, _ in throw Unexpected(description: "it fails") }
        try await withServer(configuration, router) { server in
            let refused = try await Greeter(server)
            #expect(try await refused.greet().0 == .noPermission)
            try await eventually("the line") {
                log.entries.contains { entry in
                    entry.message == "a client's hello is refused" && entry.level == .info
                        && entry.metadata["reason"]?.description.contains("405") == true
                }
            }
            let named = try await Greeter(server)
            var hello = WireHello.all
            hello.sessionToken = Data("ann\ncritical: forged\r\u{1B}\u{202E}".utf8)
            #expect(try await named.greet(hello).0 == .ok)
            try await named.call(Call.echo)
            _ = try await named.answer()
            try await eventually("the failure") { log.entries.contains { $0.message == "a handler failed" } }
            let line = log.entries.first { $0.message == "a handler failed" }
            #expect(line?.metadata["identity"] == "ann\\ncritical: forged\\r\\u{1B}\\u{202E}")
        }
    }

    @Test func aClientWhoseTokenIsRefusedIsClosed() async throws {
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { _, _ in throw StatusError(.noPermission) }
        try await withGreeter(configuration) { greeter, _ in
            #expect(try await greeter.greet().0 == .noPermission)
            try await greeter.client.ended()
        }
    }

    @Test func aClientWhoseHelloIsNotUnderstoodMaySayItAgain() async throws {
        try await withGreeter(SocketServer.Configuration()) { greeter, _ in
            let malformed = Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                payload: ByteBuffer(bytes: [0xFF])
            )
            await greeter.client.perform(.frame(malformed))
            let refused = try await greeter.client.response()
            #expect(refused.status == .protobufFailed)
            #expect(try await greeter.greet().0 == .ok)
        }
    }

    @Test func aClientThatEndsItsSideAfterHelloGetsItsAnswer() async throws {
        let release = Gate()
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { _, _ in
            try await release.wait()
            return "ann"
        }
        try await withGreeter(configuration) { greeter, _ in
            let hello = Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                payload: try ByteBuffer(message: WireHello.all)
            )
            await greeter.client.perform(.frame(hello).then(.halfClose))
            try await eventually("the hello") { release.waitingCount == 1 }
            release.open()
            #expect(try await greeter.client.response().status == .ok)
            try await greeter.client.ended()
        }
    }

    @Test func authenticatingClientIsClosedWhenTheServerEnds() async throws {
        let started = Gate()
        let cancelled = Gate()
        var configuration = SocketServer.Configuration()
        configuration.hello.authenticate = { _, _ in
            started.open()
            do {
                try await untilCancelled()
            } catch {
                cancelled.open()
                // The authentication returns after the end of the event loops.
                try? await Task.detached { try await Task.sleep(for: .milliseconds(100)) }.value
            }
            return "late"
        }
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            let hello = try ByteBuffer(message: WireHello.all)
            await client.perform(.frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: hello)))
            try await started.wait()
            await server.shutdown(gracePeriod: .zero)
            try await cancelled.wait()
            #expect(server.sessions(of: "late").isEmpty)
        }
    }

    @Test func aFormatThatCannotHaveHelloCannotRequireIt() async throws {
        var configuration = SocketServer.Configuration(wireFormat: .mars)
        configuration.hello.isRequired = true
        let server = SocketServer(configuration: configuration, router: Router())
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
    }
}
