// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore
import TestSupport

@testable import HHSocketApp

/// A ``SharedCallMachine`` with a store, calls and a clock that a test advances.
struct CacheWorld {
    typealias Caller = SharedCallMachine.Caller

    struct Completion {
        var caller: Caller
        var result: Result<SharedCallMachine.Answer, SocketError>
        var time: NIODeadline

        /// The result as text, such as `network hello`, `cache(3.0 seconds) hello` or `timeout`.
        var text: String {
            switch self.result {
            case .success(let answer): "\(answer.source) \(answer.response.string)"
            case .failure(let error): "\(error.code)"
            }
        }
    }

    static let beginning = APIClock.Moment(
        date: Date(timeIntervalSince1970: 1_000_000),
        time: NIODeadline.uptimeNanoseconds(0) + .hours(1)
    )

    let transport: any APITransport = MockTransport { _ in ByteBuffer() }
    let otherTransport: any APITransport = MockTransport { _ in ByteBuffer() }
    var machine = SharedCallMachine(maximumCallers: 1_000)
    var now = CacheWorld.beginning
    var kept: [ResponseKey: StoredResponse] = [:]
    var operations: [SharedCallMachine.StoreOperation] = []
    /// The calls in flight.
    var calls: [UInt64: SocketRequest] = [:]
    /// All calls that were begun, in order.
    var begun: [UInt64] = []
    var cancelled: [UInt64] = []
    var completions: [Completion] = []

    var lastCall: UInt64 { self.begun.last ?? 0 }
    var lastRequest: SocketRequest? { self.calls[self.lastCall] }
    var texts: [String] { self.completions.map(\.text) }

    func texts(of caller: Caller) -> [String] { self.completions.filter { $0.caller == caller }.map(\.text) }

    static func request(_ body: String = "7", type: UInt32 = 101) -> SocketRequest {
        SocketRequest(type: type, body: body)
    }

    func asking(
        _ request: SocketRequest = CacheWorld.request(),
        _ policy: CachePolicy = .returningCached,
        validity: Duration = .seconds(60),
        timeout: Duration = .seconds(8),
        owner: String = "screen"
    ) -> SharedCallMachine.Asking {
        SharedCallMachine.Asking(
            request: request,
            key: policy == .ignoringCache ? nil : APIRequest(request).key,
            transport: self.transport,
            policy: policy,
            validity: validity,
            owner: owner,
            timeout: timeout
        )
    }

    // MARK: Events

    private mutating func take(_ actions: SharedCallMachine.Actions) {
        self.operations += actions.store
        for start in actions.starts {
            self.calls[start.call] = start.request
            self.begun.append(start.call)
        }
        for call in actions.cancels {
            self.calls[call] = nil
            self.cancelled.append(call)
        }
        self.completions += actions.completions.map { Completion(caller: $0, result: $1, time: self.now.time) }
    }

    mutating func perform(_ body: (inout SharedCallMachine, inout SharedCallMachine.Actions) -> Void) {
        var actions = SharedCallMachine.Actions()
        body(&self.machine, &actions)
        self.take(actions)
    }

    /// Asks without having the store answer.
    mutating func askOnly(_ number: Int, _ asking: SharedCallMachine.Asking, manager: UInt64 = 1) -> Caller {
        let caller = Caller(manager: manager, number: number)
        let now = self.now
        self.perform { $0.ask(caller, asking, at: now, into: &$1) }
        return caller
    }

    @discardableResult
    mutating func ask(_ number: Int, _ asking: SharedCallMachine.Asking, manager: UInt64 = 1) -> Caller {
        let caller = self.askOnly(number, asking, manager: manager)
        self.runStore()
        return caller
    }

    mutating func ask(_ number: Int) { self.ask(number, self.asking()) }

    /// Performs the store's next operation.
    mutating func stepStore() {
        guard !self.operations.isEmpty else { return }
        switch self.operations.removeFirst() {
        case .find(let number, let key):
            let now = self.now
            let stored = self.kept[key]
            self.perform { $0.found(stored, by: number, at: now, into: &$1) }
        case .store(let key, let response):
            self.kept[key] = response
        case .remove(let removal):
            self.kept = self.kept.filter { !removal.covers($0.key, $0.value) }
        }
    }

    /// Performs all operations of the store.
    mutating func runStore() {
        while !self.operations.isEmpty { self.stepStore() }
    }

    /// Ends a call, by default the last one that was begun.
    mutating func answer(
        _ result: Result<SocketResponse, SocketError>,
        call: UInt64? = nil
    ) {
        let call = call ?? self.lastCall
        self.calls[call] = nil
        let now = self.now
        self.perform { $0.answered(call, with: result, at: now, into: &$1) }
        self.runStore()
    }

    mutating func answer(_ body: String, metadata: [String: String] = [:], call: UInt64? = nil) {
        let response = SocketResponse(
            type: 101,
            body: ByteBuffer(string: body),
            metadata: metadata,
            endpoint: Endpoint(host: "server", port: 1)
        )
        self.answer(.success(response), call: call)
    }

    mutating func fail(_ code: SocketError.Code, metadata: [String: String] = [:], call: UInt64? = nil) {
        var error = SocketError(code, message: "as the test says", delivery: .answered)
        error.metadata = metadata
        self.answer(.failure(error), call: call)
    }

    mutating func cancel(_ caller: Caller) {
        let now = self.now
        self.perform { $0.cancel(caller, at: now, into: &$1) }
    }

    mutating func remove(_ removal: ResponseRemoval) {
        self.perform { $0.remove(removal, into: &$1) }
    }

    /// Advances the time, and fires each alarm in between.
    mutating func pass(_ duration: Duration) {
        let end = APIClock.Moment(
            date: self.now.date.addingTimeInterval(duration.inSeconds),
            time: self.now.time + TimeAmount(duration)
        )
        while let alarm = self.machine.nextAlarm, alarm <= end.time {
            self.move(to: max(alarm, self.now.time))
            let now = self.now
            self.perform { $0.timePassed(now, into: &$1) }
        }
        self.now = end
    }

    private mutating func move(to time: NIODeadline) {
        self.now.date += Duration(time - self.now.time).inSeconds
        self.now.time = time
    }
}
