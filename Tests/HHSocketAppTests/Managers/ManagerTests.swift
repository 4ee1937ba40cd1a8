// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// The behaviour of a manager for its screens, without a server and in virtual time.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ManagerTests {
    private let clock = VirtualClock()
    private let calls = NIOLockedValueBox(0)

    /// Answers each call with its number.
    private func counting() -> MockTransport {
        MockTransport { [calls] _ in
            ByteBuffer(string: "\(calls.withLockedValue { count in count += 1; return count })")
        }
    }

    private func manager(_ transport: any APITransport, name: String? = nil) -> APIManager {
        APIManager(client: transport, cache: ResponseCache(clock: APIClock(self.clock)), name: name)
    }

    private func request(_ body: String = "7", _ policy: CachePolicy = .returningCached) -> APIRequest<String> {
        var request = APIRequest(SocketRequest(type: 101, body: body)) { $0.string }
        request.cachePolicy = policy
        return request
    }

    // MARK: Answers

    @Test func aValueIsValidForAMinuteByDefault() async throws {
        let manager = self.manager(self.counting())
        #expect(try await manager.response(for: self.request()).source == .network)
        self.clock.advance(by: .seconds(59))
        let hit = try await manager.response(for: self.request())
        #expect(hit.value == "1" && hit.isHit && hit.source == .cache(age: .seconds(59)))
        self.clock.advance(by: .seconds(1))
        let fresh = try await manager.response(for: self.request())
        #expect(fresh.value == "2" && !fresh.isHit)
        #expect(manager.cache.statistics.hits == 1)
    }

    @Test func nothingIsTakenFromTheCacheUnlessTheRequestAllowsIt() async throws {
        let manager = self.manager(self.counting())
        let request = APIRequest(SocketRequest(type: 101, body: "7"))
        for count in 1...3 { #expect(try await manager.value(for: request) == ByteBuffer(string: "\(count)")) }
    }

    @Test func aStaleValueIsFollowedByTheFreshOne() async throws {
        let manager = self.manager(self.counting())
        _ = try await manager.value(for: self.request())
        self.clock.advance(by: .seconds(90))
        let ends = Watched<[String]>([])
        manager.dispatch(
            self.request("7", .returningStale(upTo: .seconds(60))),
            refreshHandler: { response in ends.withLockedValue { $0.append("fresh \(response.value)") } },
            completionHandler: { result in
                let text = (try? result.get()).map { "\($0.source) \($0.value)" } ?? "failed"
                ends.withLockedValue { $0.append(text) }
            }
        )
        try await ends.wait("both") { $0.count == 2 }
        #expect(ends.current == ["stale(age: 90.0 seconds) 1", "fresh 2"])
        #expect(try await manager.response(for: self.request()).source == .cache(age: .zero))
    }

    @Test func freshAnswerIsNotDeliveredBeforeTheStaleOne() async throws {
        let manager = self.manager(self.counting())
        var request = self.request("7", .returningStale(upTo: .seconds(60)))
        request.validity = .zero
        _ = try await manager.value(for: request)
        // A refresh overtakes only occasionally.
        for round in 1...300 {
            let ends = Watched<[Bool]>([])
            manager.dispatch(
                request,
                refreshHandler: { response in ends.withLockedValue { $0.append(response.isHit) } },
                completionHandler: { result in ends.withLockedValue { $0.append((try? result.get())?.isHit == true) } }
            )
            try await ends.wait("both of round \(round)") { $0.count == 2 }
            #expect(ends.current == [true, false])
            await manager.cache.flush()
        }
    }

    @Test func handlersNeverRunWithinDispatchNotEvenForHits() async throws {
        let manager = self.manager(self.counting())
        _ = try await manager.value(for: self.request())
        let order = Watched<[String]>([])
        let gate = DispatchSemaphore(value: 0)
        manager.dispatch(self.request()) { result in
            // A handler that ran within `dispatch` would wait for what follows it.
            _ = gate.wait(timeout: .now() + 20)
            order.withLockedValue { $0.append("handler \((try? result.get())?.isHit == true)") }
        }
        order.withLockedValue { $0.append("dispatched") }
        gate.signal()
        try await order.wait("the handler") { $0.count == 2 }
        #expect(order.current == ["dispatched", "handler true"])
    }

    @Test func identifiersAreUniqueWithinAManager() async throws {
        let manager = self.manager(self.counting())
        let identifiers = (0..<100).map { _ in manager.dispatch(self.request()) { _ in } }
        #expect(identifiers == Array(1...100))
    }

    // MARK: Values

    private struct Profile: Codable, Hashable { var name: String }

    @Test func jsonIsDecodedAndInvalidJSONIsNotKept() async throws {
        let bodies = NIOLockedValueBox([#"{"name":"#, #"{"name":"ann"}"#])
        let manager = self.manager(
            MockTransport { _ in ByteBuffer(string: bodies.withLockedValue { $0.removeFirst() }) }
        )
        var request = APIRequest(SocketRequest(type: 101), decoding: Profile.self)
        request.cachePolicy = .returningCached
        let cut = request
        let error = try await socketError { () async throws(SocketError) in _ = try await manager.value(for: cut) }
        #expect(error.code == .decodingFailed && error.body?.readableBytes == 8 && error.underlying != nil)
        await manager.cache.flush()
        #expect(try await manager.value(for: request) == Profile(name: "ann"))
        #expect(try await manager.response(for: request.map(\.name)).value == "ann")
        #expect(try await manager.response(for: request.map(\.name)).isHit)
    }

    @Test func typedMethodsAreCalledWithMessages() async throws {
        let method = MethodDescriptor<Google_Protobuf_StringValue, Google_Protobuf_StringValue>(
            "test.Echo/Echo",
            type: 130,
            kind: .unary
        )
        let manager = self.manager(
            MockTransport { request in
                let message: Google_Protobuf_StringValue = try request.body.message()
                guard !message.value.isEmpty else { return ByteBuffer(string: "\u{1}") }
                return request.body
            }
        )
        var message = Google_Protobuf_StringValue()
        message.value = "hello"
        let request = try APIRequest(method, message, options: CallOptions(timeout: .seconds(3)))
        #expect(request.request.type == 130 && request.request.timeout == .seconds(3))
        #expect(try await manager.value(for: request).value == "hello")
        let empty = try APIRequest(method, Google_Protobuf_StringValue())
        let error = try await socketError { () async throws(SocketError) in _ = try await manager.value(for: empty) }
        #expect(error.code == .protobufFailed)
    }

    @Test func answersOfAMethodWithoutSideEffectsAreCachedUnlessTheCallerSaysOtherwise() async throws {
        typealias Text = Google_Protobuf_StringValue
        func method(_ idempotency: MethodDescriptor<Text, Text>.Idempotency) -> MethodDescriptor<Text, Text> {
            MethodDescriptor("test.Echo/Echo", type: 130, kind: .unary, idempotency: idempotency)
        }
        let manager = self.manager(MockTransport { $0.body })
        var request = try APIRequest(method(.noSideEffects), Text.with { $0.value = "hello" })
        #expect(request.request.isIdempotent)
        #expect(try await !manager.response(for: request).isHit)
        #expect(try await manager.response(for: request).isHit)
        request.cachePolicy = .ignoringCache
        #expect(try await !manager.response(for: request).isHit)
        let idempotent = try APIRequest(method(.idempotent), Text())
        #expect(idempotent.request.isIdempotent && idempotent.cachePolicy == .ignoringCache)
        let other = try APIRequest(method(.unknown), Text())
        #expect(!other.request.isIdempotent && other.cachePolicy == .ignoringCache)
    }

    @Test func anEmptyListIsNoDataOnTheFirstPageAndNoMoreDataOnLaterOnes() async throws {
        let manager = self.manager(MockTransport { $0.body })
        func list(_ text: String, _ page: ListPage) -> APIRequest<[Substring]> {
            var request = APIRequest(SocketRequest(type: 101, body: text)) { $0.string.split(separator: ",") }
            request.cachePolicy = .returningCached
            return request.page(page)
        }
        #expect(try await manager.value(for: list("a,b", .first)) == ["a", "b"])
        #expect(try await manager.value(for: list("a,b", .later)) == ["a", "b"])
        for (page, code) in [(ListPage.first, SocketError.Code.noData), (.later, .noMoreData)] {
            let error = try await socketError { () async throws(SocketError) in
                _ = try await manager.value(for: list("", page))
            }
            #expect(error.code == code && error.delivery == .answered)
        }
        // The answer itself was valid.
        #expect(manager.cache.statistics.calls == 2)
        let named = APIRequest(SocketRequest(type: 101)).page(.first) { $0.readableBytes == 0 }
        let error = try await socketError { () async throws(SocketError) in _ = try await manager.value(for: named) }
        #expect(error.code == .noData)
    }

    // MARK: Cancelling

    @Test func cancellingOneByIdentifierSparesTheOthers() async throws {
        let gate = Gate()
        let manager = self.manager(
            MockTransport { request in
                try await gate.wait(); return request.body
            }
        )
        let results = Watched<[Int: String]>([:])
        func dispatch(_ number: Int) -> Int {
            manager.dispatch(self.request()) { result in
                let text =
                    switch result {
                    case .success(let response): response.value
                    case .failure(let error): "\(error.code)"
                    }
                results.withLockedValue { $0[number] = text }
            }
        }
        let first = dispatch(1)
        _ = dispatch(2)
        try await eventually("the call") { gate.waitingCount == 1 }
        manager.cancelTask(withIdentifier: first)
        manager.cancelTask(withIdentifier: first)
        manager.cancelTask(withIdentifier: 1_000)
        try await results.wait("the cancel") { $0 == [1: "cancelled"] }
        gate.open()
        try await results.wait("the answer") { $0 == [1: "cancelled", 2: "7"] }
    }

    @Test func cancellingTheSwiftTaskCancelsItsRequest() async throws {
        let gate = Gate()
        let manager = self.manager(
            MockTransport { request in
                try await gate.wait(); return request.body
            }
        )
        let task = Task { try await manager.value(for: self.request()) }
        try await eventually("the call") { gate.waitingCount == 1 }
        task.cancel()
        let error = try await socketError { () async throws(SocketError) in
            do { _ = try await task.value } catch { throw error as? SocketError ?? SocketError(mocked: error) }
        }
        #expect(error.code == .cancelled)
        try await eventually("the call's end") { gate.waitingCount == 0 }
        // A task that is cancelled before it asks gets `cancelled` too.
        let early = Task {
            while !Task.isCancelled { await Task.yield() }
            return try await manager.value(for: self.request())
        }
        early.cancel()
        let outcome = await early.result
        #expect(throws: SocketError.self) { try outcome.get() }
        #expect(gate.waitingCount == 0)
    }

    @Test func aReleasedManagerCancelsWhatItBegan() async throws {
        let gate = Gate()
        let transport = MockTransport { request in
            try await gate.wait(); return request.body
        }
        let cache = ResponseCache(clock: APIClock(self.clock))
        var manager: APIManager? = APIManager(client: transport, cache: cache)
        let other = APIManager(client: transport, cache: cache)
        let codes = Watched<[SocketError.Code?]>([])
        let note: @Sendable (Result<APIResponse<String>, SocketError>) -> Void = { result in
            codes.withLockedValue { codes in
                if case .failure(let error) = result { codes.append(error.code) } else { codes.append(nil) }
            }
        }
        manager?.dispatch(self.request("mine"), completionHandler: note)
        manager?.dispatch(self.request("shared"), completionHandler: note)
        manager?.dispatch(self.request("alone", .ignoringCache), completionHandler: note)
        other.dispatch(self.request("shared")) { _ in codes.withLockedValue { $0.append(.noData) } }
        try await eventually("three calls") { gate.waitingCount == 3 }
        manager = nil
        try await codes.wait("cancels") { $0 == [.cancelled, .cancelled, .cancelled] }
        try await eventually("the other's call") { gate.waitingCount == 1 }
        gate.open()
        try await codes.wait("the other") { $0.last == .noData }
    }

    // MARK: Clearing

    @Test func theCacheIsClearedByTypeByManagerAndAsAWhole() async throws {
        let cache = ResponseCache(clock: APIClock(self.clock))
        let transport = self.counting()
        let (one, other) = (APIManager(client: transport, cache: cache), APIManager(client: transport, cache: cache))
        func isHit(_ manager: APIManager, _ body: String) async throws -> Bool {
            try await manager.response(for: self.request(body)).isHit
        }
        #expect(try await [isHit(one, "1"), isHit(other, "2"), isHit(other, "1")] == [false, false, true])
        cache.removeAll(of: one)
        #expect(try await [isHit(one, "1"), isHit(other, "2")] == [false, true])
        cache.removeAll(ofType: 102)
        #expect(try await isHit(one, "1"))
        cache.removeAll(ofType: 101)
        #expect(try await [isHit(one, "1"), isHit(other, "2")] == [false, false])
        cache.removeAll()
        #expect(try await [isHit(one, "1"), isHit(other, "2")] == [false, false])
    }

    @Test func aLogoutDuringACallKeepsNothingOfTheOldUserInTheCache() async throws {
        let gate = Gate()
        let manager = self.manager(
            MockTransport { request in
                try await gate.wait(); return request.body
            }
        )
        let store = try #require(manager.cache.calls.store as? MemoryResponseStore)
        async let answer = manager.value(for: self.request("the old user's"))
        try await eventually("the call") { gate.waitingCount == 1 }
        manager.cache.removeAll()
        gate.open()
        #expect(try await answer == "the old user's")
        await manager.cache.flush()
        #expect(store.count == 0)
    }

    // MARK: Time

    @Test func callerWithLessTimeThanTheSharedCallTimesOutAlone() async throws {
        let gate = Gate()
        let manager = self.manager(
            MockTransport { request in
                try await gate.wait(); return request.body
            }
        )
        async let patient = manager.value(for: self.request())
        try await eventually("the call") { gate.waitingCount == 1 }
        var hurried = self.request()
        hurried.request.timeout = .seconds(2)
        let codes = Watched<[SocketError.Code]>([])
        manager.dispatch(hurried) { result in
            if case .failure(let error) = result { codes.withLockedValue { $0.append(error.code) } }
        }
        try await eventually("the second asks") { manager.cache.statistics.coalesced == 1 }
        // One alarm for each, since the later one is due earlier.
        try await self.clock.waitForSleepers()
        try await eventually("the alarm") { self.clock.nextWakeUp == .init(offset: .seconds(2)) }
        self.clock.advance(by: .seconds(2))
        try await codes.wait("the timeout") { $0 == [.timeout] }
        gate.open()
        #expect(try await patient == "7")
    }
}
