// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The conditions for sending a call again.
@Suite struct RetryPolicyTests {
    private func delay(
        _ policy: RetryPolicy,
        _ code: SocketError.Code,
        _ delivery: SocketError.Delivery,
        attempts: Int = 1,
        retries: Int = 0,
        isIdempotent: Bool = false,
        hasKey: Bool = false
    ) -> Duration? {
        var generator = SeededGenerator(seed: 1)
        return policy.delay(
            after: SocketError(code, message: "", delivery: delivery),
            attempts: attempts,
            retries: retries,
            isIdempotent: isIdempotent || hasKey,
            hasKey: hasKey,
            using: &generator
        )
    }

    @Test func possiblyExecutedCallsAreRetriedOnlyIfHarmless() {
        let policy = RetryPolicy(maximumAttempts: 3)
        #expect(self.delay(policy, .connectionLost, .sentUnknown) == nil)
        #expect(self.delay(policy, .connectionLost, .sentUnknown, isIdempotent: true) != nil)
        #expect(self.delay(policy, .connectionLost, .notSent) != nil)
        #expect(self.delay(policy, .overloaded, .answered) != nil)
        #expect(self.delay(policy, .draining, .answered) != nil)
        #expect(self.delay(policy, .lostPacket, .answered) == nil)
        #expect(self.delay(policy, .lostPacket, .answered, isIdempotent: true) != nil)
    }

    @Test func onlyItsCodesAreAndOnlySoOften() {
        let policy = RetryPolicy(maximumAttempts: 3)
        #expect(self.delay(policy, .noPermission, .answered, isIdempotent: true) == nil)
        #expect(self.delay(policy, .notConnected, .notSent) == nil)
        #expect(self.delay(policy, .overloaded, .answered, attempts: 2) != nil)
        #expect(self.delay(policy, .overloaded, .answered, attempts: 3) == nil)
        #expect(self.delay(.none, .overloaded, .answered) == nil)
        #expect(self.delay(RetryPolicy(maximumAttempts: 2, codes: [.noPermission]), .noPermission, .answered) == nil)
        let own = RetryPolicy(maximumAttempts: 2, codes: [.noPermission])
        #expect(self.delay(own, .noPermission, .answered, isIdempotent: true) != nil)
    }

    @Test func onlyTransientStatusesAreRetriedByDefault() {
        let statuses = RetryPolicy.defaultCodes.compactMap(\.status)
        #expect(!statuses.isEmpty)
        #expect(statuses.allSatisfy { $0.isTransient })
    }

    @Test func answersThatTheServerKeepsForTheKeyAreNotAskedForAgain() {
        let kept = Status(rawValue: 777)
        let codes: Set<SocketError.Code> = [.server(kept), .illegalFormat, .noPermission, .connectionLost]
        let own = RetryPolicy(maximumAttempts: 9, codes: codes)
        for code in [.server(kept), .illegalFormat] as [SocketError.Code] {
            #expect(self.delay(own, code, .answered, hasKey: true) == nil)
            #expect(self.delay(own, code, .answered, isIdempotent: true) != nil)
            // The error was detected by the client, not answered by the server.
            #expect(self.delay(own, code, .sentUnknown, hasKey: true) != nil)
        }
        #expect(self.delay(own, .noPermission, .answered, hasKey: true) != nil)
        #expect(self.delay(own, .connectionLost, .sentUnknown, hasKey: true) != nil)
    }

    @Test func waitsGrowAndAreRandom() {
        let fixed = RetryPolicy(
            maximumAttempts: 9,
            backoff: Backoff(base: .milliseconds(200), cap: .seconds(1), jitter: 0)
        )
        let waits = (0..<4).map { self.delay(fixed, .overloaded, .answered, retries: $0) }
        #expect(waits == [.milliseconds(200), .milliseconds(400), .milliseconds(800), .seconds(1)])
        let policy = RetryPolicy(maximumAttempts: 9)
        var generator = SeededGenerator(seed: 7)
        let error = SocketError(.overloaded, message: "", delivery: .answered)
        let jittered = (0..<100).compactMap { _ in
            policy.delay(after: error, attempts: 1, retries: 0, isIdempotent: false, hasKey: false, using: &generator)
        }
        #expect(Set(jittered).count > 90)
        #expect(jittered.allSatisfy { $0 <= .milliseconds(100) })
    }

