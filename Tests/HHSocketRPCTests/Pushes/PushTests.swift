// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketRPC
import HHSocketTesting
import InMemoryLogging
import Logging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Handlers and sequences over real sockets, and that a bad subscriber does not affect the others.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PushTests {
    /// The pushes that a handler received.
    private final class Notes: Sendable {
        private let box = NIOLockedValueBox<[String]>([])

        var texts: [String] { self.box.withLockedValue { $0 } }
        func append(_ push: SocketPush) { self.box.withLockedValue { $0.append(push.string) } }
    }

    private struct Failure: Error {}

    private func pushes(_ range: Range<Int>, _ type: UInt32 = 2_001) -> MockServer.Reaction {
        .glued(range.map { .push(type, "\($0)") })
    }

    private func strings(_ range: Range<Int>) -> [String] { range.map { "\($0)" } }

    @Test func handlersAreGivenTheirPushesInOrder() async throws {
        let server = try await MockServer(self.pushes(0..<1_000).then(self.pushes(0..<10, 2_002)).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let (one, all) = (Notes(), Notes())
        client.onPush(ofType: 2_001) { push in
            // Lets the others run first.
            await Task.yield()
            one.append(push)
        }
        client.onPush { all.append($0) }
        _ = try await client.data(for: SocketRequest(type: 101))
        try await eventually("the pushes") { one.texts.count == 1_000 && all.texts.count == 1_010 }
        #expect(one.texts == self.strings(0..<1_000))
        #expect(all.texts == self.strings(0..<1_000) + self.strings(0..<10))
        #expect(client.statistics.pushes == 1_010)
        #expect(client.statistics.droppedPushes == 0)
        #expect(client.statistics.failedPushHandlers == 0)
    }

    @Test func handlerThatThrowsContinuesAndIsLoggedAndCounted() async throws {
        let server = try await MockServer(.glued((0..<10).map { .push(2_001, "secret \($0)") }).then(.echo))
        let log = InMemoryLogHandler()
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.logger = Logger(label: "test", factory: { _ in log })
        }
        let (bad, good) = (Notes(), Notes())
        client.onPush(ofType: 2_001) { push in
            bad.append(push)
            throw Failure()
        }
        client.onPush(ofType: 2_001) { good.append($0) }
        let sequence = client.pushes()
        _ = try await client.data(for: SocketRequest(type: 101))
        let all = (0..<10).map { "secret \($0)" }
        try await eventually("the pushes") { bad.texts == all && good.texts == all }
        #expect(try await texts(10, of: sequence) == all)
        try await eventually("the failures") { client.statistics.failedPushHandlers == 10 }
        try await eventually("the log") { log.entries.filter { $0.level == .warning }.count == 10 }
        let entries = log.entries.filter { $0.level == .warning }
        #expect(entries.allSatisfy { $0.metadata == ["type": "2001", "error": "Failure"] })
        #expect(!log.entries.contains { "\($0.message) \($0.metadata)".contains("secret") })
    }

    @Test(arguments: [PushBufferingPolicy.dropOldest(3), .dropNewest(3)])
    func stalledHandlerLosesOnlyItsOwnPushes(policy: PushBufferingPolicy) async throws {
        let server = try await MockServer(.echo)
        server.on(102, self.pushes(0..<1).then(.echo))
        server.on(103, self.pushes(1..<11).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let (stalled, good) = (Notes(), Notes())
        let gate = Gate()
        client.onPush(ofType: 2_001, buffering: policy) { push in
            stalled.append(push)
            try? await gate.wait()
        }
        client.onPush(ofType: 2_001) { good.append($0) }
        let sequence = client.pushes(ofType: 2_001)
        _ = try await client.data(for: SocketRequest(type: 102))
        try await eventually("the stall") { stalled.texts == ["0"] }
        _ = try await client.data(for: SocketRequest(type: 103))
        #expect(client.statistics.droppedPushes == 7)
        try await eventually("the pushes") { good.texts == self.strings(0..<11) }
        #expect(try await texts(11, of: sequence) == self.strings(0..<11))
        #expect(stalled.texts == ["0"])
        // Calls are still answered.
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        gate.open()
        let rest = policy == .dropOldest(3) ? ["8", "9", "10"] : ["1", "2", "3"]
        try await eventually("what was kept") { stalled.texts == ["0"] + rest }
        #expect(client.statistics.droppedPushes == 7)
    }

    @Test func eachSlowReaderLosesWhatItsOwnPolicySays() async throws {
        let server = try await MockServer(self.pushes(0..<100).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let oldest = client.pushes(ofType: 2_001, buffering: .dropOldest(10))
        let newest = client.pushes(buffering: .dropNewest(10))
        let enough = client.pushes(ofType: 2_001)
        _ = try await client.data(for: SocketRequest(type: 101))
        #expect(client.statistics.droppedPushes == 180)
        #expect(try await texts(10, of: oldest) == self.strings(90..<100))
        #expect(try await texts(10, of: newest) == self.strings(0..<10))
        #expect(try await texts(100, of: enough) == self.strings(0..<100))
    }

    @Test func cancelledHandlerIsNotCalledAndItsPushesGoToTheDelegate() async throws {
        final class Delegate: SocketClientDelegate {
            let notes = Notes()
            func client(_ client: SocketClient, didReceive push: SocketPush) { self.notes.append(push) }
        }
        let server = try await MockServer(.echo)
        server.on(102, self.pushes(0..<2).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let delegate = Delegate()
        client.delegate = delegate
        let notes = Notes()
        let stopped = Watched(false)
        let gate = Gate()
        let subscription = client.onPush(ofType: 2_001) { push in
            notes.append(push)
            // Ends because the task that runs it is cancelled.
            try? await gate.wait()
            stopped.withLockedValue { $0 = true }
            throw Failure()
        }
        _ = try await client.data(for: SocketRequest(type: 102))
        try await eventually("the first push") { notes.texts == ["0"] }
        subscription.cancel()
        subscription.cancel()
        try await stopped.wait("the end of the handler") { $0 }
        _ = try await client.data(for: SocketRequest(type: 102))
        try await eventually("the unclaimed ones") { delegate.notes.texts == ["0", "1"] }
        subscription.cancel()
        #expect(notes.texts == ["0"])
        // A cancelled handler does not count as failed.
        #expect(client.statistics.failedPushHandlers == 0)
        gate.open()
    }

    @Test func handlerOutlivesItsSubscriptionAndIsReleasedWithTheClient() async throws {
        final class Token: Sendable {}
        let server = try await MockServer(self.pushes(0..<1).then(.echo))
        let notes = Notes()
        let token = WeakReference<Token>()
        do {
            let client = SocketClient.connecting(to: server.endpoint)
            let kept = Token()
            token.set(kept)
            client.onPush { push in
                notes.append(push)
                _ = kept
            }
            _ = try await client.data(for: SocketRequest(type: 101))
            try await eventually("the push") { notes.texts == ["0"] }
            #expect(token.object != nil)
        }
        try await eventually("the end of the handler") { token.object == nil }
    }

    @Test func subscriptionsOfAReleasedClientKeepWhatHadComeAndEnd() async throws {
        let server = try await MockServer(self.pushes(0..<3).then(.echo))
        let pushes: SocketPushes
        do {
            let client = SocketClient.connecting(to: server.endpoint)
            pushes = client.pushes()
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        try await server.ended(connection: 0)
        #expect(try await texts(4, of: pushes) == self.strings(0..<3))
    }

    @Test func cancellingTheTaskThatReadsEndsTheSubscription() async throws {
        let server = try await MockServer(self.pushes(0..<1).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let notes = Notes()
        let reading = Task {
            for await push in client.pushes(ofType: 2_001) { notes.append(push) }
        }
        try await eventually("a push") {
            _ = try? await client.data(for: SocketRequest(type: 101))
            return !notes.texts.isEmpty
        }
        reading.cancel()
        await reading.value
        let count = notes.texts.count
        _ = try await client.data(for: SocketRequest(type: 101))
        #expect(notes.texts.count == count)
    }

    @Test func subscribersOnManyThreadsComeAndGoWhilePushesCome() async throws {
        let count = 20_000
        let server = try await FloodServer(pushes: count, of: 2_001, bytes: 16)
        let client = SocketClient.connecting(to: server.endpoint)
        let threads = 8
        // This subscriber receives every push, regardless of the others.
        let witness = client.pushes(ofType: 2_001, buffering: .suspendReading(64))
        let numbers = Task {
            var numbers: [Int?] = []
            for await push in witness {
                numbers.append(push.body.floodNumber)
                if numbers.count == count { break }
            }
            return numbers
        }
        _ = try await client.data(for: SocketRequest(type: FloodServer.floodType))
        let finished = Watched(0)
        for thread in 0..<threads {
            DispatchQueue.global().async {
                var generator = SeededGenerator(seed: UInt64(thread))
                for _ in 0..<300 {
                    let limit = Int.random(in: 0...4, using: &generator)
                    let policy =
                        [PushBufferingPolicy.dropOldest(limit), .dropNewest(limit), .suspendReading(limit)]
                        .randomElement(using: &generator) ?? .default
                    switch Int.random(in: 0..<5, using: &generator) {
                    case 0: _ = client.pushes(ofType: 2_001, buffering: policy)
                    case 1: client.onPush(buffering: policy) { _ in }.cancel()
                    case 2:
                        let subscription = client.onPush(ofType: 2_001, buffering: policy) { _ in throw Failure() }
                        DispatchQueue.global().async { subscription.cancel() }
                        subscription.cancel()
                    case 3:
                        let reading = Task {
                            for await _ in client.pushes(buffering: policy) { break }
                        }
                        DispatchQueue.global().async { reading.cancel() }
                    default:
                        let pushes = client.pushes(buffering: policy)
                        for _ in 0..<2 {
                            let reading = Task { for await _ in pushes { await Task.yield() } }
                            DispatchQueue.global().async { reading.cancel() }
                        }
                    }
                }
                finished.withLockedValue { $0 += 1 }
            }
        }
        try await finished.wait("the threads") { $0 == threads }
        let received = try await waitForValue(of: numbers, "the witness")
        #expect(received == Array(0..<count))
        #expect(client.statistics.pushes == count)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        try await server.close()
    }
}
