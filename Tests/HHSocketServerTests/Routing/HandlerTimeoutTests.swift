// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let hang: UInt32 = 100
private let patient: UInt32 = 101
private let stubborn: UInt32 = 102
private let echo: UInt32 = 103

/// The server's time limit for handlers.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandlerTimeoutTests {
    private let release = Gate()
    private let cancelled = Gate()

    private func makeRouter() -> Router {
        let (release, cancelled) = (self.release, self.cancelled)
        let wait: Router.Handler = { _, _ in
            try? await untilCancelled()
            cancelled.open()
            throw CancellationError()
        }
        var router = Router()
        router.handle(hang, wait)
        router.handle(patient, limits: RouteLimits(timeout: .seconds(3_600)), wait)
        router.handle(stubborn) { _, _ in
            await Task.detached { try? await release.wait() }.value
            return ByteBuffer()
        }
        // A machine that stops must not make it too slow.
        router.handle(echo, limits: RouteLimits(timeout: .seconds(3_600))) { request, _ in request.body }
        return router
    }

    @Test func aHandlerThatTakesTooLongIsCancelledAndAnswered408() async throws {
        try await withServer(.limited { $0.handlerTimeout = .milliseconds(50) }, self.makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            await client.perform(.request(patient, serial: 49 + 1))
            await client.perform(.request(hang, serial: 51))
            let answer = try await client.response()
            #expect((answer.serial, answer.status) == (51, .deadlineExceeded))
            try await self.cancelled.wait()
            #expect(server.statistics[.handlerTimeouts] == 1 && server.statistics[.deadlinesExceeded] == 0)
            try await eventually("the other one in flight") { server.requestsInFlight == 1 }
            // Its serial is free.
            await client.perform(.request(echo, serial: 51, "x"))
            #expect(try await client.response().payload == ByteBuffer(string: "x"))
        }
    }

    @Test func aHandlerThatDoesNotEndContinuesCounting() async throws {
        let configuration = SocketServer.Configuration.limited {
            $0.handlerTimeout = .milliseconds(50)
            $0.maximumInFlightPerConnection = 2
        }
        try await withServer(configuration, self.makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            for serial in 50..<52 as Range<UInt32> { await client.perform(.request(stubborn, serial: serial)) }
            let answers = try await client.responses(2)
            #expect(answers.allSatisfy { $0.status == .deadlineExceeded })
            #expect(server.requestsInFlight == 2)
            await client.perform(.request(echo, serial: 52))
            #expect(try await client.response().status == .overloaded)
            self.release.open()
            try await eventually("the end of the handlers") { server.requestsInFlight == 0 }
            // The connection is notified a moment later.
            var status = Status.overloaded
            for serial in 53..<10_000 as Range<UInt32> where status == .overloaded {
                await client.perform(.request(echo, serial: serial))
                status = try await client.response().status
            }
            #expect(status == .ok)
        }
    }

    @Test func theEarlierOfBothTimesCounts() async throws {
        var configuration = SocketServer.Configuration()
        configuration.limits.handlerTimeout = .seconds(3_600)
        try await withServer(configuration, self.makeRouter()) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            try await greeter.call(hang, serial: 50, ByteBuffer(), WireMetadata(deadline: 20))
            #expect(try await greeter.answer().frame.status == .deadlineExceeded)
            #expect(server.statistics[.deadlinesExceeded] == 1 && server.statistics[.handlerTimeouts] == 0)
        }
        configuration.limits.handlerTimeout = .milliseconds(20)
        try await withServer(configuration, self.makeRouter()) { server in
            let greeter = try await Greeter(server)
            _ = try await greeter.greet()
            try await greeter.call(hang, serial: 50, ByteBuffer(), WireMetadata(deadline: 3_600_000))
            #expect(try await greeter.answer().frame.status == .deadlineExceeded)
            #expect(server.statistics[.deadlinesExceeded] == 0 && server.statistics[.handlerTimeouts] == 1)
        }
    }
}
