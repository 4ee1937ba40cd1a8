// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// Types of the routers below.
private enum Call {
    static let echo: UInt32 = 100
    static let echoInTask: UInt32 = 101
    static let hang: UInt32 = 102
    static let status: UInt32 = 103
    static let fail: UInt32 = 104
}

private struct Secret: Error, CustomStringConvertible {
    var description: String { "the password is swordfish" }
}

private func makeRouter() -> Router {
    var router = Router()
    router.handleSynchronously(Call.echo) { request, _ in request.body }
    router.handle(Call.echoInTask) { request, _ in request.body }
    router.handle(Call.hang) { _, _ in
        try await untilCancelled()
        return ByteBuffer()
    }
    router.handle(Call.status) { request, _ in
        throw StatusError(Status(rawValue: 777), body: ByteBuffer(string: "because"))
    }
    router.handleSynchronously(Call.fail) { _, _ in throw Secret() }
    return router
}

private func answer(_ type: UInt32, _ serial: UInt32, _ status: Status = .ok, _ body: String = "") -> Frame {
    Frame(type: type, serial: serial, status: status, payload: ByteBuffer(string: body))
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketServerAnswerTests {
    @Test func answersByteForByteAsTheProtocolSays() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            // type 100, serial 50, 3 bytes "abc", adler32 0x024D0127
            await client.perform(
                .raw(
                    [
                        0, 0, 0, 100, 0, 0, 0, 50, 0, 0, 0, 3, 0x61, 0x62, 0x63, 0x02, 0x4D, 0x01, 0x27,
                    ] as [UInt8]
                )
            )
            _ = try await client.response()
            #expect(
                try await client.receivedBytes == [
                    0, 0, 0, 100, 0, 0, 0, 50, 0, 0, 0, 200, 0, 0, 0, 3, 0x61, 0x62, 0x63, 0x02, 0x4D, 0x01, 0x27,
                ]
            )
        }
    }

    @Test(arguments: [Call.echo, Call.echoInTask], [0, 1, 512, 513, 16_384, 16_385, 70_000, 3 << 20])
    func bodiesOfEverySizeComeBackIntact(type: UInt32, size: Int) async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            let body = ByteBuffer(bytes: (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) })
            await client.perform(.request(type, serial: 50, body))
            await client.perform(.request(type, serial: 51, body))
            for frame in try await client.responses(2).sorted(by: { $0.serial < $1.serial }) {
                #expect(frame.status == .ok)
                #expect(frame.payload == body)
            }
        }
    }

    @Test func bytesMayComeOneByOne() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(
                .glued(.request(Call.echo, serial: 50, "one"), .request(Call.echoInTask, serial: 51, "two")).dribbled()
            )
            #expect(try await client.response() == answer(Call.echo, 50, .ok, "one"))
            #expect(try await client.response() == answer(Call.echoInTask, 51, .ok, "two"))
        }
    }

    @Test func gluedRequestsAreAllAnswered() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            var all = HostileClient.Act.raw([])
            for serial in 50..<1050 as Range<UInt32> {
                all = all.then(.request(Call.echo, serial: serial, "s\(serial)"))
                all = all.then(.request(Call.echoInTask, serial: serial + 10_000, "a\(serial)"))
            }
            await client.perform(all)
            var synchronous: [UInt32] = []
            var asynchronous: Set<UInt32> = []
            for frame in try await client.responses(2_000) {
                #expect(frame.status == .ok)
                if frame.type == Call.echo {
                    #expect(frame.payload == ByteBuffer(string: "s\(frame.serial)"))
                    synchronous.append(frame.serial)
                } else {
                    #expect(frame.payload == ByteBuffer(string: "a\(frame.serial - 10_000)"))
                    asynchronous.insert(frame.serial)
                }
            }
            #expect(synchronous == Array(50..<1050))
            #expect(asynchronous == Set(10_050..<11_050))
            #expect(server.statistics[.requests] == 2_000)
        }
    }

    @Test func unknownTypeIsAnsweredAndTheConnectionStays() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(9999, serial: 50, "?"))
            #expect(try await client.response() == answer(9999, 50, .undefinedType))
            await client.perform(.request(Call.echo, serial: 51, "still here"))
            #expect(try await client.response() == answer(Call.echo, 51, .ok, "still here"))
            #expect(server.statistics[.unknownTypes] == 1)
        }
    }

    @Test func badChecksumIsAnsweredAndTheConnectionStays() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(Call.echo, serial: 50, "broken").corrupted())
            #expect(try await client.response() == answer(Call.echo, 50, .lostPacket))
            await client.perform(.request(Call.echo, serial: 50, "whole"))
            #expect(try await client.response() == answer(Call.echo, 50, .ok, "whole"))
            #expect(server.statistics[.badChecksums] == 1)
        }
    }

    @Test func nonsenseAfterABadChecksumCloses() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(
                .glued(
                    .request(Call.echo, serial: 50, "broken").corrupted(),
                    .request(0x8000_0000 | Call.echo, serial: 51),
                    .request(Call.echo, serial: 52, "after")
                )
            )
            #expect(try await client.response() == answer(Call.echo, 50, .lostPacket))
            try await client.ended()
            #expect(server.statistics[.requests] == 0)
            #expect(server.statistics[.protocolErrors] == 1)
        }
    }

    @Test(arguments: [1, 3, 5])
    func aRunOfBadChecksumsIsAnsweredAndCloses(limit: Int) async throws {
        try await withServer(.limited { $0.maximumCorruptRun = limit }, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            let broken = (0..<UInt32(limit)).map { serial in
                HostileClient.Act.request(Call.echo, serial: 50 + serial, "broken").corrupted()
            }
            await client.perform(.glued(broken + [.request(Call.echo, serial: 99, "after")]))
            for serial in 0..<UInt32(limit) {
                #expect(try await client.response() == answer(Call.echo, 50 + serial, .lostPacket))
            }
            try await client.ended()
            #expect(server.statistics[.requests] == 0)
            #expect(server.statistics[.badChecksums] == limit)
            #expect(server.statistics[.protocolErrors] == 1)
        }
    }

    @Test func illegalLengthIsAnsweredAndCloses() async throws {
        try await withServer(.limited { $0.maximumPayloadLength = 1000 }, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(Call.echo, serial: 50, ByteBuffer(repeating: 7, count: 1000)))
            #expect(try await client.response().status == .ok)
            await client.perform(
                .glued(
                    .request(Call.echo, serial: 51, "before"),
                    .request(Call.echo, serial: 52, ByteBuffer(repeating: 7, count: 1001)),
                    .request(Call.echo, serial: 53, "after")
                )
            )
            #expect(try await client.response() == answer(Call.echo, 51, .ok, "before"))
            #expect(try await client.response() == answer(Call.echo, 52, .illegalLength))
            try await client.ended()
            await #expect(throws: NothingHappened.self) { try await client.response() }
            await client.perform(.close)
            try await eventually("the end of every connection") { server.connectionCount == 0 }
            #expect(server.statistics[.protocolErrors] == 1)
        }
    }

    @Test func clientThatStaysAfterAProtocolErrorIsClosedAllTheSame() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.raw([UInt8](repeating: 0xFF, count: 12)))
            try await client.ended()
            try await eventually("the end of every connection") { server.connectionCount == 0 }
            await client.perform(.close)
        }
    }

    @Test func garbageDoesNotAffectOtherClients() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let honest = try await HostileClient.connect(to: server.address)
            for round in 0..<20 as Range<UInt32> {
                let hostile = try await HostileClient.connect(to: server.address)
                await hostile.perform(.garbage(10_000, seed: UInt64(round)))
                await honest.perform(.request(Call.echo, serial: 50 + round, "x"))
                #expect(try await honest.response() == answer(Call.echo, 50 + round, .ok, "x"))
                await hostile.perform(.close)
            }
            try await eventually("one connection") { server.connectionCount == 1 }
        }
    }

    @Test func reservedAndDuplicateSerialsAreAnsweredIllegalFormat() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(Call.echo, serial: 49, "reserved"))
            #expect(try await client.response() == answer(Call.echo, 49, .illegalFormat))
            await client.perform(.request(Call.hang, serial: 50))
            await client.perform(.request(Call.echo, serial: 50, "duplicate"))
            #expect(try await client.response() == answer(Call.echo, 50, .illegalFormat))
            await client.perform(.request(Call.echo, serial: 51, "fine"))
            #expect(try await client.response() == answer(Call.echo, 51, .ok, "fine"))
            #expect(server.statistics[.illegalRequests] == 2)
        }
    }

    @Test func tooManyInFlightAreAnsweredOverloaded() async throws {
        try await withServer(.limited { $0.maximumInFlightPerConnection = 2 }, makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in 50..<53 as Range<UInt32> { await client.perform(.request(Call.hang, serial: serial)) }
            #expect(try await client.response() == answer(Call.hang, 52, .overloaded))
            #expect(server.statistics[.overloads] == 1)
        }
    }

    @Test func handlersChooseTheStatusAndLeakNothingElse() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(Call.status, serial: 50))
            #expect(try await client.response() == answer(Call.status, 50, Status(rawValue: 777), "because"))
            await client.perform(.request(Call.fail, serial: 51))
            #expect(try await client.response() == answer(Call.fail, 51, .unknown))
        }
    }

    @Test func contextDistinguishesConnections() async throws {
        var router = Router()
        router.handleSynchronously(100) { _, context in
            ByteBuffer(string: "\(context.session.id) \(context.session.remoteAddress?.port ?? 0)")
        }
        try await withServer(.init(), router) { server in
            var seen: Set<ByteBuffer> = []
            for _ in 0..<3 {
                let client = try await HostileClient.connect(to: server.address)
                await client.perform(.request(100, serial: 50))
                let body = try await client.response().payload
                #expect(String(buffer: body).hasSuffix(" \(client.localAddress?.port ?? -1)"))
                seen.insert(body)
            }
            #expect(seen.count == 3)
        }
    }

    @Test func manyConnectionsAtOnce() async throws {
        try await withServer(.init(), makeRouter()) { server in
            try await withThrowingTaskGroup { group in
                for number in 0..<200 as Range<UInt32> {
                    group.addTask {
                        let client = try await HostileClient.connect(to: server.address)
                        for serial in 50..<70 as Range<UInt32> {
                            let type = serial.isMultiple(of: 2) ? Call.echo : Call.echoInTask
                            await client.perform(.request(type, serial: serial, "\(number)/\(serial)"))
                            #expect(try await client.response() == answer(type, serial, .ok, "\(number)/\(serial)"))
                        }
                        await client.perform(.close)
                    }
                }
                try await group.waitForAll()
            }
            #expect(server.statistics[.connectionsAccepted] == 200)
            #expect(server.statistics[.requests] == 4000)
            try await eventually("the end of every connection") { server.connectionCount == 0 }
        }
    }

    @Test(arguments: [0, 15, 0x2000_0000] as [UInt32])
    func serverWithAHandlerForAReservedTypeDoesNotStart(type: UInt32) async throws {
        var router = Router()
        router.handleSynchronously(type) { request, _ in request.body }
        let server = SocketServer(router: router)
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains("type \(type)") == true)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketServerControlTests {
    @Test func heartbeatsAreAnswered() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in [0, 5, 77] as [UInt32] {
                await client.perform(.request(FrameType.heartbeat, serial: serial))
                #expect(try await client.response() == answer(FrameType.heartbeat, serial))
            }
            #expect(server.statistics[.heartbeatsAnswered] == 3)
            #expect(server.statistics[.pingsSent] == 0)
        }
    }

    @Test func pingsAndDoesNotAnswerTheirAnswers() async throws {
        let policy = HeartbeatPolicy(interval: .milliseconds(50), replyTimeout: .seconds(20))
        try await withServer(.init(heartbeat: policy), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for _ in 0..<3 {
                #expect(try await client.response() == answer(FrameType.heartbeat, FrameSerial.serverPing, .ping))
                await client.perform(.request(FrameType.heartbeat, serial: FrameSerial.serverPing))
            }
            await client.perform(.request(Call.echo, serial: 50))
            var frame = try await client.response()
            while frame.status == .ping { frame = try await client.response() }
            #expect(frame == answer(Call.echo, 50))
            #expect(server.statistics[.heartbeatsAnswered] == 0)
        }
    }

    @Test func payloadIsMadeForEachOfItsPings() async throws {
        let count = NIOLockedValueBox(0)
        var policy = HeartbeatPolicy(interval: .milliseconds(50), replyTimeout: .seconds(20))
        policy.makePayload = {
            let number = count.withLockedValue { count in
                count += 1
                return count
            }
            return ByteBuffer(string: "ping \(number)")
        }
        try await withServer(.init(heartbeat: policy), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for number in 1...3 {
                let ping = answer(FrameType.heartbeat, FrameSerial.serverPing, .ping, "ping \(number)")
                #expect(try await client.response() == ping)
                await client.perform(.request(FrameType.heartbeat, serial: FrameSerial.serverPing))
            }
        }
    }

    @Test func clientThatAnswersNoPingIsClosed() async throws {
        let policy = HeartbeatPolicy(interval: .milliseconds(20), replyTimeout: .milliseconds(20), misses: 1)
        try await withServer(.init(heartbeat: policy), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            try await client.ended()
            #expect(server.statistics[.pingsSent] == 2)
            #expect(server.statistics[.deadPeers] == 1)
        }
    }

    @Test func otherControlFramesAreIgnored() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for type in [1] + Array(3...15) as [UInt32] { await client.perform(.request(type, serial: 50, "?")) }
            await client.perform(.request(Call.echo, serial: 50))
            #expect(try await client.response() == answer(Call.echo, 50))
            #expect(server.statistics[.ignoredControlFrames] == 14)
        }
    }

    @Test func cancelStopsTheHandlerWithoutAnAnswer() async throws {
        let started = Gate()
        let cancelled = Gate()
        var router = makeRouter()
        router.handle(200) { _, _ in
            try await withTaskCancellationHandler {
                started.open()
                try await untilCancelled()
            } onCancel: {
                cancelled.open()
            }
            return ByteBuffer(string: "late")
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(200, serial: 50))
            try await started.wait()
            await client.perform(.request(FrameType.cancel, serial: 50, "undo it"))
            try await cancelled.wait()
            // The serial is free again, and the cancelled request is not answered.
            await client.perform(.request(Call.echo, serial: 50, "again"))
            #expect(try await client.response() == answer(Call.echo, 50, .ok, "again"))
            #expect(server.statistics[.cancelledRequests] == 1)
        }
    }

    @Test func answerOfAHandlerThatIgnoresCancellationIsDropped() async throws {
        let started = Gate()
        let cancelled = Gate()
        let returned = Gate()
        var router = makeRouter()
        router.handle(200) { _, _ in
            defer { returned.open() }
            started.open()
            await withCheckedContinuation { continuation in
                Task {
                    try? await cancelled.wait()
                    continuation.resume()
                }
            }
            return ByteBuffer(string: "late")
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(200, serial: 50))
            try await started.wait()
            await client.perform(.request(FrameType.cancel, serial: 50))
            await client.perform(.request(Call.hang, serial: 50))
            await client.perform(.request(Call.echo, serial: 51))
            #expect(try await client.response() == answer(Call.echo, 51))
            cancelled.open()
            try await returned.wait()
            for serial in 60..<70 as Range<UInt32> {
                await client.perform(.request(Call.echoInTask, serial: serial))
                #expect(try await client.response() == answer(Call.echoInTask, serial))
            }
        }
    }

    @Test func disconnectCancelsWhatIsInFlight() async throws {
        let started = Gate()
        let cancelled = Gate()
        var router = Router()
        router.handle(200) { _, _ in
            await withTaskCancellationHandler {
                started.open()
                try? await untilCancelled()
            } onCancel: {
                cancelled.open()
            }
            return ByteBuffer()
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(200, serial: 50))
            try await started.wait()
            // A plain close could mean that the client only stopped sending.
            await client.perform(.reset)
            try await cancelled.wait()
            try await eventually("the end of every connection") { server.connectionCount == 0 }
        }
    }

    @Test func halfClosedClientStillGetsItsAnswers() async throws {
        let release = Gate()
        var router = makeRouter()
        router.handle(200) { request, _ in
            try await release.wait()
            return request.body
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address)
            let large = ByteBuffer(repeating: 3, count: 5 << 20)
            await client.perform(.request(200, serial: 50, "slow"))
            await client.perform(.request(Call.echo, serial: 51, large))
            await client.perform(.halfClose)
            #expect(try await client.response().payload == large)
            release.open()
            #expect(try await client.response() == answer(200, 50, .ok, "slow"))
            try await client.ended()
            try await eventually("the end of every connection") { server.connectionCount == 0 }
        }
    }

    @Test func halfClosedClientWithNothingInFlightIsClosed() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.halfClose)
            try await client.ended()
            try await eventually("the end of every connection") { server.connectionCount == 0 }
        }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketServerFlowTests {
    @Test func clientThatDoesNotReadIsNotReadFrom() async throws {
        let calls = Watched(0)
        let body = ByteBuffer(repeating: 1, count: 1 << 20)
        var router = Router()
        router.handleSynchronously(100) { _, _ in
            calls.increment()
            return body
        }
        try await withServer(.init(), router) { server in
            let client = try await HostileClient.connect(to: server.address, reads: false)
            let count = 300
            await client.perform(.requests(100, serials: 50..<(50 + UInt32(count))))
            await client.perform(.halfClose)
            // Waits for the final number, more than 0: the kernels' buffers, and one turn.
            var last = 0
            repeat {
                last = calls.current
                try await Task.sleep(for: .milliseconds(200))
            } while last == 0 || calls.current > last
            #expect(last < 60)
            await client.perform(.startReading)
            for received in 0..<count {
                let frame = try await client.response()
                #expect(frame.serial == 50 + UInt32(received))
                #expect(frame.payload.readableBytes == 1 << 20)
            }
            try await client.ended()
            #expect(calls.current == count)
        }
    }

    @Test func pushesReachEveryConnection() async throws {
        try await withServer(.init(), makeRouter()) { server in
            #expect(await server.push(type: 2001, body: ByteBuffer(string: "nobody")) == 0)
            var clients: [HostileClient] = []
            for _ in 0..<10 { clients.append(try await HostileClient.connect(to: server.address)) }
            try await eventually("ten connections") { server.connectionCount == 10 }
            #expect(await server.push(type: 2001, body: ByteBuffer(string: "news")) == 10)
            for client in clients {
                #expect(try await client.response() == answer(2001, FrameSerial.push, .ok, "news"))
            }
            #expect(server.statistics[.pushesSent] == 10)
        }
    }

    @Test func pushesToASlowReaderAreDroppedBeyondTheLimit() async throws {
        try await withServer(.limited { $0.maximumWaitingPushBytes = 100_000 }, makeRouter()) { server in
            let slow = try await HostileClient.connect(to: server.address, reads: false)
            let quick = try await HostileClient.connect(to: server.address)
            try await eventually("two connections") { server.connectionCount == 2 }
            let body = ByteBuffer(repeating: 1, count: 1 << 20)
            var sent = 0
            while await server.push(type: 2001, body: body) == 2 {
                sent += 1
                #expect(try await quick.response().payload == body)
                guard sent < 1000 else { break }
            }
            #expect(server.statistics[.pushesDropped] == 1)
            #expect(try await quick.response().payload == body)
            await slow.perform(.startReading)
            for _ in 0..<sent { #expect(try await slow.response().payload == body) }
        }
    }

    @Test func callsAndPushesMix() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            try await eventually("one connection") { server.connectionCount == 1 }
            for serial in 50..<150 as Range<UInt32> {
                await client.perform(.request(Call.echoInTask, serial: serial, "call"))
                await server.push(type: 2001, body: ByteBuffer(string: "push"))
                let frames = try await client.responses(2)
                #expect(Set(frames) == [answer(Call.echoInTask, serial, .ok, "call"), answer(2001, 1, .ok, "push")])
            }
        }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketServerLifeTests {
    @Test func shutdownFinishesWhatIsInFlightAndRefusesTheRest() async throws {
        let started = Gate()
        let release = Gate()
        var router = makeRouter()
        router.handle(200) { request, _ in
            started.open()
            try await release.wait()
            return request.body
        }
        let server = SocketServer(router: router)
        try await server.start()
        let address = server.address
        let busy = try await HostileClient.connect(to: address)
        let idle = try await HostileClient.connect(to: address)
        await busy.perform(.request(200, serial: 50, "slow"))
        try await started.wait()
        try await eventually("two connections") { server.connectionCount == 2 }
        async let shutdown: Void = server.shutdown(gracePeriod: .seconds(600))
        #expect(try await idle.response().type == FrameType.goAway)
        #expect(try await busy.response().type == FrameType.goAway)
        for client in [busy, idle] {
            await client.perform(.request(Call.echo, serial: 51))
            #expect(try await client.response() == answer(Call.echo, 51, .draining))
        }
        await #expect(throws: (any Error).self) { try await HostileClient.connect(to: address) }
        release.open()
        #expect(try await busy.response() == answer(200, 50, .ok, "slow"))
        // The server does not close connections during the grace period; the clients do.
        #expect(server.connectionCount == 2)
        await idle.perform(.close)
        await busy.perform(.close)
        await shutdown
        #expect(server.connectionCount == 0)
        #expect(server.address == nil)
        #expect(server.statistics[.refusedWhileDraining] == 2)
        #expect(server.statistics[.requests] == 3)
        #expect(server.statistics[.goAwaysSent] == 2)
    }

    @Test func shutdownCancelsWhatOutlivesTheGrace() async throws {
        let started = Gate()
        let cancelled = Gate()
        var router = Router()
        router.handle(200) { _, _ in
            await withTaskCancellationHandler {
                started.open()
                try? await untilCancelled()
            } onCancel: {
                cancelled.open()
            }
            return ByteBuffer()
        }
        let server = SocketServer(router: router)
        try await server.start()
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(200, serial: 50))
        try await started.wait()
        await server.shutdown(gracePeriod: .milliseconds(50))
        try await cancelled.wait()
        try await client.ended()
    }

    @Test func secondShutdownShortensTheGrace() async throws {
        let server = SocketServer(router: makeRouter())
        try await server.start()
        let client = try await HostileClient.connect(to: server.address)
        await client.perform(.request(Call.hang, serial: 50))
        await client.perform(.request(Call.echo, serial: 51))
        _ = try await client.response()
        async let slow: Void = server.shutdown(gracePeriod: .seconds(3600))
        try await eventually("the end of listening") { server.address == nil }
        await server.shutdown(gracePeriod: .zero)
        await slow
        try await client.ended()
    }

    /// For example, a client that reconnects immediately, before the listener is closed, would receive no further
    /// go-away.
    @Test func connectionThatBeginsAfterTheGraceIsClosed() async throws {
        try await withServer(.init(), makeRouter()) { server in
            for loop in server.loops { loop.kill() }
            let client = try await HostileClient.connect(to: server.address)
            try await client.ended()
        }
    }

    @Test func shutdownOfAServerThatIsStartingWaitsForItAndEndsIt() async throws {
        var configuration = SocketServer.Configuration()
        // Many listeners take a while to open.
        configuration.listeners = (0..<100).map { _ in ServerListener(host: "127.0.0.1", port: 0) }
        var overtaken = 0
        for _ in 0..<50 where overtaken == 0 {
            let server = SocketServer(configuration: configuration, router: Router())
            let starting = Task { try await server.start() }
            while !server.isStarting, server.address == nil { await Task.yield() }
            if server.isStarting { overtaken += 1 }
            await server.shutdown(gracePeriod: .zero)
            #expect(server.address == nil)
            try await starting.value
            #expect(server.address == nil)
        }
        #expect(overtaken > 0)
    }

    @Test func shutdownOfAServerThatDoesNotRunReturns() async {
        let server = SocketServer(router: Router())
        await server.shutdown()
        #expect(await server.push(type: 2001, body: ByteBuffer()) == 0)
        #expect(server.statistics == ServerStatistics())
    }

    @Test func releasedServerClosesItsConnections() async throws {
        var server: SocketServer? = SocketServer(router: makeRouter())
        try await server?.start()
        let client = try await HostileClient.connect(to: server?.address)
        await client.perform(.request(Call.echo, serial: 50))
        _ = try await client.response()
        server = nil
        try await client.ended()
    }

    @Test func serversMayShareEventLoops() async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        try await withServer(.init(eventLoopGroup: group), makeRouter()) { first in
            try await withServer(.init(eventLoopGroup: group), makeRouter()) { second in
                for server in [first, second] {
                    let client = try await HostileClient.connect(to: server.address)
                    await client.perform(.request(Call.echo, serial: 50))
                    #expect(try await client.response() == answer(Call.echo, 50))
                }
            }
        }
    }

    // MARK: Failing to start

    private func startError(_ configuration: SocketServer.Configuration) async -> SocketError? {
        let server = SocketServer(configuration: configuration, router: Router())
        do {
            try await server.start()
            await server.shutdown(gracePeriod: .zero)
            return nil
        } catch {
            return error
        }
    }

    @Test func takenPortIsNamed() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let port = try #require(server.address?.port)
            let error = try #require(await self.startError(.init(port: port)))
            #expect(error.code == .bindFailed)
            #expect(error.endpoint == Endpoint(host: "127.0.0.1", port: port))
            #expect(error.message.contains("127.0.0.1:\(port)"))
        }
    }

    @Test func foreignAddressIsNamed() async throws {
        let error = try #require(await self.startError(.init(host: "192.0.2.1", port: 7000)))
        #expect(error.code == .bindFailed)
        #expect(error.message.contains("192.0.2.1:7000"))
    }

    @Test func unknownHostIsNamed() async throws {
        let error = try #require(await self.startError(.init(host: "no-such-host.invalid", port: 7000)))
        #expect(error.code == .hostNotFound)
        #expect(error.message.contains("no-such-host.invalid:7000"))
    }

    @Test(arguments: [-1, 65_536, .max])
    func impossiblePortIsRefused(port: Int) async throws {
        #expect(await self.startError(.init(port: port))?.code == .invalidArgument)
    }

    @Test func impossibleLimitIsRefused() async throws {
        #expect(await self.startError(.limited { $0.maximumInFlightPerConnection = 0 })?.code == .invalidArgument)
        #expect(await self.startError(.limited { $0.idleTimeout = .zero })?.code == .invalidArgument)
        #expect(await self.startError(.limited { $0.readStallTimeout = .seconds(-1) })?.code == .invalidArgument)
        #expect(await self.startError(.limited { $0.maximumConnections = 0 })?.code == .invalidArgument)
        #expect(
            await self.startError(.limited { $0.maximumBufferedBytesPerConnection = 1 << 20 })?.code
                == .invalidArgument
        )
    }

    @Test func serverCanBeStartedOnce() async throws {
        try await withServer(.init(), makeRouter()) { server in
            await #expect(throws: SocketError.self) { try await server.start() }
            #expect(server.address != nil)
        }
    }
}
