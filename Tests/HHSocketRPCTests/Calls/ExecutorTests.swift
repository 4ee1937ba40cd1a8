// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import InMemoryLogging
import InMemoryTracing
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing
import Tracing

@testable import HHSocketRPC

/// Swift tasks and actors on a client's thread.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ExecutorTests {
    /// A client whose thread is known.
    private func client(
        of server: MockServer,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> (SocketClient, any EventLoop) {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let client = SocketClient.connecting(to: server.endpoint) { configuration in
            configuration.socket.eventLoopGroup = eventLoop
            configure(&configuration)
        }
        return (client, eventLoop)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func taskOnTheExecutorRunsOnTheThreadBeforeAndAfterEachCall() async throws {
        let server = try await MockServer(.echo)
        let (client, eventLoop) = self.client(of: server)
        let calls = Task(executorPreference: client.executor) {
            #expect(eventLoop.inEventLoop)
            var answers: [String] = []
            for number in 0..<100 {
                answers.append(try await client.data(for: SocketRequest(type: 101, body: "\(number)")).string)
                #expect(eventLoop.inEventLoop)
            }
            return answers
        }
        #expect(try await waitForValue(of: calls, "a hundred calls") == (0..<100).map { "\($0)" })
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func childTasksAndTypedSequencesStayThereToo() async throws {
        let server = try await MockServer(.echo)
        let (client, eventLoop) = self.client(of: server)
        let sum = try await withDeadline("the calls") {
            try await withTaskExecutorPreference(client.executor) {
                try await withThrowingTaskGroup(of: Int.self) { group in
                    for number in 0..<1_000 {
                        group.addTask {
                            #expect(eventLoop.inEventLoop)
                            return Int(try await client.data(for: SocketRequest(type: 101, body: "\(number)")).string)
                                ?? 0
                        }
                    }
                    return try await group.reduce(0, +)
                }
            }
        }
        #expect(sum == 499_500)
    }

    @available(macOS 14, iOS 17, tvOS 17, watchOS 10, visionOS 1, *)
    private actor Counter {
        private let client: SocketClient
        private let eventLoop: any EventLoop
        private(set) var count = 0
        nonisolated var unownedExecutor: UnownedSerialExecutor { self.client.executor.serial.asUnownedSerialExecutor() }

        init(_ client: SocketClient, _ eventLoop: any EventLoop) {
            self.client = client
            self.eventLoop = eventLoop
        }

        func call() async throws {
            #expect(self.eventLoop.inEventLoop)
            _ = try await self.client.data(for: SocketRequest(type: 101, body: ""))
            #expect(self.eventLoop.inEventLoop)
            self.count += 1
        }

        nonisolated func isIsolated() -> Bool { self.assumeIsolated { $0.count > 0 } }
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func actorOnTheThreadCallsAndStaysThere() async throws {
        let server = try await MockServer(.echo)
        let (client, eventLoop) = self.client(of: server)
        let counter = Counter(client, eventLoop)
        try await withDeadline("the calls") {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<100 { group.addTask { try await counter.call() } }
                try await group.waitForAll()
            }
        }
        #expect(await counter.count == 100)
        let isIsolated = await withCheckedContinuation { continuation in
            client.dispatch(SocketRequest(type: 101, body: "")) { _ in
                // Handlers run on the default queue.
                eventLoop.execute { continuation.resume(returning: counter.isIsolated()) }
            }
        }
        #expect(isIsolated)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func taskThatYieldsForEverDoesNotKeepTheThreadFromReading() async throws {
        let server = try await MockServer(.echo)
        let (client, _) = self.client(of: server)
        let busy = Task(executorPreference: client.executor) {
            while !Task.isCancelled { await Task.yield() }
        }
        for _ in 0..<20 {
            let answer = try await withDeadline("the answer") {
                try await client.data(for: SocketRequest(type: 101, body: "a"))
            }
            #expect(answer.string == "a")
        }
        busy.cancel()
        try await waitForValue(of: busy, "the end")
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func cancelledTaskCancelsItsCallAndContinuesThere() async throws {
        let server = try await MockServer(.drop)
        let (client, eventLoop) = self.client(of: server)
        let task = Task(executorPreference: client.executor) { () -> SocketError? in
            do throws(SocketError) {
                _ = try await client.data(for: SocketRequest(type: 101, body: ""))
                return nil
            } catch {
                #expect(eventLoop.inEventLoop)
                return error
            }
        }
        try await server.received(1, ofType: 101)
        task.cancel()
        #expect(try await waitForValue(of: task, "the end")?.code == .cancelled)
        // A task that was cancelled before it began.
        let late = Task(executorPreference: client.executor) { () -> SocketError? in
            while !Task.isCancelled { await Task.yield() }
            do throws(SocketError) {
                _ = try await client.data(for: SocketRequest(type: 101, body: ""))
                return nil
            } catch {
                return error
            }
        }
        late.cancel()
        #expect(try await waitForValue(of: late, "the end")?.code == .cancelled)
    }

    private enum Local {
        @TaskLocal static var name = "nobody"
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func timeoutsTaskLocalsAndSpansAreAsElsewhere() async throws {
        let tracer = InMemoryTracer()
        let server = try await MockServer(.drop)
        let (client, _) = self.client(of: server) { $0.tracer = tracer }
        let error = try await withDeadline("the timeout") { [tracer] in
            await Local.$name.withValue("somebody") {
                await Task(executorPreference: client.executor) { () -> SocketError? in
                    await tracer.withSpan("outer") { _ -> SocketError? in
                        do throws(SocketError) {
                            _ = try await client.data(
                                for: SocketRequest(type: 101, body: "", timeout: .milliseconds(50))
                            )
                            return nil
                        } catch {
                            #expect(Local.name == "somebody")
                            return error
                        }
                    }
                }.value
            }
        }
        #expect(error?.code == .timeout)
        let spans = tracer.finishedSpans
        let outer = try #require(spans.first { $0.operationName == "outer" })
        let call = try #require(spans.first { $0.operationName != "outer" })
        #expect(call.traceID == outer.traceID)
        #expect(call.parentSpanID == outer.spanID)
    }

    /// A client that is released ends its thread while tasks are on it and wait for it.
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test(arguments: [false, true]) func jobsOfAClientThatIsReleasedEndOnce(lendsThread: Bool) async throws {
        let server = try await MockServer(.echo)
        let ends = NIOLockedValueBox(0)
        let gate = Gate()
        var client: SocketClient? = lendsThread ? self.client(of: server).0 : .connecting(to: server.endpoint)
        let executor = try #require(client?.executor)
        _ = try await client?.data(for: SocketRequest(type: 101, body: ""))
        let count = 300
        var tasks = (0..<count).map { number in
            Task(executorPreference: executor) { [weak client] in
                switch number % 3 {
                // Runs on the thread when the client is released.
                case 0: while client != nil { await Task.yield() }
                // Returns to the thread at that time, or later.
                case 1: try? await Task.sleep(nanoseconds: UInt64(number) * 100_000)
                default: try? await gate.wait()
                }
                for _ in 0..<10 { await Task.yield() }
                ends.withLockedValue { $0 += 1 }
            }
        }
        client = nil
        // The thread has ended, or is about to.
        tasks += (0..<count).map { _ in Task(executorPreference: executor) { ends.withLockedValue { $0 += 1 } } }
        gate.open()
        for task in tasks { try await waitForValue(of: task, "the end of a task") }
        #expect(ends.withLockedValue { $0 } == 2 * count)
    }

    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func jobsAfterTheEndRunOneAfterTheOther() async throws {
        let server = try await MockServer(.echo)
        var client: SocketClient? = .connecting(to: server.endpoint)
        let executor = try #require(client?.executor)
        client = nil
        let running = NIOLockedValueBox((now: 0, most: 0))
        try await withDeadline("the tasks") {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<1_000 {
                    group.addTask(executorPreference: executor) {
                        running.withLockedValue { running in
                            running.now += 1
                            running.most = max(running.most, running.now)
                        }
                        usleep(10)
                        running.withLockedValue { $0.now -= 1 }
                    }
                }
            }
        }
        #expect(running.withLockedValue { $0.most } == 1)
    }

    #if DEBUG
    @available(macOS 15, iOS 18, tvOS 18, watchOS 11, visionOS 2, *)
    @Test func debugBuildWarnsOfAJobThatBlocksWhileItDoes() async throws {
        let handler = InMemoryLogHandler()
        let server = try await MockServer(.echo)
        let (client, _) = self.client(of: server) {
            $0.socket.logger = Logger(label: "test", factory: { _ in handler })
        }
        @Sendable func isWarned() -> Bool {
            handler.entries.contains { "\($0.message)".contains("has blocked the socket's thread") }
        }
        let job = Task(executorPreference: client.executor) {
            while !isWarned(), !Task.isCancelled { usleep(1_000) }
        }
        try await waitForValue(of: job, "the warning")
        #expect(handler.entries.filter { "\($0.message)".contains("has blocked the socket's thread") }.count == 1)
    }
    #endif
}
