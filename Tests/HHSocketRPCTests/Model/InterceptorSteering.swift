// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore

/// Holds a history's interceptors at valves, which the history opens one after the other. So the history determines the
/// order of their work in Swift tasks on other threads, and a seed always has the same result.
///
/// An interceptor stands at a valve before it asks `next` and before it returns. While it continues from one, all
/// others stand still or wait for an answer, so the origin of the next submission is certain.
final class InterceptorSteering: @unchecked Sendable {
    // Proof of Sendable: all mutable state is accessed only under the lock of `changed`.

    /// The place of a call's interceptors; of several, that of those for which the others wait.
    private enum Location {
        case onTheirWay
        case atValve(CheckedContinuation<Void, Never>)
        /// They wait for the server's answer.
        case waiting
        case over
    }

    /// The time to wait for an expected event.
    let patience: TimeInterval
    private let changed = NSCondition()
    private var plans: [Int: [ModelClient.Interception]] = [:]
    private var locations: [Int: Location] = [:]
    private var submissions = 0
    private var stopped: [String] = []
    /// The answers that interceptors received, with their names.
    private var answers: [(who: String, answer: Result<SocketResponse, SocketError>)] = []
    /// Whether every valve is open from now on.
    private var isLetGo = false
    private var interceptors = 0

    init(patience: TimeInterval) {
        self.patience = patience
    }

    /// Makes the interceptors of all calls, the outermost first.
    func makeInterceptors(_ count: Int) -> [any SocketInterceptor] {
        self.interceptors = count
        return (0..<count).map { SteeredInterceptor(depth: $0, isInnermost: $0 == count - 1, steering: self) }
    }

    // MARK: The history's thread

    /// Records that a call is about to begin.
    func begin(_ call: Int, _ plan: [ModelClient.Interception]) {
        self.changed.withLock {
            self.plans[call] = plan
            self.locations[call] = .onTheirWay
        }
    }

    /// The calls whose interceptors have begun and not ended.
    var begun: [Int] {
        self.changed.withLock {
            self.locations.filter { if case .over = $0.value { false } else { true } }.keys.sorted()
        }
    }

    /// The calls whose interceptors stand at a valve.
    var standing: [Int] {
        self.changed.withLock { self.locations.keys.filter { self.stands($0) }.sorted() }
    }

    private func stands(_ call: Int) -> Bool {
        if case .atValve = self.locations[call] { true } else { false }
    }

    /// Whether the innermost has asked for the server's answer, which may have arrived since.
    func hasAsked(_ call: Int) -> Bool {
        self.changed.withLock { if case .waiting = self.locations[call] { true } else { false } }
    }

    /// Opens the valve at which the call's interceptors stand. Waits until they stand at the next one or have submitted
    /// something; returns false if neither happens.
    func open(_ call: Int) -> Bool {
        let (valve, before) = self.changed.withLock { () -> (CheckedContinuation<Void, Never>?, Int) in
            guard case .atValve(let valve) = self.locations[call] else { return (nil, 0) }
            self.locations[call] = .onTheirWay
            return (valve, self.submissions)
        }
        guard let valve else { return false }
        valve.resume()
        return self.wait { self.submissions > before || self.stands(call) }
    }

    /// Waits until the call's interceptors stand at a valve; returns false if they do not reach one.
    func awaitStanding(_ call: Int) -> Bool { self.wait { self.stands(call) } }

    /// Returns the records since the last call, sorted.
    ///
    /// Answers are read here, on the thread that made them, and not where a continuation was resumed: the thread
    /// sanitizer does not see how the runtime orders the two.
    func takeLog() -> [String] {
        let (stopped, answers) = self.changed.withLock {
            defer {
                self.stopped = []
                self.answers = []
            }
            return (self.stopped, self.answers)
        }
        let got = answers.map { who, answer in
            switch answer {
            case .success: "\(who) gets ok"
            case .failure(let error): "\(who) gets \(error.code) \(error.delivery)"
            }
        }
        return (stopped + got).sorted()
    }

