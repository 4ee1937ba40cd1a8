// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// A demonstration of two servers and a client in one process, over real TCP: what `make demo` and `hhsocket demo` run.
package struct Demo {
    /// A step that failed, and the reason.
    package struct Failure: Error, CustomStringConvertible {
        package var step: String
        package var reason: String

        package var description: String { "the step \"\(self.step)\" failed: \(self.reason)" }
    }

    /// The reason for a failure, before it is attributed to a step.
    private struct Unexpected: Error, CustomStringConvertible {
        var description: String
    }

    /// Answered with its own payload.
    private static let echo: UInt32 = 1000
    /// Answered after a minute.
    private static let minute: UInt32 = 1001
    /// Answered with the payload's SHA-256 in hexadecimal.
    private static let sha256: UInt32 = 1003
    private static let news: UInt32 = 2001
    /// The time limit of each wait, which only a stuck machine exceeds.
    private static let patience = Duration.seconds(20)

    private let first = Self.server()
    private let second = Self.server()
    /// The server that listens at the first server's address after that one has stopped.
    private let returned = NIOLockedValueBox<SocketServer?>(nil)

    /// Prints a line.
    private let output: @Sendable (String) throws -> Void

    /// - Parameter output: Prints a line, which comes without its end. An error that it throws ends the demonstration.
    package init(output: @escaping @Sendable (String) throws -> Void) {
        self.output = output
    }

    /// Runs the steps, and prints a line after each.
    ///
    /// - Throws: ``Failure``, and what `output` throws.
    package func run() async throws {
        do {
            try await self.steps()
        } catch {
            await self.stop()
            throw error
        }
        await self.stop()
    }

    private func stop() async {
        await self.first.shutdown(gracePeriod: .zero)
        await self.second.shutdown(gracePeriod: .zero)
        await self.returned.withLockedValue { $0 }?.shutdown(gracePeriod: .zero)
    }

    private func steps() async throws {
        let (a, b) = try await self.step("servers") {
            try await self.first.start()
            try await self.second.start()
            guard let a = self.first.address, let b = self.second.address else {
                throw Unexpected(description: "a server has no address")
            }
            return ((a, b), "listening on \(a) and \(b)")
        }
        var configuration = SocketClient.Configuration(servers: [a, b])
        // A spectator should not have to wait as long as by default.
        configuration.socket.backoff = Backoff(base: .milliseconds(200), cap: .seconds(1))
        let client = SocketClient(configuration: configuration)
        let events = client.events
        let pushes = client.pushes(ofType: Self.news)

        try await self.step("connect") {
            client.connect()
            let endpoint = try await Self.connected(events)
            try Self.expect(endpoint == a, "connected to \(endpoint) instead of the first server, \(a)")
            return ((), "to the first server")
        }
        try await self.step("calls") {
            try await Self.manyCalls(client)
            return ((), "1,000 calls, 64 at a time: each answered with its own payload")
        }
        let body = Self.randomBytes(3 << 20)
        try await self.step("big body") {
            let digest = try await Self.bigBody(client, body)
            return ((), "3 MiB sent; its SHA-256, \(digest.prefix(8))…, is the server's too")
        }
        try await self.step("push") {
            try await self.push(pushes)
            return ((), "sent by the server, received without asking")
        }
        try await self.step("websocket") {
            let path = try await Self.overWebSocket()
            return ((), "100 calls and a message over \(path), on a port that takes plain TCP too")
        }
        try await self.step("cancel") {
            try await self.cancelledCall(client)
            return ((), "a call of a minute, given up; the server has stopped working on it")
        }
        try await self.step("timeout") {
            try await self.timedOutCall(client)
            return ((), "a call of a minute with a timeout of 200 ms; the server was told")
        }
        try await self.step("failover") {
            try await self.failover(client, to: b)
            return ((), "the first server killed in mid-call; the client continues with the second")
        }
        try await self.step("found") {
            let time = String(format: "%.0f ms", Self.milliseconds(try await self.lostAndFound(client, at: a)))
            return ((), "both servers killed; the client found the first one by itself, \(time) after its return")
        }
        try await self.step("goodbye") {
            await client.close()
            await self.stop()
            return ((), "connection closed, servers stopped")
        }
    }

    // MARK: Steps

    private static func manyCalls(_ client: SocketClient) async throws {
        try await withThrowingTaskGroup { group in
            for worker in 0..<64 {
                group.addTask {
                    for number in stride(from: worker, to: 1000, by: 64) {
                        let text = "call \(number)"
                        let answer = try await client.data(for: SocketRequest(type: Self.echo, body: text))
                        try Self.expect(answer.string == text, "\"\(text)\" was answered with \"\(answer.string)\"")
                    }
                }
            }
            try await group.waitForAll()
        }
    }

    private static func randomBytes(_ count: Int) -> ByteBuffer {
        var random: UInt32 = 88_172_645
        var bytes = ByteBuffer()
        bytes.reserveCapacity(count + 4)
        while bytes.readableBytes < count {
            random ^= random << 13
            random ^= random >> 17
            random ^= random << 5
            bytes.writeInteger(random)
        }
        return bytes.readSlice(length: count) ?? bytes
    }

    private static func bigBody(_ client: SocketClient, _ body: ByteBuffer) async throws -> String {
        let (results, continuation) = AsyncStream.makeStream(of: Result<SocketResponse, SocketError>.self)
        let request = SocketRequest(type: Self.sha256, body: body, timeout: self.patience)
        let task = client.dataTask(with: request) { continuation.yield($0) }
        task.resume()
        var iterator = results.makeAsyncIterator()
        let result = await iterator.next()
        guard let answer = try result?.get() else { throw Unexpected(description: "no answer") }
        let ours = Self.digest(of: body)
        try self.expect(answer.string == ours, "the server's SHA-256 is \(answer.string), ours \(ours)")
        return ours
    }

    private func push(_ pushes: SocketPushes) async throws {
        let reached = await self.first.push(type: Self.news, body: ByteBuffer(string: "good news"))
        try Self.expect(reached == 1, "handed to \(reached) connections instead of 1")
        let push = try await Self.within(Self.patience, otherwise: "no push arrived") {
            var iterator = pushes.makeAsyncIterator()
            return await iterator.next()
        }
        try Self.expect(push?.string == "good news", "received \"\(push?.string ?? "")\"")
    }

    /// Makes calls and sends a message through a transport that any proxy forwards.
    ///
    /// - Returns: The scheme and path of the calls.
    private static func overWebSocket() async throws -> String {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: "/rpc", sharesPort: true)
        let server = SocketServer(
            configuration: .init(listeners: [listener]),
            router: Self.router()
        )
        try server.webSocket("/echo", onMessage: { message, connection in connection.post(message) })
        try await server.start()
        let result: Result<Void, any Error> = await .of {
            guard let address = server.address else { throw Unexpected(description: "the server has no address") }
            let outcome: Result<Void, any Error>? = try await Self.within(
                Self.patience,
                otherwise: "nothing came back"
            ) {
                await .of { try await Self.exchange("ws://\(address)") }
            }
            try outcome?.get()
        }
        await server.shutdown(gracePeriod: .zero)
        try result.get()
        return "ws://…/rpc"
    }

    private static func exchange(_ url: String) async throws {
        let client = SocketClient(configuration: .init(servers: [try Endpoint(url: "\(url)/rpc")]))
        client.connect()
        try await client.connected()
        for number in 0..<100 {
            let answer = try await client.data(for: SocketRequest(type: Self.echo, body: "call \(number)"))
            try Self.expect(answer.string == "call \(number)", "call \(number) was answered \"\(answer.string)\"")
        }
        await client.close()
        let link = WebSocketLink(configuration: try .init(url: "\(url)/echo"))
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        var messages = link.messages.makeAsyncIterator()
        let echo = await messages.next()?.text
        try Self.expect(echo == "hello", "the message \"hello\" came back as \(echo ?? "nothing")")
    }

    private func cancelledCall(_ client: SocketClient) async throws {
        let before = self.first.statistics
        let (results, continuation) = AsyncStream.makeStream(of: Result<SocketResponse, SocketError>.self)
        let request = SocketRequest(type: Self.minute, timeout: Self.patience)
        let task = client.dataTask(with: request) { continuation.yield($0) }
        task.resume()
        try await self.until("the request did not arrive") { $0[.requests] == before[.requests] + 1 }
        task.cancel()
        var iterator = results.makeAsyncIterator()
        guard case .failure(let error)? = await iterator.next(), error.code == .cancelled else {
            throw Unexpected(description: "it did not end as cancelled")
        }
        try await self.until("the server was not notified") { $0[.cancelledRequests] == before[.cancelledRequests] + 1 }
    }

    private func timedOutCall(_ client: SocketClient) async throws {
        let before = self.first.statistics
        let error = await Self.failure {
            try await client.data(
                for: SocketRequest(type: Self.minute, timeout: .milliseconds(200))
            )
        }
        try Self.expect(error?.code == .timeout, "it ended with \(error.map(String.init(describing:)) ?? "an answer")")
        try await self.until("the server was not notified") { $0[.cancelledRequests] == before[.cancelledRequests] + 1 }
    }

    private func failover(_ client: SocketClient, to next: Endpoint) async throws {
        let before = self.first.statistics
        let events = client.events
        let inFlight = Task {
            await Self.failure {
                try await client.data(for: SocketRequest(type: Self.minute, timeout: Self.patience))
            }
        }
        try await self.until("the request did not arrive") { $0[.requests] == before[.requests] + 1 }
        await self.first.shutdown(gracePeriod: .zero)
        let error = await inFlight.value
        try Self.expect(
            error?.code == .connectionLost,
            "the call in flight ended with \(error.map(String.init(describing:)) ?? "an answer")"
        )
        let endpoint = try await Self.connected(events)
        try Self.expect(endpoint == next, "reconnected to \(endpoint) instead of \(next)")
        let answer = try await client.data(for: SocketRequest(type: Self.echo, body: "still here"))
        try Self.expect(answer.string == "still here" && answer.endpoint == next, "answered \(answer)")
    }

    /// Stops the last server, and starts one at the address of the first. Returns the time from then until the client
    /// is connected to it.
    private func lostAndFound(_ client: SocketClient, at endpoint: Endpoint) async throws -> Duration {
        let events = client.events
        await self.second.shutdown(gracePeriod: .zero)
        _ = try await Self.next(events, otherwise: "the loss was not reported") {
            if case .disconnected = $0 { true } else { nil }
        }
        // The client could not reach any server, and waits.
        _ = try await Self.next(events, otherwise: "no attempt failed") {
            if case .connectFailed = $0 { true } else { nil }
        }
        _ = try await Self.next(events, otherwise: "the client does not wait") {
            if case .waiting = $0 { true } else { nil }
        }

        try await self.start(at: endpoint)
        let clock = ContinuousClock()
        let start = clock.now
        let found = try await Self.connected(events)
        let time = clock.now - start
        try Self.expect(found == endpoint, "connected to \(found) instead of \(endpoint)")
        let answer = try await client.data(for: SocketRequest(type: Self.echo, body: "found"))
        try Self.expect(answer.string == "found" && answer.endpoint == endpoint, "answered \(answer)")
        return time
    }

    /// Creates a server that does not log: the output is for people to read.
    private static func server(host: String = "127.0.0.1", port: Int = 0) -> SocketServer {
        var configuration = SocketServer.Configuration(host: host, port: port)
        configuration.logger = Logger(label: "demo", factory: { _ in SwiftLogNoOpLogHandler() })
        return SocketServer(configuration: configuration, router: self.router())
    }

    private static func router() -> Router {
        var router = Router()
        router.handleSynchronously(self.echo) { request, _ in request.body }
        router.handle(self.minute) { request, _ in
            try await Task.sleep(for: .seconds(60))
            return request.body
        }
        router.handle(self.sha256) { request, _ in ByteBuffer(string: Self.digest(of: request.body)) }
        return router
    }

    private static func digest(of bytes: ByteBuffer) -> String {
        bytes.withUnsafeReadableBytes { SHA256.hash(of: $0) }.hexadecimal
    }

    /// Starts another server, on a port of an earlier one.
    private func start(at endpoint: Endpoint) async throws {
        let server = Self.server(host: endpoint.host, port: endpoint.port)
        self.returned.withLockedValue { $0 = server }
        let clock = ContinuousClock()
        let deadline = clock.now + Self.patience
        while true {
            do {
                return try await server.start()
            } catch {
                // An outgoing connection of another process may use the port for a moment.
                guard error.code == .bindFailed, clock.now < deadline else { throw error }
            }
            try await Task.sleep(for: .milliseconds(10))
        }
    }

    // MARK: Pieces

    private static func milliseconds(_ time: Duration) -> Double { time / .milliseconds(1) }

    /// Runs one step and prints its line.
    @discardableResult
    private func step<Value: Sendable>(
        _ name: String,
        _ body: () async throws -> (Value, String)
    ) async throws -> Value {
        let clock = ContinuousClock()
        let start = clock.now
        let result: (value: Value, text: String)
        do {
            result = try await body()
        } catch {
            throw Failure(step: name, reason: "\(error)")
        }
        let milliseconds = String(format: "%8.1f ms", Self.milliseconds(clock.now - start))
        let padded = name.padding(toLength: 9, withPad: " ", startingAt: 0)
        try self.output("\(milliseconds)  \(padded)  \(result.text)")
        return result.value
    }

    private static func expect(_ condition: Bool, _ otherwise: @autoclosure () -> String) throws {
        if !condition { throw Unexpected(description: otherwise()) }
    }

    private static func failure(_ call: () async throws -> SocketResponse) async -> SocketError? {
        do {
            _ = try await call()
            return nil
        } catch {
            return error as? SocketError
        }
    }

    /// Returns the server of the next connection, which may be ready before the end of the one that it replaces, if
    /// that got a go-away.
    private static func connected(_ events: AsyncStream<SocketEvent>) async throws -> Endpoint {
        try await self.next(events, otherwise: "no connection") {
            switch $0 {
            case .connected(let endpoint), .switched(_, let endpoint): endpoint
            default: nil
            }
        }
    }

    /// Returns the first value that `choose` returns for an event. If there is none in time, the error lists the
    /// events.
    private static func next<Value: Sendable>(
        _ events: AsyncStream<SocketEvent>,
        otherwise: String,
        _ choose: @escaping @Sendable (SocketEvent) -> Value?
    ) async throws -> Value {
        let others = NIOLockedValueBox<[SocketEvent]>([])
        do {
            let value = try await self.within(self.patience, otherwise: otherwise) {
                for await event in events {
                    if let value = choose(event) { return value }
                    others.withLockedValue { $0.append(event) }
                }
                return nil
            }
            if let value { return value }
        } catch is Unexpected {}
        let list = others.withLockedValue { $0.suffix(20).map { "\($0)" }.joined(separator: "; ") }
        throw Unexpected(description: list.isEmpty ? otherwise : "\(otherwise), but: \(list)")
    }

    /// Waits until the statistics of the first server meet a condition.
    private func until(_ otherwise: String, _ condition: (ServerStatistics) -> Bool) async throws {
        let clock = ContinuousClock()
        let deadline = clock.now + Self.patience
        while !condition(self.first.statistics) {
            try Self.expect(clock.now < deadline, otherwise)
            try await Task.sleep(for: .milliseconds(1))
        }
    }

    private static func within<Value: Sendable>(
        _ time: Duration,
        otherwise: String,
        _ body: @escaping @Sendable () async -> Value?
    ) async throws -> Value? {
        try await withThrowingTaskGroup { group in
            group.addTask { await body() }
            group.addTask {
                try await Task.sleep(for: time)
                throw Unexpected(description: otherwise)
            }
            defer { group.cancelAll() }
            return try await group.next() ?? nil
        }
    }
}
