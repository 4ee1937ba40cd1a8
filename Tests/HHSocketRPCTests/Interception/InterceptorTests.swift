// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// An interceptor whose behaviour a test determines.
private struct Interceptor: SocketInterceptor {
    var body: @Sendable (SocketRequest, Next) async throws -> SocketResponse

    init(_ body: @escaping @Sendable (SocketRequest, Next) async throws -> SocketResponse) {
        self.body = body
    }

    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
        try await self.body(request, next)
    }
}

/// Appends to the request, and records its path.
private func noting(_ name: String, in log: NIOLockedValueBox<[String]>) -> Interceptor {
    Interceptor { request, next in
        log.withLockedValue { $0.append("\(name) in") }
        var request = request
        request.body.writeString(name)
        defer { log.withLockedValue { $0.append("\(name) out") } }
        return try await next(request)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct InterceptorTests {
    @Test func firstIsTheOutermost() async throws {
        let server = try await MockServer(.echo)
        let log = NIOLockedValueBox<[String]>([])
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [noting("a", in: log), noting("b", in: log)]
        }
        let response = try await client.data(for: SocketRequest(type: 101, body: "-"))
        #expect(response.string == "-ab")
        #expect(log.withLockedValue { $0 } == ["a in", "b in", "b out", "a out"])
    }

    @Test func tasksWithHandlersPassThemToo() async throws {
        let server = try await MockServer(.echo)
        let log = NIOLockedValueBox<[String]>([])
        let client = SocketClient.connecting(to: server.endpoint) { $0.interceptors = [noting("a", in: log)] }
        let task = client.dataTask(with: SocketRequest(type: 101, body: "-"))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "-a")
        #expect(task.originalRequest.body == ByteBuffer(string: "-"))
        #expect(task.metrics?.attempts == 1)
    }

    @Test func answerWithoutACall() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { _, _ in
                    SocketResponse(
                        type: 101,
                        serial: 0,
                        status: .ok,
                        body: ByteBuffer(string: "cached"),
                        endpoint: Endpoint(host: "cache", port: 1)
                    )
                }
            ]
        }
        #expect(try await client.data(for: SocketRequest(type: 101)).string == "cached")
        #expect(server.received.isEmpty)
    }

    @Test func callIsMadeAgainByAnInterceptor() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .status(.noPermission))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { request, next in
                    do { return try await next(request) } catch let error as SocketError
                        where error.code == .noPermission
                    {
                        return try await next(request)
                    }
                }
            ]
        }
        let task = client.dataTask(with: SocketRequest(type: 101, body: "x"))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "x")
        #expect(task.metrics?.attempts == 2)
    }

    @Test func callFailsWithTheErrorOfAnInterceptor() async throws {
        struct Refusal: Error {}
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) { configuration in
            configuration.interceptors = [Interceptor { _, _ in throw Refusal() }]
        }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .interceptorFailed)
        #expect(error.underlying is Refusal)
        #expect(error.message.contains("Interceptor"))
    }

    @Test func requestThatAnInterceptorSpoilsIsRefused() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [Interceptor { _, next in try await next(SocketRequest(type: 3)) }]
        }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .invalidArgument)
        #expect(server.received.isEmpty)
    }

    @Test func secondCallBeforeTheFirstHasReturnedIsRefused() async throws {
        let server = try await MockServer(.drop)
        let second = Watched<SocketError?>(nil)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { request, next in
                    async let first = next(request)
                    try await server.received(1)
                    do throws(SocketError) {
                        return try await next(request)
                    } catch {
                        second.withLockedValue { $0 = error }
                    }
                    return try await first
                }
            ]
        }
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await second.wait("the refusal") { $0?.code == .invalidArgument }
        #expect(task.state == .running)
        task.cancel()
        try await eventually("the end") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
    }

    @Test func timeoutCoversAnInterceptorThatHangs() async throws {
        let server = try await MockServer(.echo)
        let ended = Watched(false)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { request, next in
                    defer { ended.withLockedValue { $0 = true } }
                    try await untilCancelled()
                    return try await next(request)
                }
            ]
        }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, timeout: .milliseconds(50)))
        }
        #expect(error.code == .timeout)
        #expect(error.delivery == .notSent)
        #expect(error.message.contains("interceptor"))
        try await ended.wait("the interceptor's end") { $0 }
    }

    @Test func timeoutBehindAnInterceptorNamesTheServer() async throws {
        let server = try await MockServer(.drop)
        let seen = Watched<SocketError?>(nil)
        let time = ManualTime()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.time = SocketTime(time)
            $0.interceptors = [
                Interceptor { request, next in
                    do throws(SocketError) { return try await next(request) } catch {
                        seen.withLockedValue { $0 = error }
                        throw error
                    }
                }
            ]
        }
        async let failure = socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, timeout: .seconds(20)))
        }
        try await server.received(1)
        await time.advance(by: .seconds(20))
        let error = try await failure
        #expect(error.code == .timeout)
        #expect(error.delivery == .sentUnknown)
        try await seen.wait("the interceptor's error") { $0?.code == .timeout }
        try await server.received(1, ofType: FrameType.cancel)
    }

    @Test func cancellationReachesTheInterceptorAndTheServer() async throws {
        let server = try await MockServer(.drop)
        let wasCancelled = Watched(false)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { request, next in
                    defer { wasCancelled.withLockedValue { $0 = Task.isCancelled } }
                    return try await next(request)
                }
            ]
        }
        let call = Task { try await client.data(for: SocketRequest(type: 101)) }
        try await server.received(1)
        call.cancel()
        let error = try await socketError { () throws(SocketError) in
            _ = try await call.result.mapError { $0 as? SocketError ?? SocketError(.unknown, message: "\($0)") }.get()
        }
        #expect(error.code == .cancelled)
        try await server.received(1, ofType: FrameType.cancel)
        try await wasCancelled.wait("the interceptor's end") { $0 }
    }

    @Test func interceptorThatReturnsBeforeItsCallDoesHasThatCancelled() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [
                Interceptor { request, next in
                    let call = Task { try await next(request) }
                    try await server.received(1)
                    _ = call
                    throw SocketError(.unknown, message: "had enough")
                }
            ]
        }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.message == "had enough")
        try await server.received(1, ofType: FrameType.cancel)
    }

    @Test func releasedClientEndsItsInterceptors() async throws {
        let entered = Watched(false)
        let left = Watched(false)
        var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.interceptors = [
            Interceptor { request, next in
                defer { left.withLockedValue { $0 = true } }
                entered.withLockedValue { $0 = true }
                try await untilCancelled()
                return try await next(request)
            }
        ]
        var client: SocketClient? = SocketClient(configuration: configuration)
        let task = client?.dataTask(with: SocketRequest(type: 101, timeout: patience))
        task?.resume()
        try await entered.wait("the interceptor") { $0 }
        client = nil
        try await eventually("the end") { task?.state == .completed }
        #expect(task?.error?.code == .cancelled)
        try await left.wait("the interceptor's end") { $0 }
    }

    /// These errors once claimed that the call had not been executed; a caller that relied on it ran calls twice.
    @Test func callThatTheServerMayHaveRunIsNeverSaidToBeNotExecuted() async throws {
        struct Refusal: Error {}
        let reported = NIOLockedValueBox<[SocketError]>([])
        func delivery(
            _ prepare: (MockServer) -> Void = { _ in },
            _ body: @escaping @Sendable (SocketRequest, SocketInterceptor.Next) async throws -> SocketResponse
        ) async throws -> SocketError.Delivery {
            let server = try await MockServer(.echo)
            prepare(server)
            let client = SocketClient.connecting(to: server.endpoint) {
                $0.interceptors = [Interceptor(body)]
                $0.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
            }
            var request = SocketRequest(type: 101)
            request.isIdempotent = true
            return try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }.delivery
        }

        // The interceptor rejects the answer.
        #expect(
            try await delivery { request, next in
                _ = try await next(request)
                throw Refusal()
            } == .sentUnknown
        )
        // The interceptor asks again, which does not reach the server.
        #expect(
            try await delivery { request, next in
                _ = try await next(request)
                return try await next(SocketRequest(type: 3))
            } == .sentUnknown
        )
        // The first attempt may have run, the second surely has not: the interceptor itself gets the true delivery.
        let overloaded = { (server: MockServer) in
            server.once(101, .status(.lostPacket))
            server.once(101, .status(.overloaded))
        }
        #expect(
            try await delivery(overloaded) { request, next in
                do throws(SocketError) {
                    return try await next(request)
                } catch {
                    reported.withLockedValue { $0.append(error) }
                    throw error
                }
            } == .sentUnknown
        )
        #expect(reported.withLockedValue { $0.map(\.notExecuted) } == [false])
        // If the interceptor has not asked at all, the call has not been executed.
        #expect(try await delivery { _, _ in throw Refusal() } == .notSent)
    }

    @Test func requestMayPassByThem() async throws {
        let server = try await MockServer(.echo)
        let log = NIOLockedValueBox<[String]>([])
        let client = SocketClient.connecting(to: server.endpoint) { $0.interceptors = [noting("a", in: log)] }
        var request = SocketRequest(type: 101, body: "-")
        request.skipsInterceptors = true
        #expect(try await client.data(for: request).string == "-")
        request.type = 3
        let error = try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
        #expect(error.code == .invalidArgument)
        #expect(log.withLockedValue { $0 }.isEmpty)
        // Completed calls are no longer in the table.
        let count = await withCheckedContinuation { answer in
            _ = client.host.loop.submit(
                .closure { [engine = client.host.engine] _ in answer.resume(returning: engine.hot.table.count) }
            )
        }
        #expect(count == 0)
    }

    @Test func callsWhoseInterceptorsAreAtWorkAreBounded() async throws {
        let server = try await MockServer(.echo)
        let gate = Gate()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.maximumInFlight = 10
            $0.maximumWaiting = 5
            $0.timeout = patience
            $0.interceptors = [
                Interceptor { request, next in
                    try await gate.wait()
                    return try await next(request)
                }
            ]
        }
        let outcomes = Watched<[String]>([])
        for _ in 0..<40 {
            client.dataTask(with: SocketRequest(type: 101)) { result in
                let outcome: String
                switch result {
                case .success: outcome = "answered"
                case .failure(let error): outcome = "\(error.code)"
                }
                outcomes.withLockedValue { $0.append(outcome) }
            }.resume()
        }
        try await outcomes.wait("refusals") { $0.count == 25 }
        #expect(outcomes.current.allSatisfy { $0 == "queueFull" })
        gate.open()
        try await outcomes.wait("the others") { $0.count == 40 }
    }

    @Test func retriesAreWithinTheInnermost() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .status(.overloaded))
        let log = NIOLockedValueBox<[String]>([])
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [noting("a", in: log)]
            $0.retryPolicy = RetryPolicy(maximumAttempts: 2, backoff: Backoff(base: .milliseconds(1)))
        }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "-")).string == "-a")
        #expect(log.withLockedValue { $0 } == ["a in", "a out"])
        #expect(server.received.count == 2)
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TokenInterceptorTests {
    /// Answers calls with the token `good`, and rejects others.
    private func server(_ good: String) async throws -> MockServer {
        try await MockServer(.respond { $0.string == good ? .echo : .status(.noPermission) })
    }

    private func client(_ server: MockServer, _ interceptor: TokenInterceptor<String>) -> SocketClient {
        SocketClient.connecting(to: server.endpoint) { $0.interceptors = [interceptor] }
    }

    @Test func manyCallsThatAreRefusedAtOnceGetOneNewToken() async throws {
        let server = try await self.server("new")
        let refreshes = NIOLockedValueBox(0)
        let refused = NIOLockedValueBox(0)
        let client = self.client(
            server,
            TokenInterceptor(token: "old") {
                refreshes.withLockedValue { $0 += 1 }
                // Waits until all calls with the old token have arrived. Calls that begin later wait for the new one.
                try await server.received(refused.withLockedValue { $0 })
                return "new"
            } apply: { token, request in
                if token == "old" { refused.withLockedValue { $0 += 1 } }
                request.body = ByteBuffer(string: token)
            }
        )
        let answers = try await withDeadline("64 answers") {
            try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<64 {
                    group.addTask { try await client.data(for: SocketRequest(type: 101, timeout: patience)).string }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
        }
        #expect(answers == Array(repeating: "new", count: 64))
        #expect(refreshes.withLockedValue { $0 } == 1)
        #expect(server.received.count == 64 + refused.withLockedValue { $0 })
    }

    @Test func withoutATokenOneIsGotBeforeTheFirstCall() async throws {
        let server = try await self.server("good")
        let client = self.client(
            server,
            TokenInterceptor {
                "good"
            } apply: {
                $1.body = ByteBuffer(string: $0)
            }
        )
        #expect(try await client.data(for: SocketRequest(type: 101)).string == "good")
        #expect(server.received.count == 1)
    }

    @Test func refusedNewTokenIsNotTriedForEver() async throws {
        let server = try await self.server("none")
        let client = self.client(
            server,
            TokenInterceptor(token: "old") {
                "bad"
            } apply: {
                $1.body = ByteBuffer(string: $0)
            }
        )
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .noPermission)
        #expect(server.received.map(\.string) == ["old", "bad"])
    }

    @Test func failedRefreshFailsThoseThatWaitAndTheNextCallTriesAgain() async throws {
        struct LoginFailed: Error {}
        let server = try await self.server("good")
        let attempts = NIOLockedValueBox(0)
        let client = self.client(
            server,
            TokenInterceptor {
                let number = attempts.withLockedValue { attempts in
                    attempts += 1
                    return attempts
                }
                if number == 1 { throw LoginFailed() }
                return "good"
            } apply: {
                $1.body = ByteBuffer(string: $0)
            }
        )
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .interceptorFailed)
        #expect(error.underlying is LoginFailed)
        #expect(try await client.data(for: SocketRequest(type: 101)).string == "good")
    }

    /// An app may have only one connection, by which it also signs in.
    @Test func refreshMayCallByTheSameClient() async throws {
        let server = try await self.server("new")
        server.on(100, .answer("new"))
        let shared = NIOLockedValueBox<SocketClient?>(nil)
        let client = self.client(
            server,
            TokenInterceptor(token: "old") {
                let client = try #require(shared.withLockedValue { $0 })
                return try await client.data(for: SocketRequest(type: 100, timeout: patience)).string
            } apply: {
                $1.body = ByteBuffer(string: $0)
            }
        )
        shared.withLockedValue { $0 = client }
        #expect(try await client.data(for: SocketRequest(type: 101, timeout: patience)).string == "new")
        #expect(server.received.map(\.type) == [101, 100, 101])
        shared.withLockedValue { $0 = nil }
    }

    @Test func refreshThatTakesTooLongFailsThoseThatWaitAndTheNextCallTriesAgain() async throws {
        let server = try await self.server("good")
        let attempts = NIOLockedValueBox(0)
        let client = self.client(
            server,
            TokenInterceptor(refreshTimeout: .milliseconds(50)) {
                let number = attempts.withLockedValue { attempts in
                    attempts += 1
                    return attempts
                }
                if number == 1 { try await untilCancelled() }
                return "good"
            } apply: {
                $1.body = ByteBuffer(string: $0)
            }
        )
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, timeout: patience))
        }
        #expect(error.code == .timeout)
        #expect(error.message.contains("refreshTimeout"))
        // The next refresh may be late too.
        try await eventually("the next call") {
            (try? await client.data(for: SocketRequest(type: 101)).string) == "good"
        }
    }

    @Test func callThatIsCancelledWaitsForTheTokenNoLonger() async throws {
        let server = try await self.server("good")
        let gate = Gate()
        let log = NIOLockedValueBox<[String]>([])
        let interceptor = TokenInterceptor {
            try await gate.wait()
            return "good"
        } apply: {
            $1.body = ByteBuffer(string: $0)
        }
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.interceptors = [noting("a", in: log), interceptor]
        }
        let task = client.dataTask(with: SocketRequest(type: 101, timeout: patience))
        task.resume()
        try await eventually("the refresh") { gate.waitingCount == 1 }
        task.cancel()
        try await eventually("the interceptors' end") { log.withLockedValue { $0 } == ["a in", "a out"] }
        gate.open()
        #expect(try await client.data(for: SocketRequest(type: 101)).string == "good")
    }
}
