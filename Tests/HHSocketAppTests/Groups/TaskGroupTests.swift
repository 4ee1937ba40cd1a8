// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketApp
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// A record of events, in order.
private final class Events: Sendable {
    private let box = NIOLockedValueBox<[String]>([])

    var all: [String] { self.box.withLockedValue { $0 } }

    func add(_ event: String) { self.box.withLockedValue { $0.append(event) } }
}

/// A member that ends on request.
private final class ManualMember: SocketTaskGroupMember {
    private let end: @Sendable ((any Error)?) -> Void
    private let fraction = NIOLockedValueBox(0.0)

    init(_ end: @escaping @Sendable ((any Error)?) -> Void) {
        self.end = end
    }

    func resume() {}
    func cancel() { self.end(SocketError(.cancelled, message: "as it was told")) }
    func finish() { self.end(nil) }

    var fractionCompleted: Double { self.fraction.withLockedValue { $0 } }
    func come(to fraction: Double) { self.fraction.withLockedValue { $0 = fraction } }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TaskGroupTests {
    private func request(_ body: String, type: UInt32 = 101) -> SocketRequest {
        SocketRequest(type: type, body: body)
    }

    @Test func completesOnceAfterTheLastHandlerHasRun() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let events = Events()
        let (ends, continuation) = AsyncStream.makeStream(of: Int.self)
        // Handlers run on different queues, and the group's on another one: only the group itself can keep the order.
        let group = SocketTaskGroup { outcome in
            events.add("end")
            continuation.yield(outcome.failures.count)
        }
        for number in 0..<20 {
            let queue = CallbackQueue.queue(DispatchQueue(label: "\(number)"))
            group.add(self.request("\(number)"), to: client, on: queue) { result in
                Thread.sleep(forTimeInterval: 0.002)
                events.add((try? result.get().string) ?? "failed")
            }
        }
        #expect(group.state == .suspended)
        group.resume()
        group.resume()
        #expect(try await first(of: ends, "the end") == 0)
        #expect(events.all.last == "end")
        #expect(events.all.count == 21)
        #expect(Set(events.all.dropLast()) == Set((0..<20).map { "\($0)" }))
        #expect(group.state == .completed)
        group.cancel()
        #expect(group.state == .completed)
    }

    @Test func aGroupWithoutMembersCompletesWhenItIsResumed() async throws {
        #expect(await SocketTaskGroup().run().memberCount == 0)
        let outcome = await SocketTaskGroup().run()
        #expect(!outcome.isCancelled)
        try outcome.get()
    }

