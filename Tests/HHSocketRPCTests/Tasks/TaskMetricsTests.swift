// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The metrics and progress of a task, and the queue of its handler.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TaskMetricsTests {
    @Test func metricsOfACallAreInOrder() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let before = Date()
        let task = client.dataTask(with: SocketRequest(type: 101, body: "hello"))
        #expect(task.metrics == nil)
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        let metrics = try #require(task.metrics)
        let sent = try #require(metrics.sent)
        let firstByte = try #require(metrics.firstByte)
        // Dates and the monotonic clock from which they are computed may differ by a correction of the clock.
        #expect(metrics.queued > before.addingTimeInterval(-1))
        #expect(metrics.queued <= sent)
        #expect(sent <= firstByte)
        #expect(firstByte <= metrics.completed)
        #expect(abs(metrics.completed.timeIntervalSince(metrics.queued) - metrics.duration.inSeconds) < 0.001)
        #expect(metrics.server == server.endpoint)
        #expect(metrics.attempts == 1)
        #expect(metrics.bytesSent == 5)
        #expect(metrics.bytesReceived == 5)
    }

    @Test func metricsOfACallThatNeverLeft() async throws {
        let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 1)]))
        let task = client.dataTask(with: SocketRequest(type: 101, body: "hello"))
        task.resume()
        try await eventually("the refusal") { task.state == .completed }
        let metrics = try #require(task.metrics)
        #expect(metrics.sent == nil)
        #expect(metrics.firstByte == nil)
        #expect(metrics.server == nil)
        #expect(metrics.attempts == 0)
        #expect(metrics.bytesSent == 0)
        let cancelled = client.dataTask(with: SocketRequest(type: 101))
        cancelled.cancel()
        try await eventually("the cancellation") { cancelled.state == .completed }
        #expect(cancelled.metrics == nil)
    }

    @Test func timeThatTheServerTakesIsBetweenSentAndFirstByte() async throws {
        let server = try await MockServer(.echo.delayed(by: .milliseconds(100)))
        let client = SocketClient.connecting(to: server.endpoint)
        try await eventually("ready") { if case .ready = client.state { true } else { false } }
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        let metrics = try #require(task.metrics)
        #expect(try #require(metrics.firstByte).timeIntervalSince(try #require(metrics.sent)) > 0.09)
        #expect(metrics.duration > .milliseconds(90))
    }

    @Test func firstByteComesBeforeTheLast() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .answer(ByteBuffer(repeating: 7, count: 40)).dribbled(bytes: 20, every: .milliseconds(100)))
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        let metrics = try #require(task.metrics)
        // There are three pauses in between.
        #expect(metrics.completed.timeIntervalSince(try #require(metrics.firstByte)) > 0.05)
    }

    // MARK: Progress

    @Test func smallBodyCountsAsSentBeforeItIsAnswered() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101, body: "hello"))
        let progress = task.progress
        task.resume()
        try await eventually("the bytes") { task.countOfBytesSent == 5 }
        #expect(task.countOfBytesReceived == 0)
        #expect(task.countOfBytesExpectedToReceive == nil)
        #expect(!progress.isFinished)
    }

    /// A connection without other activity: slices of a large body are sent when the channel takes more, and the time
    /// for the first byte of the answer begins when the last slice was sent.
    @Test func largeBodyThatIsSentByItselfShowsItsProgressAndHasItsTimeForAnAnswer() async throws {
        // More than the kernels of both ends take while the peer does not read, and the maximum length of a frame.
        let length = 16 << 20
        let server = try await MockServer(.echo)
        server.onOpen(.stopReading)
        server.on(102, .drop)
        let time = ManualTime()
        let body = ByteBuffer(repeating: 1, count: length)
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.waitsForConnectivity = true
            $0.timeout = patience
            $0.socket.heartbeat = nil
            $0.socket.time = SocketTime(time)
            $0.socket.callbackQueue = .queue(DispatchQueue(label: "callbacks"))
        }
        var request = SocketRequest(type: 101, body: body)
        // Less time than sending the body takes. Meanwhile nothing is sent, but not for so long that the link stalls.
        request.firstResponseTimeout = .seconds(3)
        let slow = client.dataTask(with: request)
        slow.resume()
        try await eventually("a part of it") { slow.countOfBytesSent > 0 }
        await time.advance(by: .seconds(10))
        try await server.connection(0).perform(.wakeUp)
        try await eventually("the answer") { slow.state == .completed }
        #expect(slow.response?.body.readableBytes == length)

        let task = client.dataTask(with: SocketRequest(type: 102, body: body)) { _ in }
        let progress = task.progress
        task.resume()
        // The request is not answered, so that nothing arrives.
        try await eventually("all of it") { progress.completedUnitCount >= length }
        #expect(task.state == .running)
        task.cancel()
    }

    @Test func progressFollowsTheAnswerAndIsFinishedWhenTheHandlerRuns() async throws {
        let server = try await MockServer(.echo)
        let gate = Gate()
        // The second half is sent when the test has seen the first.
        let body = ByteBuffer(repeating: 7, count: 1_000)
        server.on(101, .answer(body).dribbled(bytes: 500, every: .milliseconds(20)))
        let queue = DispatchQueue(label: "progress")
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = .queue(queue) }
        let atTheEnd = NIOLockedValueBox<(Bool, Double)?>(nil)
        let box = NIOLockedValueBox<SocketTask?>(nil)
        let task = client.dataTask(with: SocketRequest(type: 101, body: "hello")) { _ in
            let progress = box.withLockedValue { $0?.progress }
            atTheEnd.withLockedValue { $0 = progress.map { ($0.isFinished, $0.fractionCompleted) } }
            gate.open()
        }
        box.withLockedValue { $0 = task }
        _ = task.progress
        task.resume()
        let half = NIOLockedValueBox(0)
        try await eventually("the first half") {
            // Foundation's Progress is read where it changes.
            let units = queue.sync { task.progress.completedUnitCount }
            let received = task.countOfBytesReceived
            half.withLockedValue { $0 = max($0, received < 1_000 ? received : 0) }
            return units >= 500 || task.state == .completed
        }
        try await gate.wait("the handler")
        #expect(task.countOfBytesReceived == 1_000)
        #expect(task.countOfBytesExpectedToReceive == 1_000)
        #expect(atTheEnd.withLockedValue { $0?.0 } == true)
        #expect(atTheEnd.withLockedValue { $0?.1 } == 1)
        #expect(queue.sync { task.progress.completedUnitCount } == 1_005)
        box.withLockedValue { $0 = nil }
    }

    @Test func failedTaskIsNotShownAsFinished() async throws {
        let server = try await MockServer(.status(.unknown))
        let queue = DispatchQueue(label: "progress")
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.callbackQueue = .queue(queue) }
        let task = client.dataTask(with: SocketRequest(type: 101, body: "hello"))
        _ = task.progress
        task.resume()
        try await eventually("the end") { task.state == .completed }
        try await eventually("the last update") { queue.sync { task.progress.completedUnitCount } == 5 }
    }

    @Test func cancellingTheProgressCancelsTheTask() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await server.received(1)
        task.progress.cancel()
        try await eventually("the cancellation") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
    }

    @Test func progressDoesNotKeepItsTask() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        var task: SocketTask? = client.dataTask(with: SocketRequest(type: 101))
        let progress = task?.progress
        weak let weakTask = task
        task?.resume()
        try await eventually("the answer") { [task] in task?.state == .completed }
        task = nil
        try await eventually("the task's end") { weakTask == nil }
        progress?.cancel()
    }

    // MARK: Queue

    @Test func handlerRunsOnTheQueueOfItsTask() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let key = DispatchSpecificKey<Int>()
        let queue = DispatchQueue(label: "own")
        queue.setSpecific(key: key, value: 7)
        let found = NIOLockedValueBox<[Int?]>([])
        for own in [CallbackQueue.queue(queue), nil] {
            client.dataTask(with: SocketRequest(type: 101), on: own) { _ in
                found.withLockedValue { $0.append(DispatchQueue.getSpecific(key: key)) }
            }.resume()
            try await eventually("the handler") { [count = own == nil ? 2 : 1] in
                found.withLockedValue { $0.count } == count
            }
        }
        #expect(found.withLockedValue { $0 } == [7, nil])
    }

    @Test func handlerOfATaskThatOutlivesItsClientRunsOnTheTasksQueue() async throws {
        let key = DispatchSpecificKey<Int>()
        let queue = DispatchQueue(label: "own")
        queue.setSpecific(key: key, value: 7)
        let found = Watched<Int?>(nil)
        var client: SocketClient? = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 1)]))
        let task = client?.dataTask(with: SocketRequest(type: 101), on: .queue(queue)) { _ in
            found.withLockedValue { $0 = DispatchQueue.getSpecific(key: key) }
        }
        client = nil
        task?.resume()
        try await found.wait("the handler") { $0 == 7 }
        #expect(task?.error?.code == .cancelled)
    }

    // MARK: Priority

    @Test func priorityOfATaskThatWaitsCanBeRaised() async throws {
        let server = try await MockServer(.echo)
        let gate = Gate()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.gate = HandshakeGate { _ in try await gate.wait() }
        }
        try await server.connection(0)
        let tasks = (UInt32(101)...103).map { client.dataTask(with: SocketRequest(type: $0)) }
        for task in tasks { task.resume() }
        #expect(tasks[2].priority == .default)
        tasks[2].priority = 1.0
        tasks[0].priority = .low
        let last = client.dataTask(with: SocketRequest(type: 1))
        last.resume()
        try await eventually("the last") { last.state == .completed }
        gate.open()
        #expect(try await server.received(3).map(\.type) == [103, 102, 101])
    }

    // MARK: Cancel

    @Test func cancelCarriesWhatIsToBeUndone() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        var request = SocketRequest(type: 101, body: "reserve seat 7")
        request.cancellationBody = ByteBuffer(string: "seat 7")
        let task = client.dataTask(with: request)
        task.resume()
        let serial = try await server.received(1)[0].serial
        task.cancel()
        let cancel = try await server.received(1, ofType: FrameType.cancel)[0]
        #expect(cancel.string == "seat 7")
        #expect(cancel.serial == serial)
        // The same holds on a timeout.
        _ = try await client.errorOfUnansweredCall(request)
        #expect(try await server.received(2, ofType: FrameType.cancel)[1].string == "seat 7")
    }

    @Test func cancellationBodyOverTheLimitIsRefusedBeforeAnythingIsSent() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.maximumPayloadLength = 100 }
        var request = SocketRequest(type: 101)
        request.cancellationBody = ByteBuffer(repeating: 1, count: 101)
        let error = try await socketError { [request] () throws(SocketError) in _ = try await client.data(for: request)
        }
        #expect(error.code == .frameTooLarge)
        #expect(server.received.isEmpty)
    }
}
