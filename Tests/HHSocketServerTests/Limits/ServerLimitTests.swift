// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

private let echo: UInt32 = 100
private let hang: UInt32 = 101

private func makeRouter() -> Router {
    var router = Router()
    router.handleSynchronously(echo) { request, _ in request.body }
    router.handle(hang) { _, _ in
        try await untilCancelled()
        return ByteBuffer()
    }
    return router
}

extension Frame {
    /// The content of a go-away; nil for another frame.
    fileprivate var goAway: WireGoAway? {
        guard self.type == FrameType.goAway, self.serial == FrameSerial.goAway, self.status == .ok else { return nil }
        return try? self.payload.message()
    }
}

extension HostileClient {
    fileprivate func echoes(serial: UInt32 = 50) async throws -> Bool {
        await self.perform(.request(echo, serial: serial, "x"))
        let answer = try await self.response()
        return (answer.serial, answer.status) == (serial, .ok)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServerLimitTests {
    @Test func anExcessConnectionIsNotifiedAndAnotherMayComeLater() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.maximumConnections = 2
            $0.maximumConnectionsPerAddress = .max
        }
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            let second = try await HostileClient.connect(to: server.address)
            #expect(try await first.echoes())
            #expect(try await second.echoes())
            let third = try await HostileClient.connect(to: server.address)
            let notice = try #require(try await third.response().goAway)
            #expect(notice.reason.contains("too many"))
            #expect(notice.retryAfter > 0)
            try await third.ended()
            await first.perform(.reset)
            try await eventually("one connection") { server.connectionCount == 1 }
            // Its place becomes free shortly after it is no longer counted.
            var refusals = 1
            var fourth = try await HostileClient.connect(to: server.address)
            while try await !fourth.echoes() {
                refusals += 1
                fourth = try await HostileClient.connect(to: server.address)
            }
            #expect(server.statistics[.connectionsRefused] == refusals)
            #expect(try await second.echoes(serial: 51))
        }
    }

    @Test func connectionsOfAnAddressAreBounded() async throws {
        try await withServer(.limited { $0.maximumConnectionsPerAddress = 1 }, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            #expect(try await first.echoes())
            let second = try await HostileClient.connect(to: server.address)
            #expect(try await second.response().goAway != nil)
            #expect(server.statistics[.connectionsRefusedByAddress] == 1)
        }
    }

    @Test func anExcessWebSocketIsNotified() async throws {
        var configuration = SocketServer.Configuration.limited { $0.maximumConnections = 1 }
        configuration.listeners = [try ServerListener(url: "ws://127.0.0.1:0/rpc")]
        try await withServer(configuration, makeRouter()) { server in
            let endpoint = try Endpoint(url: "ws://127.0.0.1:\(try #require(server.address?.port))/rpc")
            let first = try await HostileClient(to: endpoint)
            #expect(try await first.echoes())
            let second = try await HostileClient(to: endpoint)
            #expect(try #require(try await second.response().goAway).reason.contains("too many"))
            try await second.ended()
        }
    }

    @Test func inAFormatWithoutGoAwayOneTooManyIsClosed() async throws {
        var configuration = SocketServer.Configuration(wireFormat: .mars)
        configuration.limits.maximumConnections = 1
        try await withServer(configuration, makeRouter()) { server in
            let address = try #require(server.address)
            let first = try await HostileClient(to: address, format: .mars)
            try await eventually("one connection") { server.connectionCount == 1 }
            let second = try await HostileClient(to: address, format: .mars)
            try await second.ended()
            await first.perform(.request(echo, serial: 50, "x"))
            #expect(try await first.response().payload == ByteBuffer(string: "x"))
        }
    }

    @Test func requestsInAllAreBounded() async throws {
        try await withServer(.limited { $0.maximumInFlight = 3 }, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            let second = try await HostileClient.connect(to: server.address)
            for serial in 50..<53 as Range<UInt32> { await first.perform(.request(hang, serial: serial)) }
            try await eventually("three requests in flight") { server.requestsInFlight == 3 }
            await second.perform(.request(hang, serial: 50))
            #expect(try await second.response().status == .overloaded)
            // A request that is answered immediately is never in flight.
            #expect(try await second.echoes(serial: 51))
            await first.perform(.cancel(50))
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
            await second.perform(.request(hang, serial: 52))
            try await eventually("three requests in flight") { server.requestsInFlight == 3 }
            await first.perform(.reset)
            await second.perform(.reset)
            try await eventually("the end of every request") { server.requestsInFlight == 0 }
            #expect(server.statistics[.overloads] == 1)
        }
    }

    @Test func theRateOfOneConnectionIsBoundedAndOthersAreNot() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.requestRate = RequestRate(perSecond: 0.001, burst: 2)
        }
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            var statuses: [Status] = []
            for (serial, type) in [(50, echo), (51, echo), (52, echo), (53, hang)] as [(UInt32, UInt32)] {
                await client.perform(.request(type, serial: serial))
                statuses.append(try await client.response().status)
            }
            #expect(statuses == [.ok, .ok, .overloaded, .overloaded])
            #expect(server.statistics[.overloadsOfRate] == 2)
            #expect(try await HostileClient.connect(to: server.address).echoes())
        }
    }

    @Test func theAdaptiveLimitRejectsWhatWasNotExecuted() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.concurrency = AdaptiveConcurrency()
            $0.concurrency?.initial = 2
            $0.concurrency?.minimum = 2
            $0.concurrency?.maximum = 2
        }
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(hang, serial: 50))
            await client.perform(.request(hang, serial: 51))
            await client.perform(.request(hang, serial: 52))
            #expect(try await client.response().status == .overloaded)
            #expect(server.statistics[.overloadsOfConcurrency] == 1)
            #expect(server.requestsInFlight == 2)
            await client.perform(.cancel(50))
            try await eventually("one request in flight") { server.requestsInFlight == 1 }
            await client.perform(.request(hang, serial: 53))
            try await eventually("two requests in flight") { server.requestsInFlight == 2 }
        }
    }

    @Test func bytesOfRequestsInFlightAreBoundedForOneConnection() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 100_000
            $0.maximumBufferedBytesPerConnection = 300_000
        }
        // A body is in a buffer whose length is a power of two.
        let cost = ConnectionCost.request + 1 << 17
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            let body = ByteBuffer(repeating: 1, count: 100_000)
            for serial in 50..<53 as Range<UInt32> {
                await client.perform(.frame(Frame(type: hang, serial: serial, payload: body)))
                try await eventually("request \(serial)") { server.statistics[.requests] == Int(serial) - 49 }
            }
            #expect(try await client.response().status == .overloaded)
            #expect(server.statistics[.overloadsOfMemory] == 1)
            await client.perform(.cancel(50))
            try await eventually("the release of one body") { abs(server.bufferedBytes - cost) < 4_096 }
            await client.perform(.frame(Frame(type: hang, serial: 60, payload: body)))
            try await eventually("two requests with their bodies") {
                server.requestsInFlight == 2 && abs(server.bufferedBytes - 2 * cost) < 4_096
            }
            await client.perform(.reset)
            try await eventually("the release of every body") { server.bufferedBytes == 0 }
        }
    }

    @Test func totalBytesAreBoundedAndTheLargestConnectionIsClosed() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 1 << 20
            $0.maximumBufferedBytes = 300_000
        }
        try await withServer(configuration, makeRouter()) { server in
            let honest = try await HostileClient.connect(to: server.address)
            #expect(try await honest.echoes())
            var greedy: [HostileClient] = []
            for _ in 0..<4 {
                let client = try await HostileClient.connect(to: server.address)
                // A header that announces a megabyte, and a part of the payload.
                var bytes = ByteBuffer()
                bytes.writeMultipleIntegers(echo, 50 as UInt32, 1 << 20 as UInt32)
                bytes.writeRepeatingByte(1, count: 200_000)
                await client.perform(.raw(bytes))
                greedy.append(client)
            }
            try await eventually("the second eviction") { server.statistics[.memoryEvictions] >= 2 }
            #expect(try await honest.echoes(serial: 51))
            for client in greedy { await client.perform(.reset) }
            try await eventually("one connection") { server.connectionCount == 1 }
            #expect(try await honest.echoes(serial: 53))
        }
    }

    // MARK: Time

    @Test func aClientWithNothingToSayIsAskedToGo() async throws {
        let time = ManualTime()
        var configuration = SocketServer.Configuration.limited { $0.idleTimeout = .seconds(10) }
        configuration.time = SocketTime(time)
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            #expect(try await client.echoes())
            await time.advance(by: .seconds(12))
            #expect(try await client.response().goAway?.reason.contains("nothing has happened") == true)
            try await client.ended()
            await client.perform(.close)
            try await eventually("the end of every connection") { server.connectionCount == 0 }
            #expect(server.statistics[.idleEvictions] == 1)
            // A client that waits for its answer is not idle.
            let busy = try await HostileClient.connect(to: server.address)
            await busy.perform(.request(hang, serial: 50))
            try await eventually("the request") { server.requestsInFlight == 1 }
            await time.advance(by: .seconds(60))
            #expect(server.connectionCount == 1)
            await busy.perform(.cancel(50))
            try await eventually("the end of the request") { server.requestsInFlight == 0 }
            await time.advance(by: .seconds(12))
            #expect(try await busy.response().goAway != nil)
        }
    }

    @Test func aFrameThatDoesNotGetOnIsNotWaitedFor() async throws {
        let time = ManualTime()
        var configuration = SocketServer.Configuration.limited { $0.readStallTimeout = .seconds(10) }
        configuration.time = SocketTime(time)
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.raw([0, 0, 0, 100, 0, 0] as [UInt8]))
            try await time.advance(by: .seconds(1), until: "the stall") { server.statistics[.readStalls] == 1 }
            #expect(try await client.response().goAway != nil)
            try await client.ended()
            #expect(server.statistics[.readStalls] == 1)
        }
    }

    @Test func answersThatWaitForEarlierOnesAreBoundedThoughTheyAreEmpty() async throws {
        var configuration = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 1_000
            $0.maximumBufferedBytesPerConnection = 64 << 10
        }
        configuration.answersInOrder = true
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            // The first request is not answered, so no other is.
            await client.perform(.glued(.request(hang, serial: 50), .requests(echo, serials: 51..<2_000)))
            let notice = try #require(try await client.response().goAway)
            #expect(notice.reason.contains("too many bytes"))
            try await client.ended()
            #expect(server.statistics[.memoryEvictions] == 1)
        }
    }

    @Test func aClientThatReadsNothingIsClosed() async throws {
        let configuration = SocketServer.Configuration.limited { $0.writeStallTimeout = .milliseconds(300) }
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address, reads: false)
            try await eventually("one connection") { server.connectionCount == 1 }
            let body = ByteBuffer(repeating: 1, count: 1 << 20)
            while await server.push(type: 2_001, body: body) == 1 {}
            try await eventually("the end of every connection") { server.connectionCount == 0 }
            #expect(server.statistics[.writeStalls] == 1)
            await client.perform(.reset)
        }
    }

    @Test func aSlowClientMayBeClosedInsteadOfMissingPushes() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.slowClients = .disconnect
            $0.maximumWaitingPushes = 2
        }
        try await withServer(configuration, makeRouter()) { server in
            let slow = try await HostileClient.connect(to: server.address, reads: false)
            let quick = try await HostileClient.connect(to: server.address)
            try await eventually("two connections") { server.connectionCount == 2 }
            let body = ByteBuffer(repeating: 1, count: 1 << 20)
            while await server.push(type: 2_001, body: body) == 2 {
                #expect(try await quick.response().payload == body)
            }
            try await eventually("one connection") { server.connectionCount == 1 }
            #expect(server.statistics[.slowClientsClosed] == 1)
            await slow.perform(.reset)
        }
    }

    /// A client that receives an answer over its limit closes the connection, with all its other calls.
    @Test func anAnswerThatClientsDoNotTakeIsAnErrorInstead() async throws {
        var router = makeRouter()
        router.handle(200) { _, _ in ByteBuffer(repeating: 1, count: 20_001) }
        router.handleSynchronously(201) { _, _ in ByteBuffer(repeating: 1, count: 20_001) }
        router.handleSynchronously(202) { _, _ in ByteBuffer(repeating: 1, count: 20_000) }
        try await withServer(.limited { $0.maximumAnswerLength = 20_000 }, router) { server in
            let client = try await HostileClient.connect(to: server.address)
            // The second request of a type is answered on the fast path.
            for (serial, type) in [(50, 200), (51, 201), (52, 201)] as [(UInt32, UInt32)] {
                await client.perform(.request(type, serial: serial))
                let answer = try await client.response()
                #expect((answer.status, answer.payload.readableBytes) == (.illegalLength, 0))
            }
            await client.perform(.request(202, serial: 53))
            #expect(try await client.response().payload.readableBytes == 20_000)
            #expect(server.statistics[.handlerErrors] == 3)
            #expect(await server.push(type: 2_001, body: ByteBuffer(repeating: 1, count: 20_001)) == 0)
            #expect(await server.push(type: 2_001, body: ByteBuffer(repeating: 1, count: 20_000)) == 1)
        }
    }

    @Test func aPushOfATypeThatBelongsToTheProtocolIsNotTaken() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            #expect(try await client.echoes())
            #expect(await server.push(type: 3, body: ByteBuffer()) == 0)
            #expect(await server.push(type: 2_001, body: ByteBuffer()) == 1)
        }
    }

    /// Requests that wait behind a long one take memory, cancelled or not.
    @Test func cancelledRequestsBehindALongOneAreBounded() async throws {
        var configuration = SocketServer.Configuration.limited {
            $0.maximumPayloadLength = 1_000
            $0.maximumBufferedBytesPerConnection = 64 << 10
        }
        configuration.answersInOrder = true
        try await withServer(configuration, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(hang, serial: 50))
            for serial in 51..<2_000 as Range<UInt32> {
                await client.perform(.glued(.request(hang, serial: serial), .cancel(serial)))
                if server.statistics[.memoryEvictions] > 0 { break }
            }
            try await eventually("the end") { server.statistics[.memoryEvictions] == 1 && server.connectionCount == 0 }
        }
    }

    @Test func goAwayThatIsLongerThanTheGraceIsRefused() async throws {
        var configuration = SocketServer.Configuration()
        configuration.shutdown.gracePeriod = .seconds(10)
        configuration.shutdown.retryAfter = .zero...Duration.seconds(11)
        let error = await #expect(throws: SocketError.self) {
            try await SocketServer(configuration: configuration, router: makeRouter()).start()
        }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains("retryAfter") == true)
    }

    /// More clients than are notified in one turn.
    @Test func everyClientIsAskedToGoAwayThoughNotAllAtOnce() async throws {
        try await withServer(.init(), makeRouter()) { server in
            var clients: [HostileClient] = []
            for _ in 0..<3 * ServerLoop.drainStep {
                clients.append(try await HostileClient.connect(to: server.address))
            }
            let count = clients.count
            try await eventually("all of them") { server.connectionCount == count }
            async let end: Void = server.shutdown(gracePeriod: .seconds(60))
            for client in clients {
                #expect(try await client.response().goAway != nil)
                await client.perform(.close)
            }
            await end
        }
    }

    // MARK: The system

    #if os(Linux)
    @Test func aListenerThatTheSystemClosesEndsTheService() async throws {
        await #expect(processExitsWith: .success) {
            let server = SocketServer(configuration: .init(), router: makeRouter())
            let run = Task { try await server.run() }
            try await eventually("the listener") { server.address != nil }
            // No other socket listens in this process.
            for descriptor in 3..<1_000 as Range<CInt> {
                var listens: CInt = 0
                var length = socklen_t(MemoryLayout<CInt>.size)
                guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0, listens != 0 else {
                    continue
                }
                shutdown(descriptor, CInt(SHUT_RDWR))
            }
            let error = await #expect(throws: SocketError.self) {
                try await waitForValue(of: run, "the end")
            }
            #expect(error?.code == .bindFailed)
        }
    }

    /// Other code of the process needs some, and Dispatch ends it if there is none: so a few are left. This thread
    /// blocks, and the handler is called on the event loop.
    @Test func withHardlyAFileDescriptorNoConnectionIsAcceptedUntilThereAreMore() async throws {
        await #expect(processExitsWith: .success) {
            try limitDescriptors(2_048)
            var configuration = SocketServer.Configuration.limited { $0.minimumSilence = nil }
            configuration.eventLoops = 1
            let server = SocketServer(configuration: configuration, router: makeRouter())
            try await server.start()
            try whileNobodyCanBeAccepted(server)
            await server.shutdown(gracePeriod: .zero)
        }
    }
    #endif
}

