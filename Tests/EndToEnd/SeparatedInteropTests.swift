// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Frames with separators over TCP: damage loses only its frame, and neither the connection nor another call.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SeparatedInteropTests {
    private func withClient(
        _ server: MockServer,
        _ change: (inout SocketClient.Configuration) -> Void = { _ in },
        _ body: (SocketClient) async throws -> Void
    ) async throws {
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.wireFormat = .separated
            change(&$0)
        }
        let result = await Result { try await body(client) }
        await client.close()
        try result.get()
    }

    private var router: Router {
        var router = Router()
        router.handleSynchronously(100) { request, _ in request.body }
        return router
    }

    @Test(
        arguments: [
            // Too short, too long, over the limit, and without an end.
            "100-50-200-1-\r\nhello-\r\n", "100-50-200-6-\r\nhello-\r\n", "100-50-200-999999999-\r\nhello-\r\n",
            "100-50-200-5-\r\nhello!\r\n-\r\n",
        ]
    )
    func aDamagedAnswerFailsItsCallAlone(answer: String) async throws {
        let server = try await MockServer(format: .separated)
        server.on(100, .raw(ByteBuffer(string: answer)))
        server.on(101, .echo)
        // A length that is one too large is noticed when the next frame arrives.
        try await self.withClient(server, { $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(200)) }) {
            client in
            let error = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 100, body: "x"))
            }
            #expect(error?.code == .illegalFormat)
            #expect(error?.serial == 50)
            #expect(error?.delivery == .sentUnknown)
            #expect(error?.underlying is FrameError)
            let next = try await client.data(for: SocketRequest(type: 101, body: "still here"))
            #expect(next.string == "still here")
            #expect(client.statistics.malformedFrames == 1)
            #expect(server.connections.count == 1)
        }
    }

    @Test func garbageBetweenAnswersCostsNothing() async throws {
        let server = try await MockServer(format: .separated)
        server.on(100, .glued(.raw(ByteBuffer(string: "HTTP/1.1 400-\r\n")), .echo))
        try await self.withClient(server) { client in
            for text in ["one", "two", "three", "four"] {
                let answer = try await client.data(for: SocketRequest(type: 100, body: ByteBuffer(string: text)))
                #expect(answer.string == text)
            }
            #expect(client.statistics.malformedFrames == 4)
            #expect(server.connections.count == 1)
        }
    }

    @Test func aRunOfDamagedFramesCausesAReconnect() async throws {
        let server = try await MockServer(format: .separated)
        server.on(100, .raw(ByteBuffer(string: "a-\r\nb-\r\nc-\r\n")))
        server.on(101, .echo)
        try await self.withClient(server, { $0.socket.backoff = .immediate }) { client in
            let error = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 100, body: "x"))
            }
            #expect(error?.code == .connectionLost || error?.code == .protocolViolation, "\(String(describing: error))")
            // A call in the moment before the client connects again fails.
            try await client.connected()
            let answer = try await client.data(for: SocketRequest(type: 101, body: "again"))
            #expect(answer.string == "again")
        }
    }

    /// A damaged push does not end the call with its serial.
    @Test(arguments: ["100 50 2 4\nhello\n", "100 50 2 99999999\nhello\n"])
    func aDamagedPushThatHasACallsSerialDoesNotFailIt(push: String) async throws {
        let format = try WireFormat(
            json: Data(
                #"""
                {
                  "request":  [{"field": "type", "digits": "decimal"}, {"text": " "}, {"field": "serial", "digits": "decimal"},
                               {"text": " "}, {"flags": "0x30"}, {"text": " "}, {"field": "length", "digits": "decimal"}, {"text": "\n"}],
                  "response": [{"field": "type", "digits": "decimal"}, {"text": " "}, {"field": "serial", "digits": "decimal"},
                               {"text": " "}, {"flags": "0x30"}, {"text": " "}, {"field": "length", "digits": "decimal"}, {"text": "\n"}],
                  "bodyEnd": {"text": "\n"},
                  "push": {"flag": "0x32", "mask": "0xFF"}
                }
                """#.utf8
            )
        )
        let server = try await MockServer(format: format)
        server.on(100, .glued(.raw(ByteBuffer(string: push)), .echo))
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.wireFormat = format }
        let answer = await Result { try await client.data(for: SocketRequest(type: 100, body: "mine")) }
        #expect(try answer.get().string == "mine")
        #expect(client.statistics.malformedFrames == 1)
        await client.close()
    }

    /// A length that is too long withholds the later answers, until its call times out.
    @Test func anAnswerWhoseLengthIsTooLongIsGivenUpWithItsCall() async throws {
        let server = try await MockServer(format: .separated)
        server.on(100, .glued(.push(2_001, "before"), .raw(ByteBuffer(string: "100-50-200-50000-\r\nhello-\r\n"))))
        server.on(101, .echo)
        let time = ManualTime()
        try await self.withClient(server, { $0.socket.time = SocketTime(time) }) { client in
            let first = Task { try await client.data(for: SocketRequest(type: 100, timeout: .seconds(20))) }
            try await eventually("the answer") { client.statistics.pushes == 1 }
            let behind = SocketRequest(type: 101, body: "behind it", timeout: patience)
            let second = Task { try await client.data(for: behind) }
            _ = try await server.received(1, ofType: 101)
            await time.advance(by: .seconds(20))
            let error = await #expect(throws: SocketError.self) { try await first.value }
            #expect(error?.code == .timeout)
            let answer = try await second.value
            #expect(answer.string == "behind it")
            #expect(server.connections.count == 1)
        }
    }

    @Test func aPushWhoseLengthIsTooLongIsGivenUpByTheStallClock() async throws {
        let server = try await MockServer(format: .separated)
        server.on(100, .glued(.raw(ByteBuffer(string: "2000-1-200-50000-\r\nnews-\r\n")), .push(2_001, "more")))
        let window = Duration.milliseconds(300)
        try await self.withClient(server, { $0.socket.writeStallTimeout = window }) { client in
            let pushes = client.pushes(ofType: 2_001)
            client.dataTask(with: SocketRequest(type: 100, timeout: patience)) { _ in }.resume()
            for await push in pushes {
                #expect(push.string == "more")
                break
            }
            #expect(server.connections.count == 1)
        }
    }

    @Test func theServerAnswersADamagedRequestWith303() async throws {
        try await Pair.with(
            .separated,
            router: self.router
        ) { _, server in
            let client = try await HostileClient(to: try #require(server.address), format: .separated)
            await client.perform(.raw(ByteBuffer(string: "100-50-4-\r\nhello-\r\n100-51-5-\r\nhello-\r\n")))
            let refusal = try await client.response()
            #expect((refusal.type, refusal.serial, refusal.status) == (100, 50, .illegalFormat))
            let answer = try await client.response()
            #expect((answer.serial, answer.status, answer.payload) == (51, .ok, ByteBuffer(string: "hello")))
            try await eventually("the count") { server.statistics[.illegalRequests] == 1 }
        }
    }

    @Test func theServerGivesUpARequestWhoseLengthIsTooLong() async throws {
        try await Pair.with(
            .separated,
            router: self.router,
            configureServer: { $0.limits.readStallTimeout = .milliseconds(300) }
        ) { _, server in
            let client = try await HostileClient(to: try #require(server.address), format: .separated)
            await client.perform(.raw(ByteBuffer(string: "100-50-500-\r\nhello-\r\n100-51-5-\r\nhello-\r\n")))
            let refusal = try await client.response()
            #expect((refusal.type, refusal.serial, refusal.status) == (100, 50, .illegalFormat))
            let answer = try await client.response()
            #expect((answer.serial, answer.status, answer.payload) == (51, .ok, ByteBuffer(string: "hello")))
            try await eventually("the count") { server.statistics[.illegalRequests] == 1 }
        }
    }
}
