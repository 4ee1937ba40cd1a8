// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The calls of generated mocks: their handlers see the options, and they end as the calls of a client do.
@Suite(.timeLimit(.minutes(5))) struct MockClientTests {
    private struct Unexpected: Error {}

    private let clock = VirtualClock()

    private func error<Value: Sendable>(
        _ call: @escaping @Sendable () async throws -> Value
    ) async throws -> SocketError? {
        let call = Task { try await call() }
        return await #expect(throws: SocketError.self) { try await waitForValue(of: call, "the end of the call") }
    }

    private func reply(_ version: UInt64) -> Kv_PutReply { .with { $0.version = version } }

    // MARK: Options

    @Test func handlerMayTakeTheOptions() async throws {
        var mock = Kv_Store.MockClient()
        mock.onPut { entry, options in
            guard options.idempotencyKey == entry.key else { throw Unexpected() }
            #expect(options.metadata == ["tenant": "acme"])
            return Kv_PutReply.with { $0.version = UInt64(options.timeout?.components.seconds ?? 0) }
        }
        let store: any Kv_Store.ClientProtocol = mock
        var options = CallOptions(timeout: .seconds(30))
        options.idempotencyKey = "a"
        options.metadata = ["tenant": "acme"]
        #expect(try await store.put(.with { $0.key = "a" }, options: options) == self.reply(30))
        #expect(try await self.error { try await store.put(.with { $0.key = "a" }) }?.code == .unknown)
    }

    @Test func handlerOfAStreamMayTakeTheOptions() async throws {
        var store = Kv_Store.MockClient()
        store.onScan { request, options in
            let (stream, far) = MessageStream<Kv_GetRequest, Kv_Entry>.mock()
            far.respond(.with { $0.key = "\(request.keys.first ?? "")\(options.metadata["suffix"] ?? "")" })
            far.finish()
            return stream
        }
        var options = CallOptions()
        options.metadata = ["suffix": "nn"]
        let entries = try await store.scan(.with { $0.keys = ["a"] }, options: options)
        var keys: [String] = []
        for try await entry in entries { keys.append(entry.key) }
        #expect(keys == ["ann"])

        var transfer = Files_Transfer.MockClient()
        transfer.onSendAll { options in
            let (stream, far) = MessageStream<Files_Piece, Files_Upload>.mock()
            far.answer(.with { $0.id = UInt64(options.metadata.count) })
            return stream
        }
        #expect(try await transfer.sendAll(options: options) { _ in }.id == 1)
    }

    @Test func handlerThatWasSetLastAnswers() async throws {
        var mock = Kv_Store.MockClient()
        #expect(mock.onPut == nil)
        mock.onPut { _, _ in Kv_PutReply.with { $0.version = 1 } }
        #expect(mock.onPut != nil)
        #expect(try await mock.put(Kv_Entry()) == self.reply(1))
        mock.onPut = { _ in Kv_PutReply.with { $0.version = 2 } }
        #expect(try await mock.put(Kv_Entry()) == self.reply(2))
        #expect(try await mock.onPut?(Kv_Entry()) == self.reply(2))
        mock.onPut { _, options in Kv_PutReply.with { $0.version = options.idempotencyKey == nil ? 3 : 0 } }
        #expect(try await mock.put(Kv_Entry()) == self.reply(3))
        // It is given default options if it is called as one without them.
        #expect(try await mock.onPut?(Kv_Entry()) == self.reply(3))
        mock.onPut = nil
        let store: any Kv_Store.ClientProtocol = mock
        let error = try await self.error { try await store.put(Kv_Entry()) }
        #expect(error?.message == "Kv_Store.MockClient was not told what to answer: set its onPut.")
    }

    // MARK: Timeouts

    @Test func handlerThatDoesNotReturnInTimeIsCancelled() async throws {
        var mock = Kv_Store.MockClient(clock: self.clock)
        let isCancelled = Watched(false)
        mock.onGet = { _ in
            defer { isCancelled.withLockedValue { $0 = Task.isCancelled } }
            try await untilCancelled()
            return Kv_GetReply()
        }
        let store: any Kv_Store.ClientProtocol = mock
        let call = Task { try await store.get(Kv_GetRequest(), options: .init(timeout: .seconds(3))) }
        try await self.clock.waitForSleepers()
        #expect(self.clock.nextWakeUp == VirtualClock.Instant(offset: .seconds(3)))
        self.clock.advance(by: .seconds(3))
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: call, "its end") }
        #expect(error?.code == .timeout)
        #expect(error?.delivery == .sentUnknown)
        #expect(error?.message == "Kv_Store.MockClient: onGet did not return within 3.0 seconds")
        try await isCancelled.wait("the handler's cancellation") { $0 }
    }

    @Test func handlerThatReturnsInTimeAnswers() async throws {
        var mock = Kv_Store.MockClient(clock: self.clock)
        mock.onPut = { [clock] _ in
            try await clock.sleep(for: .seconds(2))
            return Kv_PutReply.with { $0.version = 7 }
        }
        let store: any Kv_Store.ClientProtocol = mock
        let call = Task { try await store.put(Kv_Entry(), options: .init(timeout: .seconds(3))) }
        try await self.clock.waitForSleepers(2)
        self.clock.advance(by: .seconds(2))
        #expect(try await waitForValue(of: call, "the answer") == self.reply(7))
        try await eventually("the timer has ended") { [clock] in clock.sleeperCount == 0 }
    }

    /// As a client's, the call does not wait for what has not ended in time.
    @Test func callEndsAlthoughItsHandlerDoesNot() async throws {
        var mock = Kv_Store.MockClient(clock: self.clock)
        let calls = Watched(0)
        let (ignorant, release) = AsyncStream.makeStream(of: Never.self)
        mock.onGet = { _ in
            calls.withLockedValue { $0 += 1 }
            // A task of its own is not cancelled with the handler.
            await Task { for await _ in ignorant {} }.value
            return Kv_GetReply()
        }
        let store: any Kv_Store.ClientProtocol = mock
        let late = Task { try await store.get(Kv_GetRequest(), options: .init(timeout: .seconds(3))) }
        try await self.clock.waitForSleepers()
        try await calls.wait("the call") { $0 == 1 }
        self.clock.advance(by: .seconds(3))
        let timeout = await #expect(throws: SocketError.self) { try await waitForValue(of: late, "its end") }
        #expect(timeout?.code == .timeout)

        let cancelled = Task { try await store.get(Kv_GetRequest()) }
        try await calls.wait("the other call") { $0 == 2 }
        cancelled.cancel()
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: cancelled, "its end") }
        #expect(error?.code == .cancelled)
        #expect(error?.delivery == .sentUnknown)
        release.finish()
    }

    @Test func earlierOfTimeoutAndDeadlineApplies() async throws {
        var mock = Kv_Store.MockClient(clock: self.clock)
        mock.onGet = { _ in
            try await untilCancelled()
            return Kv_GetReply()
        }
        let store: any Kv_Store.ClientProtocol = mock
        var options = CallOptions(timeout: .seconds(7_200))
        options.deadline = .now() + .hours(1)
        let call = Task { [options] in try await store.get(Kv_GetRequest(), options: options) }
        try await self.clock.waitForSleepers()
        self.clock.advance(by: .seconds(3_600))
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: call, "its end") }
        #expect(error?.code == .timeout)
        #expect(error?.message == "Kv_Store.MockClient: onGet did not return before the call's deadline")
    }

    @Test func handlerIsNotCalledIfNoTimeIsLeft() async throws {
        var mock = Kv_Store.MockClient()
        mock.onGet = { _ in throw Unexpected() }
        let store: any Kv_Store.ClientProtocol = mock
        let late = try await self.error { try await store.get(Kv_GetRequest(), options: .init(timeout: .zero)) }
        #expect(late?.code == .timeout)
        #expect(late?.delivery == .notSent)
        var options = CallOptions()
        options.deadline = .now() - .seconds(1)
        let later = try await self.error { [options] in try await store.get(Kv_GetRequest(), options: options) }
        #expect(later?.code == .timeout)
    }

    @Test func timeoutMayBeUnimaginablyLong() async throws {
        var mock = Kv_Store.MockClient()
        mock.onPut = { _ in Kv_PutReply.with { $0.version = 7 } }
        let options = CallOptions(timeout: .seconds(Int64.max))
        #expect(try await mock.put(Kv_Entry(), options: options) == self.reply(7))
    }

    // MARK: Cancellation

    @Test func callOfACancelledTaskIsNotMade() async throws {
        var mock = Kv_Store.MockClient()
        mock.onGet = { _ in throw Unexpected() }
        let store: any Kv_Store.ClientProtocol = mock
        let error = try await self.error {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await store.get(Kv_GetRequest())
        }
        #expect(error?.code == .cancelled)
        #expect(error?.delivery == .notSent)
    }

    @Test func cancelledHandlerCancelsItsCall() async throws {
        var mock = Kv_Store.MockClient()
        mock.onGet = { _ in throw CancellationError() }
        let store: any Kv_Store.ClientProtocol = mock
        #expect(try await self.error { try await store.get(Kv_GetRequest()) }?.code == .cancelled)
    }

    // MARK: Streams

    @Test func timeoutIsThatOfTheWholeStream() async throws {
        var mock = Kv_Store.MockClient(clock: self.clock)
        let (stream, far) = MessageStream<Kv_GetRequest, Kv_Entry>.mock()
        mock.onScan = { _ in stream }
        far.respond(.with { $0.key = "a" })
        let store: any Kv_Store.ClientProtocol = mock
        let keys = Watched<[String]>([])
        let reader = Task {
            let entries = try await store.scan(Kv_GetRequest(), options: .init(timeout: .seconds(3)))
            for try await entry in entries { keys.withLockedValue { $0.append(entry.key) } }
        }
        try await keys.wait("an entry") { $0 == ["a"] }
        try await self.clock.waitForSleepers()
        self.clock.advance(by: .seconds(3))
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: reader, "its end") }
        #expect(error?.code == .timeout)
        #expect(error?.delivery == .sentUnknown)
        #expect(error?.message == "Kv_Store.MockClient: the stream of onScan did not end within 3.0 seconds")
        #expect(!far.isCancelled)
        // A test learns of it as of any end.
        for await _ in far.requests {}
    }

    @Test func streamThatEndsInTimeHasNoTimer() async throws {
        var mock = Files_Transfer.MockClient(clock: self.clock)
        let (stream, far) = MessageStream<Files_Piece, Files_Upload>.mock()
        mock.onSendAll = { stream }
        let upload = try await mock.sendAll(options: .init(timeout: .seconds(3)))
        try await upload.send(Files_Piece())
        try await self.clock.waitForSleepers()
        far.answer(.with { $0.offset = 9 })
        #expect(try await upload.answer().offset == 9)
        try await eventually("the timer has ended") { [clock] in clock.sleeperCount == 0 }
    }

    @Test func streamThatIsNotOpenedInTimeThrows() async throws {
        var mock = Files_Transfer.MockClient(clock: self.clock)
        mock.onSendAll = {
            try await untilCancelled()
            return MessageStream<Files_Piece, Files_Upload>.mock().stream
        }
        let transfer: any Files_Transfer.ClientProtocol = mock
        let opening = Task { try await transfer.sendAll(options: .init(timeout: .seconds(3))) }
        try await self.clock.waitForSleepers()
        self.clock.advance(by: .seconds(3))
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: opening, "its end") }
        #expect(error?.code == .timeout)
        #expect(error?.message == "Files_Transfer.MockClient: onSendAll did not return within 3.0 seconds")
    }
}
