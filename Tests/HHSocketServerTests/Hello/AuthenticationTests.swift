// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let echo: UInt32 = 100

private func makeRouter() -> Router {
    var router = Router()
    router.handleSynchronously(echo) { request, _ in request.body }
    return router
}

/// The authentications of many clients, and hellos over the limits.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AuthenticationTests {
    private static func hello(_ change: (inout WireHello) -> Void = { _ in }) throws -> HostileClient.Act {
        var hello = WireHello.all
        change(&hello)
        let payload = try ByteBuffer(message: hello)
        return .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload))
    }

    /// Reads the rejection of a client: the status of the answer, and the go-away.
    private static func refusal(_ client: HostileClient) async throws -> (Status, WireGoAway) {
        let answer = try await client.response()
        #expect(answer.type == FrameType.hello)
        let notice = try await client.response()
        #expect(notice.type == FrameType.goAway)
        return (answer.status, try notice.payload.message())
    }

    @Test func helloThatIsTooLongIsRefusedBeforeItIsRead() async throws {
        try await withServer(.init(), makeRouter()) { server in
            let client = try await HostileClient.connect(to: server.address)
            let hello = Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                payload: ByteBuffer(repeating: 0, count: 16 << 20)
            )
            // Only the header of the hello.
            await client.perform(.frame(hello).cut(after: 12))
            let answer = try await client.response()
            #expect((answer.type, answer.serial) == (FrameType.hello, FrameSerial.hello))
            #expect(answer.status == .illegalLength)
            try await client.ended()
            #expect(server.statistics[.protocolErrors] == 1)
            // A hello of the greatest length.
            let polite = try await Greeter(server)
            var long = WireHello.all
            long.sessionToken = Data(count: HelloLimits.maximumTokenLength)
            #expect(try await polite.greet(long).0 == .ok)
            // Other requests may have their usual length.
            try await polite.call(echo, ByteBuffer(repeating: 1, count: 1 << 20))
            #expect(try await polite.answer().frame.payload.readableBytes == 1 << 20)
        }
    }

    @Test func concurrentAuthenticationsAreBounded() async throws {
        let (release, running) = (Gate(), Watched((now: 0, most: 0)))
        var configuration = SocketServer.Configuration()
        configuration.hello.maximumConcurrentAuthentications = 3
        configuration.hello.maximumWaitingAuthentications = 4
        configuration.hello.authenticate = { token, _ in
            running.withLockedValue { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
            try await release.wait()
            running.withLockedValue { $0.now -= 1 }
            return String(decoding: token, as: UTF8.self)
        }
        try await withServer(configuration, makeRouter()) { server in
            var clients: [HostileClient] = []
            for number in 0..<7 {
                let client = try await HostileClient.connect(to: server.address)
                await client.perform(try Self.hello { $0.sessionToken = Data("client \(number)".utf8) })
                // One after the other, since the last one is not served.
                try await eventually("client \(number)") {
                    server.authentications.running + server.authentications.waiting == number + 1
                }
                clients.append(client)
            }
            #expect(release.waitingCount == 3)
            let late = try await HostileClient.connect(to: server.address)
            await late.perform(try Self.hello())
            let (status, notice) = try await Self.refusal(late)
            #expect(status == .overloaded)
            #expect((1_000...5_000).contains(notice.retryAfter))
            try await late.ended()
            #expect(server.statistics[.authenticationsRefused] == 1)
            release.open()
            for (number, client) in clients.enumerated() {
                #expect(try await client.response().status == .ok)
                #expect(server.sessions(of: "client \(number)").count == 1)
            }
            #expect(running.current == (0, 3))
        }
    }

    /// Otherwise clients that send hello and disconnect could accumulate them.
    @Test func authenticationThatIgnoresItsCancellationKeepsItsSlot() async throws {
        let (release, begun) = (Gate(), Watched(0))
        var configuration = SocketServer.Configuration()
        configuration.hello.maximumConcurrentAuthentications = 2
        configuration.hello.authenticate = { _, _ in
            begun.increment()
            try await Task { try await release.wait() }.value
            return "ann"
        }
        try await withServer(configuration, makeRouter()) { server in
            for number in 1...20 {
                let client = try await HostileClient.connect(to: server.address)
                // A client that is accepted late would wait behind the next ones.
                try await eventually("client \(number)") { server.statistics[.connectionsAccepted] == number }
                await client.perform(try Self.hello().then(.reset))
            }
            try await eventually("the end of all clients") { server.connectionCount == 0 }
            try await eventually("the end of all that waited") { server.authentications.waiting == 0 }
            #expect(server.authentications.running == 2)
            #expect(begun.current == 2)
            let polite = try await HostileClient.connect(to: server.address)
            await polite.perform(try Self.hello())
            try await eventually("one that waits") { server.authentications.waiting == 1 }
            release.open()
            #expect(try await polite.response().status == .ok)
            #expect(begun.current == 3)
            try await eventually("the end of all authentications") { server.authentications.running == 0 }
        }
    }

    @Test func clientWaitingForAuthenticationMayDisconnect() async throws {
        let release = Gate()
        var configuration = SocketServer.Configuration()
        configuration.hello.maximumConcurrentAuthentications = 1
        configuration.hello.authenticate = { _, _ in
            try await release.wait()
            return "ann"
        }
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            await first.perform(try Self.hello())
            try await eventually("the first") { release.waitingCount == 1 }
            let second = try await HostileClient.connect(to: server.address)
            await second.perform(try Self.hello())
            try await eventually("the second") { server.authentications.waiting == 1 }
            await second.perform(.reset)
            try await eventually("the second's end") { server.authentications.waiting == 0 }
            release.open()
            #expect(try await first.response().status == .ok)
            #expect(release.count == 1)
        }
    }

    /// WebSockets and hellos wait in one line.
    @Test func openingsOfWebSocketsCountToo() async throws {
        let release = Gate()
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "ws://127.0.0.1:0/rpc")])
        configuration.hello.maximumConcurrentAuthentications = 1
        configuration.hello.maximumWaitingAuthentications = 1
        configuration.listeners[0].webSocket?.authenticate = { _ in
            try? await release.wait()
            return .allow()
        }
        try await withServer(configuration, makeRouter()) { server in
            let address = try #require(server.address)
            let url = try Endpoint(url: "ws://127.0.0.1:\(address.port)/rpc")
            var clients: [HostileClient] = []
            for number in 1...2 {
                let client = try await HostileClient(to: url, opensWebSocket: false)
                await client.perform(.opening())
                try await eventually("opening \(number)") {
                    server.authentications.running + server.authentications.waiting == number
                }
                clients.append(client)
            }
            let late = try await HostileClient(to: url, opensWebSocket: false)
            await late.perform(.opening())
            let answer = try await late.opening()
            #expect(answer.status == 503)
            #expect((1...5).contains(answer.header("Retry-After").flatMap { Int($0) } ?? 0))
            try await late.ended()
            #expect(server.statistics[.authenticationsRefused] == 1)
            release.open()
            for client in clients { #expect(try await client.opening().status == 101) }
        }
    }
}
