// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import GRDB
import HHSocketRPC
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

/// An outbox with a disk, without a socket.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct OutboxTests {
    private func message(_ body: String, _ topic: String = "a", timeToLive: Duration? = nil) -> OutboxMessage {
        OutboxMessage(type: 130, body: body, topic: topic, timeToLive: timeToLive)
    }

    private func eventuallyEmpty(_ outbox: Outbox) async throws {
        try await eventually("it is empty") { outbox.snapshot.count == 0 }
    }

    @Test func messagesAreSentWithTheirKeysAndRemoved() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport(FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        let record = EventRecord(outbox)
        var message = self.message("hello")
        message.key = "the key"
        message.metadata = ["tenant": "acme"]
        let id = try await outbox.enqueue(message)
        try await eventually("the event") { record.all.contains("delivered \(id)") }
        let request = try #require(transport.requests.first)
        #expect(request.type == 130)
        #expect(request.idempotencyKey == "the key")
        #expect(request.metadata == ["tenant": "acme"])
        #expect(request.waitsForConnectivity == true)
        #expect(request.retryPolicy == RetryPolicy.none)
        #expect(request.timeout == .seconds(30))
        #expect(transport.sent == ["hello"])
        #expect(record.all == ["enqueued \(id)", "delivered \(id)"])
        await outbox.close()
        let next = try await Outbox(at: folder.outbox, transport: FakeTransport())
        #expect(next.pending == [])
    }

    @Test func unansweredMessagesAreSentByTheNextProcessWithTheSameKey() async throws {
        let folder = try TemporaryFolder()
        let first = FakeTransport()
        let outbox = try await Outbox(at: folder.outbox, transport: first)
        var keys: [String: String] = [:]
        for number in 1...6 {
            let message = self.message("\(number)", number % 2 == 0 ? "even" : "odd")
            keys[message.topic + "\(number)"] = message.key
            try await outbox.enqueue(message)
        }
        try await eventually("one of each topic") { first.sent.count == 2 }
        #expect(Set(first.sent) == ["1", "2"])
        await outbox.close()

        let second = FakeTransport(FakeTransport.ok)
        let next = try await Outbox(at: folder.outbox, transport: second)
        try await self.eventuallyEmpty(next)
        #expect(second.sent.filter { Int($0).map { $0 % 2 == 1 } == true } == ["1", "3", "5"])
        #expect(second.sent.filter { Int($0).map { $0 % 2 == 0 } == true } == ["2", "4", "6"])
        for request in second.requests {
            let body = String(buffer: request.body)
            #expect(request.idempotencyKey == keys["even" + body] ?? keys["odd" + body])
        }
    }

    @Test func messagesOfATopicAreSentInTheOrderInWhichTheyWereEnqueued() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport(FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        try await withThrowingTaskGroup { group in
            for topic in 0..<5 {
                group.addTask {
                    for number in 0..<100 {
                        try await outbox.enqueue(
                            OutboxMessage(type: 130, body: "\(topic) \(number)", topic: "\(topic)")
                        )
                    }
                }
            }
            try await group.waitForAll()
        }
        try await self.eventuallyEmpty(outbox)
        for topic in 0..<5 {
            #expect(transport.sent.filter { $0.hasPrefix("\(topic) ") } == (0..<100).map { "\(topic) \($0)" })
        }
    }

    @Test func nothingIsSentBeforeThereIsAConnection() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        for number in 0..<10 { try await outbox.enqueue(self.message("\(number)")) }
        #expect(outbox.snapshot.count == 10)
        #expect(!outbox.snapshot.isConnected)
        #expect(transport.sent.isEmpty)
        transport.connectivityChanged(true)
        try await self.eventuallyEmpty(outbox)
        #expect(transport.sent == (0..<10).map { "\($0)" })
    }

    @Test func aFailedMessageIsRetriedAfterABackOffInVirtualTime() async throws {
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        let start = Date(timeIntervalSince1970: 1_000_000)
        let answers = NIOLockedValueBox(3)
        let transport = FakeTransport { request in
            let fails = answers.withLockedValue { answers in
                answers -= 1
                return answers >= 0
            }
            return fails ? FakeTransport.refusal(.overloaded) : FakeTransport.ok(request)
        }
        var configuration = OutboxConfiguration()
        configuration.backoff.jitter = 0
        configuration.defaultTimeToLive = nil
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: configuration,
            clock: .virtual(clock, start)
        )
        let record = EventRecord(outbox)
        try await outbox.enqueue(self.message("x"))
        for (attempt, wait) in [1, 2, 4].enumerated() {
            try await eventually("attempt \(attempt)") { transport.sent.count == attempt + 1 }
            try await clock.waitForSleepers()
            clock.advance(by: .seconds(wait) - .milliseconds(1))
            #expect(transport.sent.count == attempt + 1)
            clock.advance(by: .milliseconds(1))
        }
        try await eventually("its delivery") { record.all.last == "delivered 1" }
        #expect(record.all == ["enqueued 1"] + [String](repeating: "retrying 1 overloaded", count: 3) + ["delivered 1"])
    }

    @Test func messagesExpireWhileTheyWaitAndAcrossRestarts() async throws {
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        let start = Date(timeIntervalSince1970: 1_000_000)
        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        var configuration = OutboxConfiguration()
        configuration.defaultTimeToLive = .seconds(100)
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: configuration,
            clock: .virtual(clock, start)
        )
        let record = EventRecord(outbox)
        try await outbox.enqueue(self.message("short", timeToLive: .seconds(10)))
        try await outbox.enqueue(self.message("as usual"))
        try await outbox.enqueue(self.message("long", timeToLive: .seconds(1_000)))
        try await outbox.enqueue(self.message("for ever", timeToLive: .seconds(Int64.max)))
        #expect(outbox.pending.map { $0.expires.map { $0.timeIntervalSince(start) } } == [10, 100, 1_000, nil])
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(10))
        try await eventually("the first expires") { record.all.contains("expired 1") }
        await outbox.close()

        // The messages expired while no process ran.
        clock.advance(by: .seconds(500))
        let next = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: configuration,
            clock: .virtual(clock, start)
        )
        #expect(next.pending.map(\.id.rawValue) == [3, 4])
        transport.connectivityChanged(true)
        try await self.eventuallyEmpty(next)
        #expect(transport.sent == ["long", "for ever"])
    }

    @Test func aClockThatWasSetBackDoesNotProlongMessages() async throws {
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        let transport = FakeTransport(isConnected: false)
        let start = Date(timeIntervalSince1970: 1_000_000)
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: .init(),
            clock: .virtual(clock, start)
        )
        try await outbox.enqueue(self.message("x", timeToLive: .seconds(60)))
        await outbox.close()
        let past = start.addingTimeInterval(-1_000_000)
        let next = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: .init(),
            clock: .virtual(clock, past)
        )
        #expect(next.pending.first?.expires == past.addingTimeInterval(60))
    }

    @Test func messagesBeyondTheLimitsAreRejectedAndNotStored() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport()
        var configuration = OutboxConfiguration()
        configuration.maximumCount = 3
        configuration.maximumBytes = 1_000
        let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
        try await outbox.enqueue(self.message("1"))
        try await outbox.enqueue(self.message("2"))
        await #expect { try await outbox.enqueue(self.message(String(repeating: "x", count: 1_000))) } throws: {
            ($0 as? OutboxError)?.code == .full && "\($0)".contains("maximumBytes")
        }
        try await outbox.enqueue(self.message("3"))
        await #expect { try await outbox.enqueue(self.message("4")) } throws: {
            ($0 as? OutboxError)?.code == .full && "\($0)".contains("maximumCount")
        }
        #expect(outbox.snapshot.count == 3)
        try await transport.answer("1")
        try await eventually("room") { outbox.snapshot.count == 2 }
        try await outbox.enqueue(self.message("4"))
        await outbox.close()
        let next = try await Outbox(at: folder.outbox, transport: FakeTransport())
        #expect(next.pending.map(\.id.rawValue) == [2, 3, 4])
    }

    @Test func theSameMessageEnqueuedTwiceIsOne() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        var message = self.message("x")
        message.metadata = ["b": "2", "a": "1", "c": "3"]
        let ids = try await [outbox.enqueue(message), outbox.enqueue(message)]
        #expect(ids[0] == ids[1])
        #expect(outbox.snapshot.count == 1)
        var other = message
        other.body = ByteBuffer(string: "y")
        await #expect { try await outbox.enqueue(other) } throws: { ($0 as? OutboxError)?.code == .keyInUse }
        transport.connectivityChanged(true)
        try await self.eventuallyEmpty(outbox)
        #expect(transport.sent == ["x"])
        // Rejected messages take no room.
        #expect(outbox.snapshot.bytes == 0)
    }

    @Test func messagesThatCannotBeStoredAreRejected() async throws {
        let folder = try TemporaryFolder()
        let outbox = try await Outbox(at: folder.outbox, transport: FakeTransport())
        var nameless = self.message("x")
        nameless.key = ""
        var tooLong = self.message("x")
        tooLong.key = String(repeating: "k", count: 129)
        let none = [
            nameless, tooLong, self.message("x", ""), self.message("x", String(repeating: "t", count: 257)),
            self.message("x", timeToLive: .zero),
        ]
        for message in none {
            await #expect { try await outbox.enqueue(message) } throws: {
                ($0 as? OutboxError)?.code == .invalidMessage
            }
        }
        #expect(outbox.snapshot.count == 0)
    }

    @Test func aMessageCanBeWithdrawnUnlessItIsInFlight() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport()
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        let record = EventRecord(outbox)
        let ids = try await [outbox.enqueue(self.message("1")), outbox.enqueue(self.message("2"))]
        try await eventually("the first is sent") { transport.sent == ["1"] }
        #expect(!outbox.withdraw(ids[0]))
        #expect(outbox.withdraw(ids[1]))
        #expect(!outbox.withdraw(ids[1]))
        try await eventually("the event") { record.all.contains("withdrawn \(ids[1])") }
        try await transport.answer("1")
        try await self.eventuallyEmpty(outbox)
        #expect(transport.sent == ["1"])
    }

    @Test func messagesThatTheServerRejectsFinallyBecomeDeadLetters() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport { request in
            String(buffer: request.body) == "bad" ? FakeTransport.refusal(.illegalFormat) : FakeTransport.ok(request)
        }
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        let record = EventRecord(outbox)
        try await outbox.enqueue(self.message("bad"))
        try await outbox.enqueue(self.message("good"))
        try await eventually("both are over") { record.all.contains("delivered 2") }
        #expect(record.all.filter { !$0.hasPrefix("enqueued") } == ["dead 1 refused", "delivered 2"])
    }

    /// A transient rejection, for example before the user has signed in, loses no message.
    @Test(arguments: [.undefinedType, .database, .unknown, .noPermission] as [SocketError.Code])
    func messagesThatTheServerRejectsForNowAreSentAgain(code: SocketError.Code) async throws {
        let folder = try TemporaryFolder()
        let attempts = NIOLockedValueBox(0)
        let transport = FakeTransport { request in
            let count = attempts.withLockedValue { count in
                count += 1
                return count
            }
            return count < 4 ? FakeTransport.refusal(code) : FakeTransport.ok(request)
        }
        var configuration = OutboxConfiguration()
        configuration.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(2))
        let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
        let record = EventRecord(outbox)
        try await outbox.enqueue(self.message("x"))
        try await eventually("its delivery") { record.all.contains("delivered 1") }
        #expect(record.all.filter { $0.hasPrefix("retrying") } == [String](repeating: "retrying 1 \(code)", count: 3))
    }

    @Test func theAppMayOverrideTheVerdict() async throws {
        let folder = try TemporaryFolder()
        let mends = NIOLockedValueBox(false)
        let transport = FakeTransport { request in
            mends.withLockedValue { $0 } ? FakeTransport.ok(request) : FakeTransport.refusal(.noPermission)
        }
        var configuration = OutboxConfiguration()
        configuration.verdict = { entry, error in entry.topic == "a" ? .suspendTopic : .standard(for: error) }
        let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
        let record = EventRecord(outbox)
        try await outbox.enqueue(self.message("1"))
        try await outbox.enqueue(self.message("2"))
        try await eventually("the event") { record.all.contains("suspended 1 noPermission") }
        #expect(outbox.snapshot.topics["a"] == .init(count: 2, bytes: 2 * 38, isInFlight: false, isSuspended: true))
        mends.withLockedValue { $0 = true }
        outbox.resume(topic: "a")
        try await self.eventuallyEmpty(outbox)
        #expect(transport.sent == ["1", "1", "2"])
    }

    // MARK: Dead letters

    /// Opens an outbox that tries twice, with a server that accepts only the bodies in `good`.
    private func fussy(
        _ folder: TemporaryFolder,
        good: NIOLockedValueBox<Set<String>>
    ) async throws -> (Outbox, FakeTransport) {
        let transport = FakeTransport { request in
            let body = String(buffer: request.body)
            if good.withLockedValue({ $0.contains(body) }) { return FakeTransport.ok(request) }
            return FakeTransport.refusal(body.hasPrefix("wrong") ? .server(Status(rawValue: 777)) : .database)
        }
        var configuration = OutboxConfiguration()
        configuration.maximumAttempts = 2
        configuration.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(2))
        return (try await Outbox(at: folder.outbox, transport: transport, configuration: configuration), transport)
    }

    @Test func deadLettersAreListedResentAndRemoved() async throws {
        let folder = try TemporaryFolder()
        let good = NIOLockedValueBox<Set<String>>([])
        var (outbox, transport) = try await self.fussy(folder, good: good)
        var first = self.message("wrong 1")
        first.metadata = ["tenant": "acme"]
        let messages = [first, self.message("slow 2"), self.message("wrong 3", "b")]
        for message in messages { try await outbox.enqueue(message) }
        try await eventually("all are dead letters") { [outbox] in outbox.snapshot.deadLetterCount == 3 }
        #expect(outbox.snapshot.count == 0)
        await outbox.close()

        // Dead letters outlive the process.
        (outbox, transport) = try await self.fussy(folder, good: good)
        #expect(outbox.pending == [])
        let bytes = messages.reduce(0) { $0 + $1.byteCount }
        #expect((outbox.snapshot.deadLetterCount, outbox.snapshot.deadLetterBytes) == (3, bytes))
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.id.rawValue) == [1, 2, 3])
        #expect(letters.map(\.reason) == [.refused, .exhausted, .refused])
        #expect(letters.map(\.status?.rawValue) == [777, 403, 777])
        #expect(letters.map(\.entry?.key) == messages.map(\.key))
        #expect(letters.map(\.entry?.attempts) == [1, 2, 1])
        #expect(letters.map(\.entry?.mayHaveBeenSent) == [true, true, true])
        #expect(letters.allSatisfy { $0.explanation.contains("as the test says") })
        let found = try await outbox.message(ofDeadLetter: letters[0].id)
        #expect(found == first)

        good.withLockedValue { $0 = ["wrong 1", "slow 2"] }
        let record = EventRecord(outbox)
        let resent = try await outbox.resend(deadLetter: letters[1].id)
        let renewed = try await outbox.resend(deadLetter: letters[0].id, withNewKey: true)
        #expect([resent, renewed].map(\.?.rawValue) == [4, 5])
        try await eventually("both are delivered") {
            record.all.contains("delivered 4") && record.all.contains("delivered 5")
        }
        #expect(transport.sent == ["slow 2", "wrong 1"])
        #expect(transport.requests[0].idempotencyKey == messages[1].key)
        #expect(transport.requests[1].idempotencyKey != messages[0].key)
        #expect(transport.requests[1].metadata == ["tenant": "acme"])
        let wasRemoved = try await outbox.remove(deadLetter: letters[2].id)
        #expect(wasRemoved)
        // A missing dead letter is neither resent nor removed.
        let (again, other) = try await (
            outbox.remove(deadLetter: letters[2].id), outbox.resend(deadLetter: letters[1].id)
        )
        #expect(!again)
        #expect(other == nil)
        #expect((outbox.snapshot.deadLetterCount, outbox.snapshot.deadLetterBytes) == (0, 0))
        let rest = try await outbox.deadLetters()
        #expect(rest == [])
        await outbox.close()
    }

    /// A state is visible only once it is submitted to the disk: a reader, or a process that opens the file later,
    /// finds it there.
    @Test func deadLettersThatTheSnapshotCountsAreListed() async throws {
        let (outbox, _) = try await self.fussy(try TemporaryFolder(), good: NIOLockedValueBox([]))
        let count = 400
        let reader = Task {
            while true {
                let counted = outbox.snapshot.deadLetterCount
                let listed = try await outbox.deadLetters().count
                guard listed >= counted else { return "\(counted) are counted and \(listed) are listed" }
                if listed == count { return "all are listed" }
            }
        }
        for number in 0..<count { try await outbox.enqueue(self.message("wrong", "\(number % 8)")) }
        #expect(try await waitForValue(of: reader, "the reader") == "all are listed")
        await outbox.close()
    }

    @Test func attemptsAreCountedAcrossProcesses() async throws {
        let folder = try TemporaryFolder()
        var configuration = OutboxConfiguration()
        configuration.maximumAttempts = 3
        // The back-off is so long that each process makes only one attempt.
        configuration.backoff = Backoff(base: .seconds(3_600), cap: .seconds(3_600), jitter: 0)
        for attempt in 1...3 {
            let transport = FakeTransport { _ in FakeTransport.refusal(.connectionLost, .sentUnknown) }
            let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
            let record = EventRecord(outbox)
            if attempt == 1 { try await outbox.enqueue(self.message("poison")) }
            try await eventually("attempt \(attempt)") {
                record.all.contains(attempt < 3 ? "retrying 1 connectionLost" : "dead 1 exhausted")
                    || outbox.snapshot.deadLetterCount == 1 || outbox.pending.first?.attempts == attempt
            }
            await outbox.close()
        }
        let outbox = try await Outbox(at: folder.outbox, transport: FakeTransport(), configuration: configuration)
        #expect(outbox.pending == [])
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.reason) == [.exhausted])
        #expect(letters.map(\.entry?.attempts) == [3])
        await outbox.close()
    }

    @Test func resendingAWaitingMessageDoesNotDuplicateIt() async throws {
        let folder = try TemporaryFolder()
        let (outbox, transport) = try await self.fussy(folder, good: NIOLockedValueBox([]))
        let message = self.message("wrong")
        try await outbox.enqueue(message)
        try await eventually("a dead letter") { outbox.snapshot.deadLetterCount == 1 }
        transport.connectivityChanged(false)
        try await eventually("no connection") { !outbox.snapshot.isConnected }
        // An app that does not know its outcome enqueues it again.
        let id = try await outbox.enqueue(message)
        let letters = try await outbox.deadLetters()
        let resent = try await outbox.resend(deadLetter: letters[0].id)
        #expect(resent == id)
        let snapshot = outbox.snapshot
        #expect((snapshot.count, snapshot.deadLetterCount, snapshot.deadLetterBytes) == (1, 0, 0))
        #expect(snapshot.bytes == message.byteCount)
        await outbox.close()
    }

    @Test func tooManyDeadLettersRejectNewMessagesAndNoneIsDeleted() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport { _ in FakeTransport.refusal(.illegalFormat) }
        var configuration = OutboxConfiguration()
        configuration.maximumDeadLetters = 2
        let outbox = try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
        for number in 1...2 {
            try await outbox.enqueue(self.message("\(number)"))
            try await eventually("dead letter \(number)") { outbox.snapshot.deadLetterCount == number }
        }
        await #expect { try await outbox.enqueue(self.message("3")) } throws: {
            ($0 as? OutboxError)?.code == .deadLettersFull && "\($0)".contains("maximumDeadLetters")
        }
        let letters = try await outbox.deadLetters()
        #expect(letters.map(\.id.rawValue) == [1, 2])
        try await outbox.remove(deadLetter: letters[0].id)
        try await outbox.enqueue(self.message("3"))
        await outbox.close()
    }

    // MARK: Accounts

    private func open(
        _ folder: TemporaryFolder,
        account: String?,
        adopts: Bool = false,
        _ transport: FakeTransport = FakeTransport(isConnected: false)
    ) async throws -> Outbox {
        var configuration = OutboxConfiguration()
        configuration.account = account
        configuration.adoptsMessagesWithoutAccount = adopts
        return try await Outbox(at: folder.outbox, transport: transport, configuration: configuration)
    }

    @Test func messagesOfAnotherAccountAreNotSent() async throws {
        let folder = try TemporaryFolder()
        let anns = try await self.open(folder, account: "ann")
        var message = self.message("ann's")
        message.key = "profile"
        try await anns.enqueue(message)
        await anns.close()

        // The next user's app may choose the same key.
        let transport = FakeTransport(FakeTransport.ok)
        let bobs = try await self.open(folder, account: "bob", transport)
        #expect(bobs.pending == [])
        message.body = ByteBuffer(string: "bob's")
        try await bobs.enqueue(message)
        try await self.eventuallyEmpty(bobs)
        #expect(transport.sent == ["bob's"])
        await bobs.close()

        let nobodys = try await self.open(folder, account: nil)
        #expect(nobodys.pending == [])
        await nobodys.close()

        let later = FakeTransport(FakeTransport.ok)
        let again = try await self.open(folder, account: "ann", later)
        try await self.eventuallyEmpty(again)
        #expect(later.sent == ["ann's"])
        await again.close()
    }

    @Test func deadLettersOfAnotherAccountAreHidden() async throws {
        let folder = try TemporaryFolder()
        let anns = try await self.open(
            folder,
            account: "ann",
            FakeTransport { _ in FakeTransport.refusal(.illegalFormat) }
        )
        let id = try await anns.enqueue(self.message("ann's"))
        try await eventually("a dead letter") { anns.snapshot.deadLetterCount == 1 }
        await anns.close()
        let bobs = try await self.open(folder, account: "bob")
        #expect(bobs.snapshot.deadLetterCount == 0)
        let letters = try await bobs.deadLetters()
        #expect(letters == [])
        let (resent, message) = try await (bobs.resend(deadLetter: id), bobs.message(ofDeadLetter: id))
        let wasRemoved = try await bobs.remove(deadLetter: id)
        #expect(resent == nil)
        #expect(message == nil)
        #expect(!wasRemoved)
        let count = try await bobs.removeOtherAccounts()
        #expect(count == 1)
        await bobs.close()
        let again = try await self.open(folder, account: "ann")
        #expect(again.snapshot.deadLetterCount == 0)
        await again.close()
    }

    @Test func messagesWithoutAccountCanBeAdopted() async throws {
        let folder = try TemporaryFolder()
        let nobodys = try await self.open(folder, account: nil)
        for body in ["1", "2"] {
            var message = self.message(body)
            message.key = body
            try await nobodys.enqueue(message)
        }
        await nobodys.close()
        let careful = try await self.open(folder, account: "ann")
        #expect(careful.pending == [])
        var same = self.message("another")
        same.key = "2"
        try await careful.enqueue(same)
        await careful.close()
        let adopting = try await self.open(folder, account: "ann", adopts: true)
        // Except the message whose key the account already has.
        #expect(adopting.pending.map(\.id.rawValue) == [1, 3])
        await adopting.close()
        let rest = try await self.open(folder, account: "")
        #expect(rest.pending.map(\.id.rawValue) == [2])
        await rest.close()
    }

    // MARK: The disk

    @Test func deliveryIsReportedWhenTheMessageIsRemovedAndNotBefore() async throws {
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        let (store, contents) = try OutboxStore.open(folder.outbox, now: Date())
        let writer = OutboxWriter(store, on: DispatchQueue(label: "test"))
        let transport = FakeTransport()
        var configuration = OutboxConfiguration()
        configuration.defaultTimeToLive = nil
        let runner = OutboxRunner(
            configuration,
            transport,
            writer,
            .virtual(clock, Date(timeIntervalSince1970: 1_000_000)),
            loaded: contents
        )
        let texts = NIOLockedValueBox<[String]>([])
        let events = runner.observers.makeEvents()
        let reader = Task {
            for await event in events { texts.withLockedValue { $0.append(EventRecord.text(event)) } }
        }
        runner.start()
        _ = try await runner.enqueue(self.message("x"))
        try await eventually("it is sent") { transport.sent == ["x"] }
        _ = try store.pragma("query_only = 1")
        try await transport.answer("x")
        try await eventually("the failure") { texts.withLockedValue { $0.last } == "storage readOnly" }
        #expect(texts.withLockedValue { $0 } == ["enqueued 1", "storage readOnly"])
        _ = try store.pragma("query_only = 0")
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(5))
        try await eventually("its delivery") { texts.withLockedValue { $0.last } == "delivered 1" }
        #expect(texts.withLockedValue { $0 } == ["enqueued 1", "storage readOnly", "delivered 1"])
        await runner.close()
        await reader.value
    }

    // MARK: Observers

    @Test func severalObserversMayFollowTheSnapshots() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport()
        let outbox = try await Outbox(at: folder.outbox, transport: transport)
        let full = Watched(0)
        let finals = await withTaskGroup(of: [Int].self) { group in
            for _ in 0..<3 {
                let snapshots = outbox.snapshots
                group.addTask {
                    var counts: [Int] = []
                    var wasFull = false
                    for await snapshot in snapshots {
                        counts.append(snapshot.count)
                        if snapshot.count == 2, !wasFull {
                            wasFull = true
                            full.withLockedValue { $0 += 1 }
                        }
                        if wasFull, snapshot.count == 0 { break }
                    }
                    return counts
                }
            }
            group.addTask {
                do {
                    try await outbox.enqueue(self.message("1"))
                    try await outbox.enqueue(self.message("2"))
                    try await full.wait("each has seen both") { $0 == 3 }
                    try await transport.answer("1")
                    try await transport.answer("2")
                } catch {
                    Issue.record(error)
                }
                return [0]
            }
            return await group.reduce(into: [Int]()) { $0.append($1.last ?? -1) }
        }
        #expect(finals == [0, 0, 0, 0])
    }

    @Test func streamsEndWithTheOutbox() async throws {
        let folder = try TemporaryFolder()
        let outbox = try await Outbox(at: folder.outbox, transport: FakeTransport())
        let (events, snapshots) = (outbox.events, outbox.snapshots)
        await outbox.close()
        await outbox.close()
        for await _ in events {}
        for await _ in snapshots {}
        for await _ in outbox.events {}
        await #expect { try await outbox.enqueue(self.message("x")) } throws: { ($0 as? OutboxError)?.code == .closed }
    }

    @Test func aReleasedOutboxClosesItsFile() async throws {
        let folder = try TemporaryFolder()
        let transport = FakeTransport()
        do {
            let outbox = try await Outbox(at: folder.outbox, transport: transport)
            try await outbox.enqueue(self.message("x"))
            try await eventually("it is sent") { transport.sent == ["x"] }
        }
        try await eventually("the file is free") {
            do throws(OutboxError) {
                let next = try await Outbox(at: folder.outbox, transport: FakeTransport())
                #expect(next.pending.map(\.id.rawValue) == [1])
                return true
            } catch {
                guard error.code == .inUse else { throw error }
                return false
            }
        }
    }

    // MARK: Damage of an open file

    /// Overwrites one of the pages that have nothing but a part of a body of these bytes, and the number of the next.
    private func overwritePage(of body: UInt8, in path: String) throws {
        let file = try #require(FileHandle(forUpdatingAtPath: path))
        defer { try? file.close() }
        let content = Array(try #require(try file.readToEnd()))
        let pageSize = Int(content[16]) << 8 | Int(content[17])
        let pages = stride(from: 0, to: content.count, by: pageSize).filter { start in
            content[(start + 4)..<(start + pageSize)].allSatisfy { $0 == body }
        }
        try #require(pages.count > 100)
        try file.seek(toOffset: UInt64(pages[pages.count / 2]))
        try file.write(contentsOf: Data(repeating: 0xFF, count: pageSize))
    }

    @Test func damageOfAnOpenFileIsAnErrorAndCostsNoOtherMessage() async throws {
        let folder = try TemporaryFolder()
        var ids: [OutboxEntry.ID] = []
        let first = try await Outbox(at: folder.outbox, transport: FakeTransport(isConnected: false))
        for number in 0..<8 as Range<UInt8> {
            let body = ByteBuffer(repeating: UInt8(ascii: "a") + number, count: 1 << 20)
            ids.append(try await first.enqueue(OutboxMessage(type: 130, body: body, topic: "\(number)")))
        }
        await first.close()

        let transport = FakeTransport(isConnected: false, FakeTransport.ok)
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: OutboxConfiguration(),
            clock: .virtual(VirtualClock(), Date())
        )
        let record = EventRecord(outbox)
        // Of the last message, which is no longer in SQLite's memory: it has been checked before all others.
        try self.overwritePage(of: UInt8(ascii: "h"), in: folder.outbox)
        transport.connectivityChanged(true)
        let others = ids.dropLast()
        try await eventually("the delivery of the others") {
            others.allSatisfy { record.all.contains("delivered \($0)") }
        }
        try await eventually("the error") { record.all.contains("storage corrupted") }
        // It stays on disk, where some of it can be read.
        #expect(outbox.pending.map(\.id) == [ids[7]])
        #expect(try await outbox.deadLetters().isEmpty)
        let next = try await outbox.enqueue(self.message("next", "8"))
        try await eventually("the delivery of another") { record.all.contains("delivered \(next)") }
        await outbox.close()
        let error = await #expect(throws: OutboxError.self) {
            _ = try await Outbox(at: folder.outbox, transport: FakeTransport())
        }
        #expect(error?.code == .corrupted)
    }

    // MARK: Removals that failed

    /// Makes the disk refuse to remove messages, or accept it again.
    private func refuseRemovals(_ isRefused: Bool, in folder: TemporaryFolder) throws {
        let database = try DatabaseQueue(path: folder.outbox)
        try database.write { db in
            try db.execute(
                sql: isRefused
                    ? "CREATE TRIGGER stuck BEFORE DELETE ON message BEGIN SELECT RAISE(ABORT, 'stuck'); END"
                    : "DROP TRIGGER stuck"
            )
        }
        try database.close()
    }

    enum Removal: CaseIterable { case withdrawal, burial, expiry }

    /// - Parameter isEqual: Whether the second message is equal to the first, as where an app enqueues it again to be
    ///   sure.
    @Test(arguments: [true, false], Removal.allCases)
    func messageEnqueuedWhileTheRemovalOfOneWithItsKeyIsPendingIsStored(
        isEqual: Bool,
        removal: Removal
    ) async throws {
        let isBuried = removal == .burial
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        var configuration = OutboxConfiguration()
        if isBuried { configuration.verdict = { _, _ in .deadLetter } }
        let transport = FakeTransport(isConnected: isBuried) { _ in FakeTransport.refusal(.unknown) }
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: configuration,
            clock: .virtual(clock, Date())
        )
        let record = EventRecord(outbox)
        try self.refuseRemovals(true, in: folder)
        var first = self.message("hello", timeToLive: removal == .expiry ? .seconds(60) : nil)
        first.key = "k"
        let id = try await outbox.enqueue(first)
        switch removal {
        case .withdrawal: #expect(outbox.withdraw(id))
        case .burial: break
        case .expiry:
            try await clock.waitForSleepers()
            clock.advance(by: .seconds(61))
        }
        try await eventually("the failure") { record.all.contains("storage storageFailed") }
        #expect(outbox.pending == [])
        try self.refuseRemovals(false, in: folder)
        transport.connectivityChanged(false)
        try await eventually("the loss of the connection") { !outbox.snapshot.isConnected }

        var second = self.message(isEqual ? "hello" : "other")
        second.key = "k"
        let next = try await outbox.enqueue(second)
        #expect(next != id)
        #expect(outbox.pending.map(\.id) == [next])
        // The removal that failed is retried.
        try await clock.waitForSleepers()
        clock.advance(by: .seconds(5))
        let success =
            switch removal {
            case .withdrawal: "withdrawn \(id)"
            case .burial: "dead \(id) refused"
            case .expiry: "expired \(id)"
            }
        try await eventually("its success") { record.all.contains(success) }
        #expect(try await outbox.deadLetters().map(\.id) == (isBuried ? [id] : []))
        await outbox.close()
        let other = try await Outbox(at: folder.outbox, transport: FakeTransport(isConnected: false))
        #expect(other.pending.map(\.id) == [next])
    }

    /// Its row would otherwise be taken for a message that waits, be removed later, and with it the only copy.
    @Test(arguments: [true, false])
    func deadLetterThatIsResentWhileTheRemovalOfOneWithItsKeyIsPendingIsStored(isEqual: Bool) async throws {
        let folder = try TemporaryFolder()
        let clock = VirtualClock()
        var configuration = OutboxConfiguration()
        configuration.verdict = { _, _ in .deadLetter }
        let transport = FakeTransport { _ in FakeTransport.refusal(.unknown) }
        let outbox = try await Outbox(
            at: folder.outbox,
            transport: transport,
            configuration: configuration,
            clock: .virtual(clock, Date())
        )
        let record = EventRecord(outbox)
        var first = self.message("hello")
        first.key = "k"
        let letter = try await outbox.enqueue(first)
        try await eventually("the dead letter") { record.all.contains("dead \(letter) refused") }
        transport.connectivityChanged(false)
        try await eventually("the loss of the connection") { !outbox.snapshot.isConnected }
        try self.refuseRemovals(true, in: folder)
        var second = self.message(isEqual ? "hello" : "other")
        second.key = "k"
        let id = try await outbox.enqueue(second)
        #expect(outbox.withdraw(id))
        try await eventually("the failure") { record.all.contains("storage storageFailed") }
        try self.refuseRemovals(false, in: folder)

        let resent = try #require(try await outbox.resend(deadLetter: letter))
        #expect(resent != id)
        #expect(outbox.pending.map(\.id) == [resent])
        #expect(try await outbox.deadLetters().isEmpty)
        try await eventually("the removal") {
            clock.advance(by: .seconds(1))
            return record.all.contains("withdrawn \(id)")
        }
        await outbox.close()
        let other = try await Outbox(at: folder.outbox, transport: FakeTransport(isConnected: false))
        #expect(other.pending.map(\.id) == [resent])
    }
}

extension OutboxClock {
    static func virtual(_ clock: VirtualClock, _ start: Date) -> OutboxClock {
        OutboxClock(
            now: {
                let (seconds, attoseconds) = clock.now.offset.components
                return OutboxMachine.Moment(
                    date: start.addingTimeInterval(Double(seconds) + Double(attoseconds) / 1e18),
                    uptime: clock.deadline
                )
            },
            sleep: { try await clock.sleep(for: $0) }
        )
    }
}
#endif