    /// Opens every valve permanently.
    func letGo() {
        let valves = self.changed.withLock { () -> [CheckedContinuation<Void, Never>] in
            self.isLetGo = true
            let valves = self.locations.values.compactMap { if case .atValve(let valve) = $0 { valve } else { nil } }
            self.locations = [:]
            return valves
        }
        for valve in valves { valve.resume() }
    }

    /// Waits until the interceptors are released; returns false if they are still retained.
    func awaitRelease() -> Bool { self.wait { self.interceptors == 0 } }

    private func wait(until condition: () -> Bool) -> Bool {
        self.changed.withLock {
            let deadline = Date(timeIntervalSinceNow: self.patience)
            while !condition() {
                guard self.changed.wait(until: deadline) else { return condition() }
            }
            return true
        }
    }

    // MARK: Any thread

    private func change(_ body: () -> Void) {
        self.changed.withLock {
            body()
            self.changed.broadcast()
        }
    }

    /// Records a submission to the connection.
    func submitted() { self.change { self.submissions += 1 } }

    fileprivate func released() { self.change { self.interceptors -= 1 } }

    fileprivate func gets(_ call: Int, _ depth: Int, _ answer: Result<SocketResponse, SocketError>) {
        self.changed.withLock { self.answers.append(("\(call).\(depth)", answer)) }
    }

    fileprivate func plan(_ call: Int, _ depth: Int) -> ModelClient.Interception {
        self.changed.withLock { self.plans[call]?[depth] } ?? ModelClient.Interception()
    }

    // Neither wakes the history, which waits for the submission that follows.
    fileprivate func asks(_ call: Int) { self.changed.withLock { self.locations[call] = .waiting } }

    fileprivate func returns(_ call: Int) { self.changed.withLock { self.locations[call] = .over } }

    fileprivate func valve(_ call: Int, _ depth: Int) async {
        await withCheckedContinuation { self.stand(call, $0) }
        if Task.isCancelled { self.isAskedToStop(call, depth) }
    }

    private func isAskedToStop(_ call: Int, _ depth: Int) {
        self.changed.withLock { self.stopped.append("\(call).\(depth) is told to stop") }
    }

    private func stand(_ call: Int, _ valve: CheckedContinuation<Void, Never>) {
        let isLetGo = self.changed.withLock {
            if !self.isLetGo { self.locations[call] = .atValve(valve) }
            self.changed.broadcast()
            return self.isLetGo
        }
        if isLetGo { valve.resume() }
    }
}

/// Follows the call's plan, from valve to valve.
private final class SteeredInterceptor: SocketInterceptor {
    private struct Refusal: Error {}

    private let depth: Int
    private let isInnermost: Bool
    private let steering: InterceptorSteering

    init(depth: Int, isInnermost: Bool, steering: InterceptorSteering) {
        self.depth = depth
        self.isInnermost = isInnermost
        self.steering = steering
    }

    deinit {
        self.steering.released()
    }

    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse {
        let call = Int(request.header["call"]?.first ?? 0)
        let plan = self.steering.plan(call, self.depth)
        var last: Result<SocketResponse, SocketError>?
        for number in 0..<plan.asks {
            await self.steering.valve(call, self.depth)
            var request = request
            if plan.changesBody { request.body.writeString("\(number + 1)") }
            if self.isInnermost { self.steering.asks(call) }
            let answer: Result<SocketResponse, SocketError>
            do throws(SocketError) {
                answer = .success(try await next(request))
            } catch {
                answer = .failure(error)
            }
            last = answer
            self.steering.gets(call, self.depth, answer)
        }
        await self.steering.valve(call, self.depth)
        if self.depth == 0 { self.steering.returns(call) }
        switch (plan.end, last) {
        case (.passesOn, let last?): return try last.get()
        case (.fails, _): throw Refusal()
        case (.answers, _), (.passesOn, nil):
            return SocketResponse(
                type: request.type,
                serial: 0,
                status: .ok,
                body: ByteBuffer(),
                endpoint: Endpoint(host: "interceptor", port: 1)
            )
        }
    }
}
