// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketApp
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Requests of a manager in a group.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TaskGroupManagerTests {
    private let request = APIRequest(SocketRequest(type: 101, body: "7"))
    private let results = NIOLockedValueBox<[SocketError.Code?]>([])

    private func add(_ group: SocketTaskGroup, _ manager: APIManager) {
        group.add(self.request, to: manager) { [results] result in
            let code: SocketError.Code? = if case .failure(let error) = result { error.code } else { nil }
            results.withLockedValue { $0.append(code) }
        }
    }

    @Test func theGroupIsCompleteAfterTheHandlerOfItsLastRequest() async {
        let manager = APIManager(client: MockTransport { $0.body })
        let group = SocketTaskGroup()
        for _ in 0..<10 { self.add(group, manager) }
        #expect(self.results.withLockedValue { $0.isEmpty }, "nothing begins before the group does")
        let outcome = await group.run()
        #expect(outcome.failures.isEmpty)
        #expect(self.results.withLockedValue { $0 } == Array(repeating: nil, count: 10))
    }

    @Test(arguments: [true, false]) func cancellingTheGroupCancelsItsRequests(isResumed: Bool) async throws {
        let gate = Gate()
        let manager = APIManager(
            client: MockTransport { request in
                try await gate.wait()
                return request.body
            }
        )
        let group = SocketTaskGroup()
        for _ in 0..<3 { self.add(group, manager) }
        if isResumed {
            group.resume()
            try await eventually("three calls") { gate.waitingCount == 3 }
        }
        group.cancel()
        group.resume()
        try await eventually("the end") { group.outcome != nil }
        #expect(group.outcome?.isCancelled == true)
        #expect(self.results.withLockedValue { $0 } == [.cancelled, .cancelled, .cancelled])
        try await eventually("no call waits") { gate.waitingCount == 0 }
    }

    @Test(arguments: [true, false]) func aManagerThatGoesTakesItsRequestsAlong(isResumed: Bool) async throws {
        let gate = Gate()
        var manager: APIManager? = APIManager(
            client: MockTransport { request in
                try await gate.wait()
                return request.body
            }
        )
        let released = WeakReference<APIManager>()
        let group = SocketTaskGroup()
        if let manager {
            released.set(manager)
            self.add(group, manager)
        }
        if isResumed {
            group.resume()
            try await eventually("a call") { gate.waitingCount == 1 }
        }
        manager = nil
        try await eventually("the manager's end") { released.object == nil }
        group.resume()
        try await eventually("the end") { group.outcome != nil }
        #expect(group.outcome?.failures.count == 1)
        #expect(self.results.withLockedValue { $0 } == [.cancelled])
    }
}
