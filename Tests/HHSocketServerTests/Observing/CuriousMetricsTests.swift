// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import Metrics
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A metrics backend that asks something whenever it is called, and waits for the answer.
private final class CuriousMetrics: MetricsFactory {
    struct State {
        var ask: (@Sendable () -> Void)?
        var isAsking = false
        /// The functions that have asked.
        var functions: Set<String> = []
        /// Those that got no answer.
        var blocked: Set<String> = []
    }

    final class Handler: CounterHandler, RecorderHandler, TimerHandler, MeterHandler {
        private let metrics: CuriousMetrics

        init(_ metrics: CuriousMetrics) {
            self.metrics = metrics
        }

        func increment(by: Int64) { self.metrics.wonder("increment") }
        func reset() {}
        func record(_ value: Int64) { self.metrics.wonder("record") }
        func record(_ value: Double) { self.metrics.wonder("record") }
        func recordNanoseconds(_ duration: Int64) { self.metrics.wonder("recordNanoseconds") }
        func set(_ value: Int64) { self.metrics.wonder("set") }
        func set(_ value: Double) { self.metrics.wonder("set") }
        func increment(by: Double) { self.metrics.wonder("set") }
        func decrement(by: Double) { self.metrics.wonder("set") }
    }

    let state = Watched(State())

    /// Asks on another thread, as the holder of a lock must not ask itself.
    private func wonder(_ function: String) {
        let ask: (@Sendable () -> Void)? = self.state.withLockedValue { state in
            // An answer may cause further calls, and one that does not come is enough.
            guard !state.isAsking, state.blocked.isEmpty, let ask = state.ask else { return nil }
            state.isAsking = true
            return ask
        }
        guard let ask else { return }
        let isAnswered = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            ask()
            isAnswered.signal()
        }
        let isBlocked = isAnswered.wait(timeout: .now() + .seconds(60)) == .timedOut
        self.state.withLockedValue { state in
            state.isAsking = false
            state.functions.insert(function)
            if isBlocked { state.blocked.insert(function) }
        }
    }

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        self.wonder("makeCounter")
        return Handler(self)
    }

    func makeMeter(label: String, dimensions: [(String, String)]) -> any MeterHandler {
        self.wonder("makeMeter")
        return Handler(self)
    }

    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        self.wonder("makeRecorder")
        return Handler(self)
    }

    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        self.wonder("makeTimer")
        return Handler(self)
    }

    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyMeter(_ handler: any MeterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

/// Keeps the first request that arrives.
private final class FirstRequest: ServerAdmission {
    let found = NIOLockedValueBox<(header: RequestHeader, session: ServerSession)?>(nil)

    func admit(_ header: RequestHeader, _ session: ServerSession) -> Admission {
        self.found.withLockedValue { if $0 == nil { $0 = (header, session) } }
        return .admit
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CuriousMetricsTests {
    /// No code of an application runs under a lock of the server or of its middleware.
    @Test func aBackendMayAskTheServerAndUseTheMiddlewareWheneverItIsCalled() async throws {
        let metrics = CuriousMetrics()
        let middleware = MetricsMiddleware(factory: metrics)
        let first = FirstRequest()
        var router = Router()
        router.use(first)
        router.use(middleware)
        for type in 100...102 as ClosedRange<UInt32> { router.handle(type) { request, _ in request.body } }
        var configuration = SocketServer.Configuration()
        configuration.metricsFactory = metrics
        let server = SocketServer(configuration: configuration, router: router)
        metrics.state.withLockedValue { state in
            state.ask = { [weak server] in
                guard let server else { return }
                _ = server.isAccepting
                _ = server.statistics
                // As another connection does at the same time.
                guard let (header, session) = first.found.withLockedValue({ $0 }) else { return }
                middleware.refused(header, with: .overloaded, in: session)
            }
        }
        try await server.start()
        let greeter = try await Greeter(server)
        for type in 100...102 as ClosedRange<UInt32> {
            try await greeter.call(type, serial: type)
            #expect(try await greeter.answer().frame.status == .ok)
        }
        // Once a second.
        try await metrics.state.wait("the server's gauges") { $0.functions.contains("record") || !$0.blocked.isEmpty }
        await greeter.client.perform(.close)
        await server.shutdown(gracePeriod: .zero)
        let state = metrics.state.current
        #expect(state.blocked.isEmpty)
        let expected: Set = [
            "makeCounter", "makeTimer", "makeRecorder", "increment", "recordNanoseconds", "record",
        ]
        #expect(state.functions.isSuperset(of: expected), "\(expected.subtracting(state.functions))")
        first.found.withLockedValue { $0 = nil }
        // The middleware retains the backend.
        metrics.state.withLockedValue { $0.ask = nil }
    }
}
