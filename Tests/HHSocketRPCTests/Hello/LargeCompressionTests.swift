// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Bodies so large that they are compressed and decompressed on another thread than the socket's.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LargeCompressionTests {
    private func connect(
        _ configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) async throws -> (server: MockServer, client: SocketClient) {
        let server = try await MockServer(.echo)
        server.acceptHello(features: [.compression, .metadata])
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.hello = HelloPolicy()
            $0.compression = CompressionPolicy(minimumLength: 1_000, level: 9)
            configure(&$0)
        }
        _ = try await client.data(for: SocketRequest(type: 100))
        return (server, client)
    }

    /// Compressible text that takes zlib some time.
    private func text(_ length: Int) -> ByteBuffer {
        var generator = SeededGenerator(seed: 7)
        // Longer than zlib's window of 32 KiB.
        let block = (0..<(64 << 10)).map { _ in UInt8.random(in: 0x61...0x68, using: &generator) }
        var buffer = ByteBuffer()
        while buffer.readableBytes < length { buffer.writeBytes(block.prefix(length - buffer.readableBytes)) }
        return buffer
    }

    /// The number of calls in the client's table.
    private func callCount(_ client: SocketClient) async -> Int {
        await withCheckedContinuation { answer in
            _ = client.host.loop.submit(
                .closure { [engine = client.host.engine] _ in answer.resume(returning: engine.hot.table.count) }
            )
        }
    }

    @Test func aLargeBodyDoesNotHoldUpTheCallsBehindIt() async throws {
        let (server, client) = try await self.connect()
        let body = self.text(8 << 20)
        let large = client.dataTask(with: SocketRequest(type: 101, body: body))
        let small = client.dataTask(with: SocketRequest(type: 102, body: "small"))
        large.resume()
        small.resume()
        try await eventually("the answers") { large.state == .completed && small.state == .completed }
        #expect(small.response?.string == "small")
        #expect(large.response?.body == body)
        #expect(server.received.map(\.type).suffix(2) == [102, 101])
        #expect(server.received.last?.isCompressed == true)
        #expect(large.metrics?.attempts == 1)
    }

    @Test func largeBodiesKeepTheirOrder() async throws {
        let (server, client) = try await self.connect()
        let tasks = (0..<20).map { number in
            var request = SocketRequest(type: 101, body: self.text((20 - number) * 10_000 + 70_000))
            request.metadata = ["n": "\(number)"]
            return client.dataTask(with: request)
        }
        for task in tasks { task.resume() }
        try await eventually("the answers") { tasks.allSatisfy { $0.state == .completed } }
        #expect(tasks.allSatisfy { $0.response?.body == $0.originalRequest.body })
        let numbers = server.received.filter { $0.type == 101 }.compactMap { $0.metadata["n"] }
        #expect(numbers == (0..<20).map { "\($0)" })
    }

    @Test func aCallThatIsCancelledWhileItsBodyIsCompressedIsNotSent() async throws {
        let (server, client) = try await self.connect()
        let task = client.dataTask(with: SocketRequest(type: 101, body: self.text(8 << 20)))
        task.resume()
        task.cancel()
        try await eventually("the end") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
        #expect(task.error?.notExecuted == true)
        // The next large body is compressed after it.
        let next = SocketRequest(type: 103, body: self.text(100_000))
        #expect(try await client.data(for: next).body == next.body)
        #expect(server.received.filter { $0.type == 101 }.isEmpty)
        #expect(await self.callCount(client) == 0)
    }

    /// It continues on the next connection, or fails at once where it may not wait for one.
    @Test(arguments: [true, false]) func aCallWhoseConnectionIsLostWhileItsBodyIsCompressedEndsOnce(
        mayWait: Bool
    ) async throws {
        let (server, client) = try await self.connect()
        if !mayWait { try await server.refuseConnections() }
        var request = SocketRequest(type: 101, body: self.text(1 << 20))
        request.waitsForConnectivity = mayWait
        let ends = Watched<[Result<ByteBuffer, SocketError>]>([])
        let task = client.dataTask(with: request) { result in
            ends.withLockedValue { $0.append(result.map(\.body)) }
        }
        let wasParked = Watched(false)
        let lost = SocketError(.connectionLost, message: "lost")
        // In one turn: what the other thread has compressed is looked at in a later one.
        client.host.loop.submit(
            .closure { [host = client.host] _ in
                task.resume()
                host.loop.submit(
                    .closure { turn in
                        wasParked.withLockedValue { $0 = task.latestKey.map { host.engine.isParked($0) } ?? false }
                        host.links.current?.link.end(LinkEnd(.said(lost), EndVerdict(isServersFault: false)), in: &turn)
                    }
                )
            }
        )
        try await ends.wait("the end") { !$0.isEmpty }
        #expect(wasParked.current)
        let calls = server.received.filter { $0.type == 101 }
        if mayWait {
            #expect(try ends.current.first?.get() == request.body)
            #expect(calls.map(\.connection) == [1] && calls.allSatisfy(\.isCompressed))
            #expect(task.metrics?.attempts == 1)
        } else {
            #expect(throws: SocketError.self) { try ends.current.first?.get() }
            #expect(task.error?.delivery == .notSent && task.error?.notExecuted == true)
            #expect(calls.isEmpty)
        }
        #expect(await self.callCount(client) == 0)
        #expect(ends.current.count == 1)
    }

    @Test func aBodyThatDoesNotBecomeSmallerIsSentAsItIs() async throws {
        let (server, client) = try await self.connect()
        var generator = SeededGenerator(seed: 1)
        let body = ByteBuffer(bytes: (0..<100_000).map { _ in UInt8.random(in: 0...255, using: &generator) })
        #expect(try await client.data(for: SocketRequest(type: 101, body: body)).body == body)
        #expect(server.received.last?.isCompressed == false)
    }

    /// The status of an answer is kept while its body is decompressed.
    @Test func aLargeAnswerWithAnErrorHasItsCodeAndItsBody() async throws {
        let (server, client) = try await self.connect()
        let body = self.text(300_000)
        server.on(104, .answer(body, status: .overloaded).withMetadata(["why": "load"]).compressed())
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 104))
        }
        #expect(error.code == .overloaded)
        #expect(error.notExecuted)
        #expect(error.body == body)
        #expect(error.metadata == ["why": "load"])
        #expect(error.endpoint == server.endpoint)
    }

    @Test func pushesKeepTheirOrderAroundOneThatIsDecompressed() async throws {
        let (server, client) = try await self.connect()
        let pushes = client.pushes(ofType: 2_001)
        // It is answered after the subscription has been made.
        _ = try await client.data(for: SocketRequest(type: 101))
        let large = String(buffer: self.text(1 << 20))
        await server.perform(
            .glued(
                .push(2_001, "1"),
                .push(2_001, large).compressed(),
                .push(2_001, "2"),
                .push(2_001, large).compressed(),
                .push(2_001, "3")
            )
        )
        let texts = try await withDeadline("the pushes") {
            var texts: [String] = []
            for await push in pushes {
                texts.append(push.string)
                if texts.count == 5 { break }
            }
            return texts
        }
        #expect(texts == ["1", large, "2", large, "3"])
        #expect(client.statistics.pushes == 5)
    }
}