    @Test func aMemberThatFailsHarmsNoOther() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .status(.noPermission))
        let client = SocketClient.connecting(to: server.endpoint)
        let group = SocketTaskGroup()
        let tasks = [101, 102, 101, 102].map { group.add(self.request("x", type: $0), to: client) }
        let outcome = await group.run()
        #expect(!outcome.isCancelled)
        #expect(outcome.memberCount == 4)
        #expect(outcome.failures.map(\.index) == [1, 3])
        #expect(outcome.failures.allSatisfy { ($0.error as? SocketError)?.code == .noPermission })
        #expect(tasks.map { $0.response != nil } == [true, false, true, false])
        #expect(throws: SocketError.self) { try outcome.get() }
    }

    @Test func cancelCancelsAllAndCompletesOnceAsCancelled() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let events = Events()
        let group = SocketTaskGroup { events.add("end \($0.isCancelled)") }
        for _ in 0..<5 {
            group.add(self.request("never answered"), to: client) { result in
                if case .failure(let error) = result { events.add("\(error.code)") }
            }
        }
        async let outcome = group.run()
        try await server.received(5, ofType: 101)
        group.cancel()
        group.cancel()
        // A late member is cancelled too; a group that still waits for others also waits for it.
        group.add(self.request("late"), to: client)
        #expect(await outcome.isCancelled)
        #expect(events.all == [String](repeating: "cancelled", count: 5) + ["end true"])
        let refused = group.add(self.request("too late"), to: client)
        try await eventually("its end") { refused.state == .completed }
        #expect(refused.error?.code == .cancelled)
        #expect(events.all.count == 6)
    }

    @Test func cancelBeforeResumeRunsNothing() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let group = SocketTaskGroup()
        let task = group.add(self.request("x"), to: client)
        group.addOperation { Issue.record("it must not begin") }
        group.cancel()
        let outcome = await group.run()
        #expect(outcome.isCancelled)
        #expect(outcome.failures.count == 2)
        #expect(task.error?.code == .cancelled)
        #expect(server.received.isEmpty)
    }

    @Test func aHandlerMayAddTheNextMember() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let group = SocketTaskGroup()
        @Sendable func next(_ number: Int) {
            group.add(SocketRequest(type: 101, body: "\(number)"), to: client) { _ in
                if number < 9 { next(number + 1) }
            }
        }
        next(0)
        #expect(await group.run().memberCount == 10)
        #expect(try await server.received(10, ofType: 101).count == 10)
    }

    @Test func groupsAreMembersOfGroups() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .status(.noPermission))
        let client = SocketClient.connecting(to: server.endpoint)
        let events = Events()
        let inner = SocketTaskGroup { _ in events.add("inner") }
        inner.add(self.request("a"), to: client) { _ in events.add("a") }
        inner.add(self.request("b", type: 102), to: client) { _ in events.add("b") }
        let outer = SocketTaskGroup { _ in events.add("outer") }
        outer.add(inner)
        outer.addOperation { events.add("operation") }
        let outcome = await outer.run()
        #expect(events.all.last == "outer")
        #expect(Set(events.all) == ["a", "b", "inner", "operation", "outer"])
        let order = events.all.filter { $0 != "operation" }
        #expect(order.suffix(2) == ["inner", "outer"])
        #expect(outcome.failures.count == 1)
        #expect((outcome.failures.first?.error as? SocketTaskGroup.Outcome)?.failures.map(\.index) == [1])
    }

    @Test func cancellingAGroupCancelsThoseWithin() async throws {
        let (inner, outer) = (SocketTaskGroup(), SocketTaskGroup())
        inner.add { ManualMember($0) }
        outer.add(inner)
        outer.resume()
        outer.cancel()
        #expect(await outer.run().isCancelled)
        #expect(inner.outcome?.isCancelled == true)
    }

    @Test func aReleasedMemberHasFailed() async throws {
        struct Forgetful: SocketTaskGroupMember {
            func resume() {}
            func cancel() {}
        }
        let group = SocketTaskGroup()
        group.add { _ in Forgetful() }
        let outcome = await group.run()
        #expect((outcome.failures.first?.error as? SocketError)?.code == .cancelled)
    }

    // MARK: Progress

    @Test func progressIsThatOfTheWhole() async throws {
        let group = SocketTaskGroup()
        let progress = group.progress
        let small = group.add { ManualMember($0) }
        let large = group.add(weight: 3) { ManualMember($0) }
        #expect(group.fractionCompleted == 0)
        group.resume()
        large.come(to: 0.5)
        #expect(group.fractionCompleted == 0.375)
        large.come(to: 17)
        #expect(group.fractionCompleted == 0.75)
        small.finish()
        #expect(group.completedCount == 1)
        #expect(group.memberCount == 2)
        #expect(group.fractionCompleted == 1)
        large.come(to: .nan)
        #expect(group.fractionCompleted == 0.25)
        large.finish()
        await group.run()
        #expect(group.fractionCompleted == 1)
        #expect(progress.isFinished)
        #expect(progress.totalUnitCount == 5)
    }

    @Test func cancellingTheProgressCancelsTheGroup() async throws {
        let group = SocketTaskGroup()
        group.add { ManualMember($0) }
        group.resume()
        group.progress.cancel()
        #expect(await group.run().isCancelled)
    }

    @Test func aTaskReportsHowFarItHasCome() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let group = SocketTaskGroup()
        let task = group.add(self.request("hello"), to: client)
        #expect(task.fractionCompleted == 0)
        await group.run()
        #expect(task.fractionCompleted == 1)
    }

    // MARK: Async

    @Test func cancellingTheSwiftTaskCancelsEveryCall() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let swiftTask = Task {
            try await withSocketTaskGroup { group in
                async let one = group.data(for: SocketRequest(type: 101, body: "1"), with: client)
                async let two = group.data(for: SocketRequest(type: 101, body: "2"), with: client)
                async let three = client.data(for: SocketRequest(type: 101, body: "3"))
                return try await (one.string, two.string, three.string)
            }
        }
        try await server.received(3, ofType: 101)
        swiftTask.cancel()
        await #expect { try await swiftTask.value } throws: { ($0 as? SocketError)?.code == .cancelled }
    }

    @Test func theScopeReturnsWhenAllMembersHaveEnded() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let events = Events()
        let answer = try await withSocketTaskGroup { group in
            // Between this one and the next the group is empty, and stays open.
            let first = try await group.data(for: SocketRequest(type: 101, body: "first"), with: client)
            group.add(SocketRequest(type: 101, body: "second"), to: client) { _ in events.add("second") }
            return first.string
        }
        #expect(answer == "first")
        #expect(events.all == ["second"])
    }

    @Test func errorOfTheScopeCancelsTheRest() async throws {
        struct Enough: Error {}
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let events = Events()
        await #expect(throws: Enough.self) {
            try await withSocketTaskGroup { group in
                group.add(SocketRequest(type: 101, body: "never answered"), to: client) { result in
                    if case .failure(let error) = result { events.add("\(error.code)") }
                }
                throw Enough()
            }
        }
        #expect(events.all == ["cancelled"])
    }

    @Test func cancellingOneCallOfAGroupSparesTheOthers() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let answer = try await withSocketTaskGroup { group in
            let call = Task { try await group.data(for: SocketRequest(type: 102, body: "1"), with: client) }
            try await server.received(1, ofType: 102)
            call.cancel()
            #expect((await call.result).isFailure)
            return try await group.data(for: SocketRequest(type: 101, body: "2"), with: client).string
        }
        #expect(answer == "2")
    }

    @Test func severalMayWaitForOneGroup() async throws {
        let group = SocketTaskGroup()
        let member = group.add { ManualMember($0) }
        async let one = group.run()
        async let two = group.run()
        member.finish()
        let counts = await (one.memberCount, two.memberCount)
        #expect(counts == (1, 1))
    }

    /// Ends, cancels and new members from many threads at once.
    @Test func manyThreadsAtOnce() async throws {
        for round in 0..<200 {
            let ends = NIOLockedValueBox(0)
            let group = SocketTaskGroup(on: .socketThread) { _ in ends.withLockedValue { $0 += 1 } }
            let members = (0..<8).map { _ in group.add { ManualMember($0) } }
            await withTaskGroup { tasks in
                for member in members { tasks.addTask { member.finish() } }
                tasks.addTask { group.resume() }
                tasks.addTask { group.add { ManualMember($0) }.finish() }
                if round % 2 == 0 { tasks.addTask { group.cancel() } }
            }
            await group.run()
            #expect(ends.withLockedValue { $0 } == 1)
            #expect(group.completedCount == group.memberCount)
        }
    }
}

extension Result {
    fileprivate var isFailure: Bool {
        if case .failure = self { true } else { false }
    }
}