    @Test func bucketStartsFullAndIsFilledByAnswers() {
        var bucket = RetryBucket(RetryBudget(capacity: 2, deposit: 0.5))
        var taken: [Bool] = []
        for _ in 0..<3 { taken.append(bucket.take()) }
        #expect(taken == [true, true, false])
        bucket.callWasAnswered()
        taken = [bucket.take()]
        bucket.callWasAnswered()
        taken.append(bucket.take())
        #expect(taken == [false, true])
        for _ in 0..<100 { bucket.callWasAnswered() }
        taken = (0..<3).map { _ in bucket.take() }
        #expect(taken == [true, true, false])
    }

    @Test func bucketsOfOddSizesAreHarmless() {
        var empty = RetryBucket(RetryBudget(capacity: -1, deposit: .nan))
        let none = empty.take()
        var vast = RetryBucket(RetryBudget(capacity: .max, deposit: 1e9))
        vast.callWasAnswered()
        let one = vast.take()
        #expect(!none)
        #expect(one)
    }
}

/// Retries over real TCP.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct RetryTests {
    /// A client whose connection outlives the server's listener: a connection that waits to be accepted would be reset
    /// with it.
    private func client(acceptedBy server: MockServer) async throws -> SocketClient {
        let client = SocketClient.connecting(to: server.endpoint)
        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        try await server.connection(0)
        return client
    }

    private func request(
        _ type: UInt32,
        attempts: Int = 3,
        isIdempotent: Bool = false,
        timeout: Duration = patience,
        codes: Set<SocketError.Code> = RetryPolicy.defaultCodes
    ) -> SocketRequest {
        var request = SocketRequest(type: type, body: "again", timeout: timeout)
        request.retryPolicy = RetryPolicy(
            maximumAttempts: attempts,
            backoff: Backoff(base: .milliseconds(5), cap: .milliseconds(20)),
            codes: codes
        )
        request.isIdempotent = isIdempotent
        return request
    }

    @Test func callsOfABusyServerAreRetriedUntilItAccepts() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .status(.overloaded))
        server.once(101, .status(.draining))
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: self.request(101))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "again")
        #expect(task.metrics?.attempts == 3)
        #expect(task.metrics?.bytesSent == 15)
        #expect(task.metrics?.bytesReceived == 5)
        #expect(server.received.map(\.serial) == [50, 51, 52])
    }

    @Test func lastFailureIsReportedWhenAllAttemptsAreSpent() async throws {
        let server = try await MockServer(.status(.overloaded))
        let client = SocketClient.connecting(to: server.endpoint)
        let error = try await socketError { () throws(SocketError) in _ = try await client.data(for: self.request(101))
        }
        #expect(error.code == .overloaded)
        #expect(error.notExecuted)
        #expect(error.message.contains("attempt 3"))
        #expect(server.received.count == 3)
    }

    @Test(arguments: [true, false]) func lossInFlightIsRetriedOnTheNextConnectionIfIdempotent(isIdempotent: Bool)
        async throws
    {
        let server = try await MockServer(.echo)
        server.once(101, .reset)
        let client = SocketClient.connecting(to: server.endpoint)
        if isIdempotent {
            let response = try await client.data(for: self.request(101, isIdempotent: true))
            #expect(response.string == "again")
            #expect(server.acceptedCount == 2)
        } else {
            let error = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: self.request(101))
            }
            #expect(error.code == .connectionLost)
            #expect(error.delivery == .sentUnknown)
            #expect(server.received.count == 1)
        }
    }

    @Test func retryWaitsForAServerThatReturnsAndDoesNotCountTheAttemptsToConnect() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .reset)
        let client = try await self.client(acceptedBy: server)
        try await server.refuseConnections()
        let events = client.events
        let task = client.dataTask(with: self.request(101, attempts: 2, isIdempotent: true))
        task.resume()
        let failures = NIOLockedValueBox(0)
        _ = try await first(of: events, "attempts that fail") {
            guard case .connectFailed = $0 else { return false }
            return failures.withLockedValue { failures in
                failures += 1
                return failures >= 3
            }
        }
        #expect(task.state == .running)
        try await server.acceptConnections()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "again")
        #expect(task.metrics?.attempts == 2)
    }

    @Test func callsWaitForTheirFirstConnectionToWhereThePolicySaysSo() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))
        let task = client.dataTask(with: self.request(101, codes: [.notConnected]))
        task.resume()
        client.connect()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "again")
        #expect(task.metrics?.attempts == 1)
    }

    @Test func timeoutCoversAllAttemptsAndSaysThatOneOfThemMayHaveRun() async throws {
        // Until the first attempt has failed within the timeout.
        let error = try await withGrowingTimeout { timeout -> SocketError in
            let server = try await MockServer(.reset)
            let client = try await self.client(acceptedBy: server)
            try await server.refuseConnections()
            let request = self.request(101, attempts: 100, isIdempotent: true, timeout: timeout)
            return try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
        } until: {
            $0.message.contains("the attempt before")
        }
        #expect(error.code == .timeout)
        #expect(error.delivery == .sentUnknown)
        #expect(!error.notExecuted)
        #expect(error.message.contains("the attempt before"))
    }

    @Test func budgetIsTheClients() async throws {
        let server = try await MockServer(.status(.overloaded))
        let client = SocketClient.connecting(to: server.endpoint) { $0.retryBudget = RetryBudget(capacity: 10) }
        for _ in 0..<50 { _ = try? await client.data(for: self.request(101)) }
        #expect(server.received.count == 60)
        server.onAnyOther(.echo)
        // Each success adds a tenth to the budget.
        for _ in 0..<20 { _ = try await client.data(for: self.request(102)) }
        server.onAnyOther(.status(.overloaded))
        for _ in 0..<50 { _ = try? await client.data(for: self.request(103)) }
        #expect(server.received.filter { $0.type == 103 }.count == 52)
    }

    @Test func noRetryAfterDisconnect() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: self.request(101, isIdempotent: true, codes: [.cancelled, .connectionLost]))
        task.resume()
        try await server.received(1)
        client.disconnect()
        try await eventually("the end") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
        #expect(task.metrics?.attempts == 1)
    }

    // MARK: First response

    @Test func answerThatDoesNotBeginInTimeIsAskedForAgain() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.late())
        let time = ManualTime()
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.time = SocketTime(time) }
        _ = try await client.data(for: SocketRequest(type: 102))
        var request = self.request(101, isIdempotent: true)
        request.firstResponseTimeout = .seconds(20)
        async let response = client.data(for: request)
        try await server.received(1, ofType: 101)
        await time.advance(by: .seconds(20))
        // The wait before the retry.
        try await time.advance(by: .milliseconds(10), until: "the retry") {
            server.received.filter { $0.type == 101 }.count == 2
        }
        #expect(try await response.string == "again")
        try await eventually("the late answer") { client.statistics.lateResponses == 1 }
        #expect(server.acceptedCount == 1)
    }

    @Test func answerThatBeginsInTimeMayTakeLonger() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .drop)
        let time = ManualTime()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.firstResponseTimeout = .seconds(10)
            // The answer to a ping would be in the middle of the frame.
            $0.socket.heartbeat = nil
            $0.socket.time = SocketTime(time)
        }
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        let serial = try await server.received(1)[0].serial
        var answer = ByteBuffer()
        let frame = Frame(type: 101, serial: serial, status: .ok, payload: ByteBuffer(repeating: 7, count: 600))
        FrameEncoder(direction: .response).encode(frame, into: &answer)
        try await server.connection(0).perform(.raw(try #require(answer.readSlice(length: 300))))
        try await eventually("the first half") { task.countOfBytesReceived > 0 }
        await time.advance(by: .seconds(60))
        try await server.connection(0).perform(.raw(answer))
        try await eventually("the end") { task.state == .completed }
        #expect(task.error == nil)
        #expect(task.response?.body.readableBytes == 600)
    }

    @Test func withoutRetriesTheCallFailsAndSaysWhichTimeoutItWas() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint) { $0.firstResponseTimeout = .milliseconds(30) }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .timeout)
        #expect(error.delivery == .sentUnknown)
        #expect(error.message.contains("firstResponseTimeout"))
        #expect(error.message.contains("\(server.endpoint)"))
        try await server.received(1, ofType: FrameType.cancel)
    }
}
