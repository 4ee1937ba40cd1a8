// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// A subscriber that suspends its client's reading, over real sockets. A call that gets no answer within its timeout
/// shows that nothing is read.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SuspendedReadingTests {
    private func pushes(_ range: Range<Int>) -> MockServer.Reaction {
        .glued(range.map { .push(2_001, "\($0)") })
    }

    private func strings(_ range: Range<Int>) -> [String] { range.map { "\($0)" } }

    /// Expects that a call is sent and not answered.
    private func expectHeldUp(_ client: SocketClient, for time: Duration = .milliseconds(200)) async throws {
        let error = try await withGrowingTimeout { timeout -> SocketError in
            let request = SocketRequest(type: 101, body: "held up", timeout: max(time, timeout))
            return try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
        } until: {
            $0.delivery != .notSent
        }
        #expect(error.code == .timeout)
        #expect(error.delivery == .sentUnknown)
    }

    private func expectAnswered(_ client: SocketClient) async throws {
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
    }

    /// A server that echoes, and pushes 0 to 9 before it echoes type 102.
    private func server() async throws -> MockServer {
        let server = try await MockServer(.echo)
        server.on(102, self.pushes(0..<10).then(.echo))
        return server
    }

    /// Has the pushes sent, which suspend reading. All are in one read, with the answer.
    private func suspend(_ client: SocketClient) async throws {
        _ = try await client.data(for: SocketRequest(type: 102))
    }

    /// Lets time pass, a second after each heartbeat of the client.
    ///
    /// - Parameter client: The client, if it awaits the answers; nil if it reads none.
    private func passSeconds(
        _ count: Int,
        of time: ManualTime,
        on server: MockServer,
        answering client: SocketClient?
    ) async throws {
        for _ in 0..<count {
            let beats = server.received.filter { $0.type == FrameType.heartbeat }.count
            await time.advance(by: .seconds(1))
            try await server.received(beats + 1, ofType: FrameType.heartbeat)
            // Its answer is behind that of the heartbeat.
            if let client { try await self.expectAnswered(client) }
        }
    }

    // MARK: Holding up

    @Test func floodIsHeldUpAndComesWholeOnceItsReaderContinues() async throws {
        let (count, size, limit) = (4_096, 64 << 10, 8)
        let server = try await FloodServer(pushes: count, of: 2_001, bytes: size)
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes(ofType: 2_001, buffering: .suspendReading(limit))
        try await self.expectAnswered(client)
        #if os(Linux)
        let before = residentBytes()
        #endif
        _ = try await client.data(for: SocketRequest(type: FloodServer.floodType))
        try await eventually("the limit") { client.statistics.pushes >= limit }
        try await self.expectHeldUp(client)
        // The limit, and the rest of the read that reached it: 1 MiB and a frame that was incomplete before.
        let read = client.statistics.pushes
        #expect(read <= limit + (1 << 20) / size + 1)
        try await self.expectHeldUp(client)
        #expect(client.statistics.pushes == read)
        // The kernels of both ends hold some, and the rest was not sent.
        let left = server.left.withLockedValue { $0 }
        #expect(left < count / 2, "\(left) of \(count) left")
        #if os(Linux)
        // The server offers 256 MiB.
        let growth = residentBytes() - before
        #expect(growth < 64 << 20, "\(growth >> 20) MiB")
        #endif

        let numbers = try await withDeadline("the flood") {
            var numbers: [Int?] = []
            for await push in pushes {
                #expect(push.body.readableBytes == size)
                numbers.append(push.body.floodNumber)
                if numbers.count == count { break }
            }
            return numbers
        }
        #expect(numbers == Array(0..<count))
        try await self.expectAnswered(client)
        #expect(client.statistics.droppedPushes == 0)
        #expect(client.statistics.lateResponses == 2)
        try await server.close()
    }

    @Test func readingContinuesOnceHalfOfThemWait() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        // 10 wait; then 3, and 2.
        #expect(try await texts(7, of: pushes) == self.strings(0..<7))
        try await self.expectHeldUp(client)
        #expect(try await texts(1, of: pushes) == ["7"])
        try await self.expectAnswered(client)
        #expect(try await texts(2, of: pushes) == ["8", "9"])
    }

    @Test func readingContinuesOnceNoSubscriberHoldsIt() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        let one = client.pushes(buffering: .suspendReading(1))
        let other = client.pushes(ofType: 2_001, buffering: .suspendReading(10))
        let careless = client.pushes(ofType: 2_001, buffering: .dropOldest(1))
        try await self.suspend(client)
        #expect(try await texts(10, of: one) == self.strings(0..<10))
        try await self.expectHeldUp(client)
        #expect(try await texts(10, of: other) == self.strings(0..<10))
        try await self.expectAnswered(client)
        #expect(try await texts(1, of: careless) == ["9"])
        #expect(client.statistics.droppedPushes == 9)
    }

    @Test func readerThatKeepsUpHoldsNothingUp() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        let count = Watched(0)
        client.onPush(buffering: .suspendReading(1)) { _ in count.withLockedValue { $0 += 1 } }
        for _ in 0..<100 { try await self.suspend(client) }
        try await count.wait("the pushes") { $0 == 1_000 }
        try await self.expectAnswered(client)
    }

    // MARK: Letting go

    @Test func cancelledHandlerLetsReadingContinue() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        let gate = Gate()
        let subscription = client.onPush(ofType: 2_001, buffering: .suspendReading(4)) { _ in
            // The handler ignores its cancellation.
            await Task { try? await gate.wait() }.value
        }
        try await self.suspend(client)
        try await self.expectHeldUp(client)
        subscription.cancel()
        try await self.expectAnswered(client)
        gate.open()
    }

    @Test func cancelledReaderLetsReadingContinue() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        let gate = Gate()
        let pushes = client.pushes(buffering: .suspendReading(4))
        let reading = Task {
            for await _ in pushes {
                try? await gate.wait()
            }
        }
        try await self.suspend(client)
        try await self.expectHeldUp(client)
        reading.cancel()
        await reading.value
        try await self.expectAnswered(client)
        gate.open()
    }

    @Test func droppedSequenceLetsReadingContinue() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint)
        var pushes: SocketPushes? = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        try await self.expectHeldUp(client)
        #expect(pushes != nil)
        pushes = nil
        try await self.expectAnswered(client)
    }

    @Test func releasedClientClosesItsConnectionAndKeepsNothing() async throws {
        let server = try await self.server()
        let host = WeakReference<ClientHost>()
        let loop = WeakEventLoop()
        var pushes: SocketPushes?
        do {
            let client = SocketClient.connecting(to: server.endpoint)
            host.set(client.host)
            loop.set(client.driver.loop.eventLoop)
            pushes = client.pushes(buffering: .suspendReading(4))
            try await self.suspend(client)
            try await self.expectHeldUp(client)
        }
        try await server.ended(connection: 0)
        // Received pushes can still be read.
        if let pushes { #expect(try await texts(11, of: pushes) == self.strings(0..<10)) }
        pushes = nil
        try await eventually("the end of its owners") { host.object == nil }
        try await eventually("the end of its thread") { loop.isGone }
    }

    private final class WeakEventLoop: Sendable {
        private struct Reference: Sendable {
            weak var loop: (any EventLoop)?
        }

        private let reference = NIOLockedValueBox(Reference())

        func set(_ loop: any EventLoop) { self.reference.withLockedValue { $0.loop = loop } }
        var isGone: Bool { self.reference.withLockedValue { $0.loop == nil } }
    }

    @Test func clientDisconnectsWhileAFloodWaitsAndComesBackHeldUp() async throws {
        let server = try await FloodServer(pushes: 1_024, of: 2_001, bytes: 64 << 10)
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes(buffering: .suspendReading(8))
        _ = try await client.data(for: SocketRequest(type: FloodServer.floodType))
        try await eventually("the limit") { client.statistics.pushes >= 8 }
        try await self.expectHeldUp(client)
        try await waitForValue(of: Task { await client.close() }, "the end")
        #expect(client.state.description == "closed")
        let read = client.statistics.pushes
        client.connect()
        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        try await self.expectHeldUp(client)
        #expect(client.statistics.pushes == read)
        _ = try await texts(read, of: pushes)
        try await self.expectAnswered(client)
        try await server.close()
    }

    @Test func closingReadsToThePeersEndInsteadOfLingering() async throws {
        let flood = MockServer.Reaction.push(2_001, ByteBuffer(repeating: 7, count: 64 << 10)).times(256)
        // On a slow machine a connection may linger for the maximum time, but not every time.
        for _ in 0..<20 {
            let server = try await self.server()
            let client = SocketClient.connecting(to: server.endpoint)
            let pushes = client.pushes(buffering: .suspendReading(4))
            try await self.suspend(client)
            try await server.connection(0).perform(flood)
            let start = ContinuousClock.now
            await client.close()
            let time = ContinuousClock.now - start
            _ = try await texts(10, of: pushes)
            if time < .seconds(1) { return }
        }
        Issue.record("every connection lingered")
    }

    // MARK: The connection meanwhile

    /// No answer can be read, so the client does not wait for one; but the server, and devices in between, see that the
    /// client is alive.
    @Test func heartbeatsAreSentAndNoAnswerIsWaitedFor() async throws {
        let server = try await self.server()
        let time = ManualTime()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .seconds(1), replyTimeout: .seconds(10), misses: 0)
            $0.socket.time = SocketTime(time)
        }
        try await self.expectAnswered(client)
        try await self.passSeconds(1, of: time, on: server, answering: client)
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        // Longer than the time after which a silent peer is given up.
        let calls = server.received.filter { $0.type == 101 }.count
        // Its end, at which something is sent, is not that of an interval.
        async let heldUp: Void = self.expectHeldUp(client, for: .milliseconds(30_500))
        try await server.received(calls + 1, ofType: 101)
        try await self.passSeconds(30, of: time, on: server, answering: nil)
        await time.advance(by: .milliseconds(500))
        try await heldUp
        let cancel = try await server.received(1, ofType: FrameType.cancel)[0]
        let received = server.received
        let call = try #require(received.firstIndex { $0.serial == cancel.serial })
        let end = try #require(received.firstIndex(of: cancel))
        let types = received[call...end].map(\.type)
        #expect(types.filter { $0 != FrameType.heartbeat } == [101, FrameType.cancel])
        #expect(types.contains(FrameType.heartbeat))
        #expect(try await texts(10, of: pushes) == self.strings(0..<10))
        try await self.expectAnswered(client)
        try await self.passSeconds(30, of: time, on: server, answering: client)
        #expect(server.acceptedCount == 1)
    }

    @Test func writeStallTimeoutGovernsWhileNothingIsRead() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .seconds(600))
            $0.socket.writeStallTimeout = .milliseconds(300)
        }
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        try await server.connection(0).perform(.stopReading)
        let error = try await socketError { () throws(SocketError) in
            // More than the kernels of both ends hold.
            _ = try await client.data(for: SocketRequest(type: 101, body: [UInt8](repeating: 7, count: 16 << 20)))
        }
        #expect(error.code == .connectionLost)
        #expect(error.message.contains("took less than 128 bytes a second"))
        #expect(try await texts(10, of: pushes) == self.strings(0..<10))
    }

    @Test(arguments: [true, false])
    func lostConnectionIsNoticedAndTheNextOneIsHeldUpToo(isReset: Bool) async throws {
        let server = try await self.server()
        server.onOpen(number: 1, self.pushes(100..<103))
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        try await self.expectHeldUp(client)
        try await server.connection(0).perform(isReset ? .reset : .close)
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        _ = try await first(of: events, "the next connection") { if case .connected = $0 { true } else { false } }
        try await self.expectHeldUp(client)
        #expect(client.statistics.pushes == 10)
        #expect(try await texts(13, of: pushes) == self.strings(0..<10) + self.strings(100..<103))
        try await self.expectAnswered(client)
        #expect(server.acceptedCount == 2)
    }

    @Test func connectionThatIsLeftForAnotherIsHeldUpAndStillAnswers() async throws {
        let old = try await self.server()
        let new = try await self.server()
        let client = SocketClient.connecting(to: old.endpoint)
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        let call = client.dataTask(with: SocketRequest(type: 101, body: "from the old one"))
        call.resume()
        try await old.received(1, ofType: 101)
        let events = client.events
        client.switchServer(to: new.endpoint)
        _ = try await first(of: events, "the switch") { if case .switched = $0 { true } else { false } }
        try await new.connection(0).perform(self.pushes(10..<12))
        try await self.expectHeldUp(client)
        #expect(call.state == .running)
        #expect(client.statistics.pushes == 10)
        #expect(try await texts(12, of: pushes) == self.strings(0..<12))
        try await eventually("the answer") { call.state == .completed }
        #expect(call.response?.string == "from the old one")
        #expect(call.response?.endpoint == old.endpoint)
        try await self.expectAnswered(client)
    }

    @Test func gateIsNotHeldUp() async throws {
        let server = try await self.server()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.gate = HandshakeGate { handshake in _ = try await handshake.exchange(type: 17) }
        }
        let events = client.events
        let pushes = client.pushes(buffering: .suspendReading(4))
        try await self.suspend(client)
        try await server.connection(0).perform(.close)
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        _ = try await first(of: events, "the next connection") { if case .connected = $0 { true } else { false } }
        try await self.expectHeldUp(client)
        #expect(try await texts(10, of: pushes) == self.strings(0..<10))
        try await self.expectAnswered(client)
    }
}
