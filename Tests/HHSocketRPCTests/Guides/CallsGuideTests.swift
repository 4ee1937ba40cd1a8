// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

struct Stopwatch: SocketInterceptor {
    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
        let start = ContinuousClock.now
        defer { print("type \(request.type) took \(ContinuousClock.now - start)") }
        return try await next(request)
    }
}

/// The examples of `Calls.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallsGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Calls").shortcomings(allowing: ["Dispatch"]) == [])
    }

    @Test func makingOne() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let queue = DispatchQueue(label: "own")

        let request = SocketRequest(type: 101, body: "hello", timeout: .seconds(8))

        // With async.
        let response = try await client.data(for: request)

        // With a completion handler, which runs on the client's callback queue.
        let task = client.dataTask(with: request) { result in
            switch result {
            case .success(let response): print(response.string)
            case .failure(let error): print(error)
            }
        }
        task.resume()

        // On a queue of the task's own.
        let other = client.dataTask(with: request, on: .queue(queue)) { result in print(result) }
        other.resume()

        try await eventually("both answers") { task.state == .completed && other.state == .completed }
        #expect([response, task.response, other.response].map { $0?.string } == ["hello", "hello", "hello"])
    }

    @Test func besideTheBody() async throws {
        let server = try await MockServer(.echo.withMetadata(["region": "eu"]))
        server.acceptHello()
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.hello = HelloPolicy()
        configuration.compression = CompressionPolicy(minimumLength: 4_096)
        configuration.timeout = patience
        let client = SocketClient(configuration: configuration)
        client.connect()
        try await eventually("ready") { if case .ready = client.state { true } else { false } }

        var request = SocketRequest(type: 130, body: "transfer 100")
        request.metadata = ["tenant": "acme"]
        // After that the answer is of no use, and the server may stop the work.
        request.deadline = .now() + .seconds(30)
        // However often it comes, it is done once. So a retry policy may send it again.
        request.idempotencyKey = "7c9e6679"
        let response = try await client.data(for: request)
        print(response.metadata)

        #expect(response.metadata == ["region": "eu"])
        #expect(try await server.received(1, ofType: 130).first?.idempotencyKey == "7c9e6679")
    }

    @Test func cancelling() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        try await eventually("ready") { if case .ready = client.state { true } else { false } }

        var request = SocketRequest(type: 120, body: "reserve seat 7")
        // Sent to the server with the cancel, and on a timeout.
        request.cancellationBody = ByteBuffer(string: "seat 7")
        let task = client.dataTask(with: request)
        task.resume()
        task.cancel()

        try await eventually("the end") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
    }

    @Test func withoutAConnection() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient(configuration: .init(servers: [server.endpoint]))

        var request = SocketRequest(type: 101, body: "whenever", timeout: .seconds(60))
        request.waitsForConnectivity = true
        request.priority = .low

        let task = client.dataTask(with: request)
        task.resume()
        client.connect()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.response?.string == "whenever")
    }

    @Test func retries() async throws {
        let server = try await MockServer(.echo)
        server.once(102, .status(.overloaded))
        server.once(102, .reset)
        var configuration = SocketClient.Configuration(servers: [server.endpoint])

        configuration.retryPolicy = RetryPolicy(maximumAttempts: 3)

        var request = SocketRequest(type: 102, body: "give me page 7")
        // Reading a page twice does no harm.
        request.isIdempotent = true
        // This one is tried more often.
        request.retryPolicy = RetryPolicy(
            maximumAttempts: 5,
            backoff: Backoff(base: .milliseconds(50), cap: .seconds(1))
        )

        let client = SocketClient(configuration: configuration)
        client.connect()
        let task = client.dataTask(with: request)
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.metrics?.attempts == 3)
    }

    @Test func propertiesOfATask() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let bytes = ByteBuffer(repeating: 7, count: 100)

        let task = client.dataTask(with: SocketRequest(type: 101, body: bytes)) { _ in }
        let progress = task.progress  // a Foundation Progress: bytes sent and received; cancelling it cancels the task
        task.resume()

        try await eventually("the answer") { task.state == .completed }

        if let metrics = task.metrics {
            print("\(metrics.duration) by \(metrics.attempts) attempts, \(metrics.bytesReceived) bytes")
            print(metrics.queued, metrics.completed)
            if let sent = metrics.sent, let firstByte = metrics.firstByte, let server = metrics.server {
                print("sent \(sent), first byte \(firstByte), from \(server)")
            }
        }

        #expect(task.metrics?.bytesReceived == 100)
        #expect(progress.isCancellable)
    }

    @Test func interceptors() async throws {
        let server = try await MockServer(.echo)
        server.acceptHello()
        server.once(101, .status(.noPermission))
        var configuration = SocketClient.Configuration(servers: [server.endpoint])
        configuration.hello = HelloPolicy()
        configuration.timeout = patience
        let saved = "old"
        @Sendable func logIn() async throws -> String { "new" }

        configuration.interceptors = [
            Stopwatch(),
            TokenInterceptor(token: saved) {
                try await logIn()
            } apply: { token, request in
                request.metadata["token"] = token
            },
        ]

        let client = SocketClient(configuration: configuration)
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        let tokens = try await server.received(2, ofType: 101).map { $0.metadata["token"] }
        #expect(tokens == ["old", "new"])
    }

    @Test func pushes() async throws {
        actor Store {
            var bodies: [String] = []
            func save(_ body: ByteBuffer) throws { self.bodies.append(String(buffer: body)) }
            func append(_ body: ByteBuffer) { self.bodies.append(String(buffer: body)) }
        }
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let store = Store()
        let journal = Store()
        let reader = Task {
            for await push in client.pushes(ofType: 2001) {
                print(push.string)
            }
        }
        let writer = Task {
            for await push in client.pushes(buffering: .suspendReading(64)) {
                await journal.append(push.body)
            }
        }

        let subscription = client.onPush(ofType: 2002, buffering: .dropNewest(100)) { push in
            try await store.save(push.body)
        }

        // The two tasks subscribe when they begin to run.
        try await eventually("the pushes") {
            await server.perform(.push(2002, "two").then(.push(2001, "one")))
            let (saved, noted) = await (store.bodies, journal.bodies)
            return saved.contains("two") && noted.contains("one")
        }
        subscription.cancel()
        reader.cancel()
        writer.cancel()
    }
}
