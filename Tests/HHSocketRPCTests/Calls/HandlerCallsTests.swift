// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Calls that handlers make on the socket thread, while answers are still being delivered: those that are sent
/// immediately, and those that are not.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandlerCallsTests {
    /// Chains of calls, each made by the handler of the previous one.
    private final class Chains: Sendable {
        let client: SocketClient
        /// Whether calls are dispatched, and have no task.
        let dispatches: Bool
        let request: @Sendable (Int) -> SocketRequest
        let completions = NIOLockedValueBox<[String: Int]>([:])

        init(
            _ client: SocketClient,
            dispatches: Bool = false,
            _ request: @escaping @Sendable (Int) -> SocketRequest
        ) {
            self.client = client
            self.dispatches = dispatches
            self.request = request
        }

        func call(_ number: Int, left: Int) {
            let request = self.request(number)
            let length = request.body.readableBytes
            let handler = { @Sendable (result: Result<SocketResponse, SocketError>) in
                let outcome =
                    switch result {
                    case .success(let response):
                        response.body.readableBytes == length && response.body == request.body ? "echo" : "wrong"
                    case .failure(let error): "\(error.code)"
                    }
                self.completions.withLockedValue { $0[outcome, default: 0] += 1 }
                if left > 0 { self.call(number + 1, left: left - 1) }
            }
            if self.dispatches {
                self.client.dispatch(request, completionHandler: handler)
            } else {
                self.client.dataTask(with: request, completionHandler: handler).resume()
            }
        }

        var count: Int { self.completions.withLockedValue { $0.values.reduce(0, +) } }
    }

    @Test(arguments: [false, true]) func everyCallOfEveryChainIsAnsweredOnceWhateverItsSize(dispatches: Bool)
        async throws
    {
        let server = try await MockServer(.echo)
        let lengths = [0, 1, 16, 1_000, 1_025, 20_000, 65_536, 65_537, 200_000]
        let bodies = lengths.map { ByteBuffer(repeating: UInt8(truncatingIfNeeded: $0), count: $0) }
        let chains = Chains(SocketClient.callingBackInline(to: server), dispatches: dispatches) { number in
            var request = SocketRequest(type: 101, body: bodies[number % bodies.count])
            if number % 5 == 0 { request.priority = .high }
            if number % 7 == 0 { request.firstResponseTimeout = patience }
            // An invalid type: the call fails before anything is sent.
            if number % 11 == 0 { request.type = 3 }
            return request
        }
        for chain in 0..<40 { chains.call(chain, left: 99) }
        try await eventually("every completion") { chains.count == 4_000 }
        // The numbers of each chain are consecutive.
        let invalid = (0..<40).reduce(0) { sum, first in sum + (first..<first + 100).count { $0 % 11 == 0 } }
        #expect(chains.completions.withLockedValue { $0 } == ["echo": 4_000 - invalid, "invalidArgument": invalid])
        #expect(chains.client.statistics == ClientStatistics())
    }

    @Test(arguments: [false, true]) func moreThanTheChannelTakesAtOnceIsSentInOneBurst(dispatches: Bool) async throws {
        let server = try await MockServer(.echo)
        let chains = Chains(SocketClient.callingBackInline(to: server), dispatches: dispatches) { _ in
            SocketRequest(type: 101, body: ByteBuffer(repeating: 1, count: 1_000))
        }
        // Half a megabyte in flight; each answer makes the next call.
        for _ in 0..<500 { chains.call(0, left: 9) }
        try await eventually("every completion") { chains.count == 5_000 }
        #expect(chains.completions.withLockedValue { $0 } == ["echo": 5_000])
    }

    @Test func retainedTaskKnowsItsResult() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.callingBackInline(to: server)
        let (held, continuation) = AsyncStream.makeStream(of: SocketTask.self)
        client.dataTask(with: SocketRequest(type: 101, body: "first")) { _ in
            // This call is sent immediately.
            let task = client.dataTask(with: SocketRequest(type: 102, body: "second"))
            task.resume()
            #expect(task.state == .running)
            #expect(task.countOfBytesSent == 6)
            continuation.yield(task)
        }.resume()
        let task = try await first(of: held, "a task")
        try await eventually("its end") { task.state == .completed }
        #expect(task.response?.string == "second")
        #expect(task.error == nil)
        #expect(task.countOfBytesReceived == 6)
        let metrics = try #require(task.metrics)
        #expect(metrics.attempts == 1)
        #expect(metrics.bytesSent == 6)
        #expect(metrics.bytesReceived == 6)
        #expect(metrics.server == server.endpoint)
        #expect(metrics.sent != nil)
    }

    /// A weak reference may become a strong one at any moment, so it counts as one.
    @Test(arguments: [CallbackQueue.socketThread, CallbackQueue.default])
    func weaklyReferencedTaskShowsItsResult(queue: CallbackQueue) async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.callingBackInline(to: server) { $0.socket.callbackQueue = queue }
        let remembered = NIOLockedValueBox<Remembered>(Remembered())
        let outcomes = Watched<[String]>([])
        // A separate function, so that nothing retains the task when it returns.
        func begin(_ number: Int) {
            let task = client.dataTask(with: SocketRequest(type: 101, body: "\(number)")) { result in
                // The task still exists, with the expected state.
                let task = remembered.withLockedValue { $0.task }
                let seen = task.map { "\($0.state) \($0.response?.string ?? "nothing")" } ?? "gone"
                outcomes.withLockedValue { $0.append(seen) }
                _ = result
            }
            remembered.withLockedValue { $0.task = task }
            task.resume()
        }
        for number in 0..<200 {
            begin(number)
            try await outcomes.wait("the answer") { $0.count == number + 1 }
            #expect(outcomes.withLockedValue { $0[number] } == "completed \(number)")
        }
    }

    private struct Remembered: Sendable {
        weak var task: SocketTask?
    }

    @Test func tasksResumedAfterCancellingAllAreNotCancelled() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.callingBackInline(to: server)
        let outcomes = Watched<[String]>([])
        let isCancelled = client.dataTask(with: SocketRequest(type: 102)) { result in
            outcomes.withLockedValue { $0.append((try? result.get()) == nil ? "cancelled" : "answered") }
        }
        isCancelled.resume()
        client.dataTask(with: SocketRequest(type: 101)) { _ in
            client.cancelAllTasks()
            client.dataTask(with: SocketRequest(type: 101)) { result in
                outcomes.withLockedValue { $0.append((try? result.get()) == nil ? "lost" : "later") }
            }.resume()
        }.resume()
        try await outcomes.wait("both") { $0.count == 2 }
        #expect(outcomes.current == ["cancelled", "later"])
    }

    @Test func handlerIsNotCalledBeforeResumeReturns() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.callingBackInline(to: server) { $0.maximumInFlight = 1 }
        let order = Watched<[String]>([])
        client.dataTask(with: SocketRequest(type: 101)) { _ in
            for (name, type) in [("sent", 101), ("too many", 101), ("reserved", 3)] as [(String, UInt32)] {
                client.dataTask(with: SocketRequest(type: type)) { _ in
                    order.withLockedValue { $0.append("\(name) completed") }
                }.resume()
                order.withLockedValue { $0.append("\(name) resumed") }
            }
        }.resume()
        try await order.wait("all") { $0.count == 6 }
        let seen = order.current
        #expect(seen.prefix(3) == ["sent resumed", "too many resumed", "reserved resumed"])
    }

    /// Calls caused by the last answers of a connection are sent on its successor, although nothing else happens there.
    @Test(arguments: [CallbackQueue.socketThread, CallbackQueue.default])
    func callsMadeByAnswersOfAConnectionThatWasLeftAreSent(queue: CallbackQueue) async throws {
        for _ in 0..<20 {
            let old = try await MockServer(.echo)
            let new = try await MockServer(.echo)
            // Answered below, once the connection has been left.
            old.on(102, .drop)
            let client = SocketClient.connecting(to: old.endpoint, new.endpoint) {
                $0.socket.callbackQueue = queue
                $0.waitsForConnectivity = true
                // Nothing else wakes the thread.
                $0.socket.heartbeat = nil
                $0.timeout = patience
            }
            _ = try await client.data(for: SocketRequest(type: 101))
            let (answers, continuation) = AsyncStream.makeStream(of: String.self)
            client.dataTask(with: SocketRequest(type: 102)) { _ in
                client.dataTask(with: SocketRequest(type: 103, body: "next")) { result in
                    continuation.yield((try? result.get().string) ?? "lost")
                }.resume()
            }.resume()
            let held = try await old.received(1, ofType: 102)[0]
            let events = client.events
            client.switchServer(to: new.endpoint)
            _ = try await first(of: events, "the switch") { if case .switched = $0 { true } else { false } }
            try await old.connection(held.connection).perform(.frame(Frame(type: 102, serial: held.serial)))
            #expect(try await first(of: answers, "the answer") == "next")
            #expect(try await new.received(1, ofType: 103)[0].serial > 0)
        }
    }

    @Test func callsOnOtherQueuesAndAwaitedOnesEndWithTheirConnection() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .reset)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.waitsForConnectivity = true
            $0.socket.backoff.cap = .milliseconds(50)
        }
        for _ in 0..<20 {
            async let lost = client.data(for: SocketRequest(type: 102))
            async let other = client.data(for: SocketRequest(type: 101, body: "beside it"))
            let answer = try? await lost
            #expect(answer == nil)
            _ = try? await other
        }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "still")).string == "still")
    }
}
