// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// Releases and cancellations in every order. Each handler is called exactly once, and nothing stays behind.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ManagerReleaseTests {
    enum Event: CaseIterable { case dispatch, cancel, release, answer, clear }

    private static let orders: [[Event]] = {
        func orders(of events: [Event]) -> [[Event]] {
            guard !events.isEmpty else { return [[]] }
            return events.indices.flatMap { index in
                var rest = events
                let first = rest.remove(at: index)
                return orders(of: rest).map { [first] + $0 }
            }
        }
        return orders(of: Event.allCases)
    }()

    /// The objects left after one order of events.
    private struct Remains {
        let manager = WeakReference<APIManager>()
        let cache = WeakReference<ResponseCache>()
        let calls = WeakReference<SharedCalls>()
        let transport = WeakReference<MockTransport>()
        let reported = NIOLockedValueBox<[SocketError.Code?]>([])
        var wasDispatched = false

        var isGone: Bool {
            self.manager.object == nil && self.cache.object == nil && self.calls.object == nil
                && self.transport.object == nil
        }
    }

    /// - Parameter settles: Whether the effects of an event precede the next one.
    private func play(_ events: [Event], _ policy: CachePolicy, settles: Bool) async throws -> Remains {
        var remains = Remains()
        let gate = Gate()
        let transport = MockTransport { request in
            try await gate.wait()
            return request.body
        }
        let cache = ResponseCache()
        var manager: APIManager? = APIManager(client: transport, cache: cache)
        if let manager { remains.manager.set(manager) }
        remains.cache.set(cache)
        remains.calls.set(cache.calls)
        remains.transport.set(transport)
        var request = APIRequest(SocketRequest(type: 101, body: "7"))
        request.cachePolicy = policy
        var identifier = 1
        for event in events {
            switch event {
            case .dispatch:
                guard let manager else { break }
                remains.wasDispatched = true
                let reported = remains.reported
                identifier = manager.dispatch(request) { result in
                    reported.withLockedValue { reported in
                        if case .failure(let error) = result {
                            reported.append(error.code)
                        } else {
                            reported.append(nil)
                        }
                    }
                }
            case .cancel: manager?.cancelTask(withIdentifier: identifier)
            case .release: manager = nil
            case .answer: gate.open()
            case .clear: cache.removeAll()
            }
            guard settles else { continue }
            await cache.flush()
            for _ in 0..<3 { await Task.yield() }
        }
        return remains
    }

    @Test(arguments: [CachePolicy.returningCached, .ignoringCache, .reloading], [false, true])
    func inEveryOrderAllCallersAreNotifiedOnceAndNothingLeaks(_ policy: CachePolicy, settles: Bool) async throws {
        #expect(Self.orders.count == 120)
        for events in Self.orders {
            let remains = try await self.play(events, policy, settles: settles)
            try await eventually("the end of \(events)") {
                remains.isGone && remains.reported.withLockedValue { $0.count } == (remains.wasDispatched ? 1 : 0)
            }
            let reported = remains.reported.withLockedValue { $0 }
            let dispatched = events.firstIndex(of: .dispatch) ?? 0
            let ended = min(
                [Event.cancel, .release].compactMap { events.firstIndex(of: $0) }.filter { $0 > dispatched }.min()
                    ?? events.count,
                events.count
            )
            // The request was cancelled before it could be answered.
            if remains.wasDispatched, let answered = events.firstIndex(of: .answer), ended < answered {
                #expect(reported == [.cancelled], "\(events)")
            }
            #expect(reported.allSatisfy { $0 == nil || $0 == .cancelled }, "\(events)")
        }
    }

    @Test func aCallThatIsCancelledBeforeItCouldBeginEndsToo() async throws {
        let gate = Gate()
        let transport = MockTransport { request in
            if request.type == 102 { try await gate.wait() }
            return request.body
        }
        let calls = SharedCalls(store: MemoryResponseStore(), clock: .system, maximumCallers: 10)
        let began = Watched(0)
        let key = APIRequest(SocketRequest(type: 101)).key
        func ask(_ number: Int, _ type: UInt32, _ completion: @escaping @Sendable () -> Void) {
            let asking = SharedCallMachine.Asking(
                request: SocketRequest(type: type),
                key: key,
                transport: transport,
                policy: .returningStale(upTo: .seconds(1_000)),
                validity: .zero,
                owner: "screen",
                timeout: patience
            )
            calls.ask(.init(manager: 1, number: number), asking) { _ in completion() }
        }
        ask(1, 101) { began.withLockedValue { $0 += 1 } }
        try await began.wait("the first answer") { $0 == 1 }
        // The stale answer is delivered when the call for a fresh one was decided on, but has not begun.
        ask(2, 102) {
            calls.cancel(.init(manager: 1, number: 2))
            began.withLockedValue { $0 += 1 }
        }
        try await began.wait("the second answer") { $0 == 2 }
        try await eventually("the call's end") { gate.waitingCount == 0 && gate.count == 1 }
        #expect(calls.statistics.failedRefreshes == 1)
    }

    @Test func anAsyncCallKeepsItsManagerUntilItReturns() async throws {
        let gate = Gate()
        let reference = WeakReference<APIManager>()
        func begin() -> Task<ByteBuffer, any Error> {
            let manager = APIManager(
                client: MockTransport { request in
                    try await gate.wait(); return request.body
                }
            )
            reference.set(manager)
            return Task { try await manager.value(for: APIRequest(SocketRequest(type: 101, body: "7"))) }
        }
        let task = begin()
        try await eventually("the call") { gate.waitingCount == 1 }
        #expect(reference.object != nil)
        gate.open()
        #expect(try await task.value == ByteBuffer(string: "7"))
        try await eventually("the manager's end") { reference.object == nil }
    }

    /// Releasing the handler releases the manager, which takes the lock of the cache.
    @Test func aRefreshHandlerWithTheLastReferenceToItsManagerIsReleasedOutsideTheLock() async throws {
        let gate = Gate()
        let isFirst = NIOLockedValueBox(true)
        let transport = MockTransport { request in
            let passes = isFirst.withLockedValue { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            guard !passes else { return request.body }
            try await gate.wait()
            throw SocketError(.timeout, message: "the refresh has failed")
        }
        final class Screen: Sendable {
            let manager: APIManager
            init(_ manager: APIManager) { self.manager = manager }
        }
        let reference = WeakReference<Screen>()
        let cache = ResponseCache()
        func show() async throws {
            let screen = Screen(APIManager(client: transport, cache: cache))
            reference.set(screen)
            var request = APIRequest(SocketRequest(type: 101, body: "7"))
            request.cachePolicy = .returningStale(upTo: .seconds(1_000))
            request.validity = .zero
            _ = try await screen.manager.value(for: request)
            let reported = NIOLockedValueBox(false)
            screen.manager.dispatch(request, refreshHandler: { _ in withExtendedLifetime(screen) {} }) { result in
                reported.withLockedValue { $0 = (try? result.get())?.isHit == true }
            }
            try await eventually("the stale answer") { reported.withLockedValue { $0 } && gate.waitingCount == 1 }
        }
        try await show()
        #expect(reference.object != nil)
        gate.open()
        try await eventually("the screen's end") { reference.object == nil }
        #expect(cache.statistics.failedRefreshes == 1)
    }

    @Test func aRefreshIsCancelledWithItsManagerAndItsHandlerIsReleased() async throws {
        let gate = Gate()
        let isFirst = NIOLockedValueBox(true)
        let transport = MockTransport { request in
            let passes = isFirst.withLockedValue { isFirst in
                defer { isFirst = false }
                return isFirst
            }
            if !passes { try await gate.wait() }
            return request.body
        }
        final class Token: Sendable {}
        let token = WeakReference<Token>()
        let cache = ResponseCache()
        func stale() async throws {
            let manager = APIManager(client: transport, cache: cache)
            var request = APIRequest(SocketRequest(type: 101, body: "7"))
            request.cachePolicy = .returningStale(upTo: .seconds(1_000))
            request.validity = .zero
            _ = try await manager.value(for: request)
            let kept = Token()
            token.set(kept)
            let reported = NIOLockedValueBox(false)
            manager.dispatch(request, refreshHandler: { _ in withExtendedLifetime(kept) {} }) { result in
                reported.withLockedValue { $0 = (try? result.get())?.isHit == true }
            }
            try await eventually("the stale answer") { reported.withLockedValue { $0 } && gate.waitingCount == 1 }
        }
        try await stale()
        try await eventually("the refresh's end") { gate.waitingCount == 0 && token.object == nil }
        #expect(cache.statistics.failedRefreshes == 1)
    }
}