#if os(Linux)
private func whileNobodyCanBeAccepted(_ server: SocketServer) throws {
    let port = try #require(server.address).port
    let first = try BlockingClient(port: port)
    try first.expectEcho(serial: 50)
    let margin = DescriptorLimit.margin(of: try #require(DescriptorLimit.current))
    var taken: [CInt] = []
    func takeAll() {
        while let free = DescriptorLimit.free, free >= margin { taken.append(dup(0)) }
        #expect(!taken.contains(-1))
    }
    takeAll()
    let start = ContinuousClock.now
    while server.statistics[.acceptFailures] == 0, start.duration(to: .now) < patience { usleep(2_000) }
    #expect(server.statistics[.acceptFailures] == 1)
    // The spare ones, too, which the server has given back: with them, one that anybody else closes would be enough.
    takeAll()
    // The accept that was pending before; none follows it.
    let second = try BlockingClient(port: port)
    try second.expectEcho(serial: 50)
    // The system connects it.
    let third = try BlockingClient(port: port)
    // Connected clients are still served.
    try first.expectEcho(serial: 51)
    #expect(server.connectionCount == 2 && server.statistics[.connectionsAccepted] == 2)
    for descriptor in taken { close(descriptor) }
    try third.expectEcho(serial: 52)
    #expect(server.statistics[.acceptFailures] == 1)
}

extension BlockingClient {
    fileprivate func expectEcho(serial: UInt32) throws {
        let frame = Frame(type: echo, serial: serial, payload: ByteBuffer(string: "x"))
        var (request, response) = (ByteBuffer(), ByteBuffer())
        FrameEncoder(direction: .request).encode(frame, into: &request)
        FrameEncoder(direction: .response).encode(frame, into: &response)
        try self.send(Array(request.readableBytesView))
        #expect(try self.receive(response.readableBytes) == Array(response.readableBytesView))
    }
}
#endif
