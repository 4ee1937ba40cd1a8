// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SocketClientTests {
    @Test func callIsAnsweredWithItsOwnPayload() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let response = try await client.data(for: SocketRequest(type: 101, body: "hello"))
        #expect(response.string == "hello")
        #expect(response.type == 101)
        #expect(response.serial == 50)
        #expect(response.status == .ok)
        #expect(response.endpoint == server.endpoint)
    }

    @Test func tenThousandCallsInFlightAnsweredInShuffledOrderEachGetTheirOwn() async throws {
        let count = 10_000
        let server = try await MockServer(.echo.held(until: count, release: .shuffled))
        let client = SocketClient.connecting(to: server.endpoint)
        let wrong = NIOLockedValueBox(0)
        let completed = NIOLockedValueBox(0)
        try await withDeadline("10,000 answers") {
            await withCheckedContinuation { continuation in
                for number in 0..<count {
                    let body = "call \(number)"
                    client.dispatch(SocketRequest(type: 101, body: body, timeout: patience)) { result in
                        if (try? result.get().string) != body { wrong.withLockedValue { $0 += 1 } }
                        let number = completed.withLockedValue { completed in
                            completed += 1
                            return completed
                        }
                        if number == count { continuation.resume() }
                    }
                }
            }
        }
        #expect(wrong.withLockedValue { $0 } == 0)
        #expect(client.statistics == ClientStatistics())
    }

    @Test(arguments: [0, 1, 511, 512, 513, 65_535, 65_536, 65_537, 3 << 20])
    func bodiesOfAllSizesComeBackWhole(size: Int) async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        var generator = SeededGenerator(seed: UInt64(size))
        let body = (0..<size).map { _ in UInt8.random(in: 0...255, using: &generator) }
        let task = client.dataTask(with: SocketRequest(type: 101, body: body))
        #expect(task.countOfBytesExpectedToSend == size)
        task.resume()
        try await eventually("the answer") { task.state == .completed }
        #expect(task.error?.description == nil)
        #expect(task.response?.body == ByteBuffer(bytes: body))
        #expect(task.countOfBytesSent == size)
    }

    @Test func errorStatusIsAnErrorWithTheAnswersBody() async throws {
        let server = try await MockServer(.respond { .answer($0.body, status: Status(rawValue: $0.type)) })
        let client = SocketClient.connecting(to: server.endpoint)
        for (status, name, notExecuted) in [
            (300, "serverLostConnection", false), (301, "illegalLength", false), (302, "lostPacket", false),
            (303, "illegalFormat", false), (304, "notModified", false), (401, "undefinedType", true),
            (402, "protobufFailed", false), (403, "database", false), (404, "unknown", false),
            (405, "noPermission", false), (408, "deadlineExceeded", false), (409, "cancelledByServer", false),
            (456, "emptyProtobuf", false), (503, "overloaded", true), (504, "draining", true),
            (201, "201", false), (418, "418", false), (70_000, "70000", false),
        ] as [(UInt32, String, Bool)] {
            let error = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: status, body: "why"))
            }
            #expect(error.code.description == name)
            #expect(error.code == SocketError.Code(Status(rawValue: status)))
            #expect(error.delivery == .answered)
            #expect(error.notExecuted == notExecuted)
            #expect(error.endpoint == server.endpoint)
            #expect(error.serial != nil)
            #expect(error.body.map { String(buffer: $0) } == "why")
            #expect(error.message.contains("\(server.endpoint)"))
        }
    }

    @Test func partOfAStreamIsAnErrorAndCancelsTheCall() async throws {
        let server = try await MockServer(.answer("part", status: .partial).twice().then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101, body: "x"))
        }
        #expect(error.code == .server(.partial))
        #expect(try await server.received(1, ofType: FrameType.cancel)[0].serial == 50)
        try await eventually("the rest is late") { client.statistics.lateResponses == 2 }
    }

    @Test func timeoutNotifiesTheServerAndTheLateAnswerIsCountedAndDropped() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.twice().late())
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 102))
        let error = try await client.errorOfUnansweredCall(SocketRequest(type: 101, body: "x"))
        #expect(error.code == .timeout)
        #expect(error.delivery == .sentUnknown)
        #expect(!error.notExecuted)
        #expect(error.serial == 51)
        #expect(error.message.contains("\(server.endpoint)"))
        #expect(try await client.data(for: SocketRequest(type: 101, body: "next")).string == "next")
        try await eventually("the late answer") { client.statistics.lateResponses == 1 }
        #expect(client.statistics.duplicateResponses == 1)
    }

    @Test func cancelNotifiesTheServerAndDoesNotAffectTheConnection() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let outcome = Watched<[Result<SocketResponse, SocketError>]>([])
        let task = client.dataTask(with: SocketRequest(type: 101)) { result in
            outcome.withLockedValue { $0.append(result) }
        }
        #expect(task.state == .suspended)
        task.resume()
        try await server.received(1, ofType: 101)
        task.cancel()
        #expect(task.state == .canceling || task.state == .completed)
        task.cancel()
        task.resume()
        #expect(try await server.received(1, ofType: FrameType.cancel)[0].serial == 50)
        _ = try await client.data(for: SocketRequest(type: 102))
        try await outcome.wait("completion") { !$0.isEmpty }
        #expect(task.state == .completed)
        #expect(task.error?.code == .cancelled)
        #expect(task.error?.delivery == .sentUnknown)
        #expect(outcome.withLockedValue { $0.count } == 1)
    }

    @Test func cancellingTheSwiftTaskCancelsTheCall() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let call = Task { try await client.data(for: SocketRequest(type: 101)) }
        try await server.received(1, ofType: 101)
        call.cancel()
        let error = await #expect(throws: SocketError.self) { try await call.value }
        #expect(error?.code == .cancelled)
        try await server.received(1, ofType: FrameType.cancel)
        let never = Task {
            while !Task.isCancelled { await Task.yield() }
            return try await client.data(for: SocketRequest(type: 101))
        }
        never.cancel()
        let early = await #expect(throws: SocketError.self) { try await never.value }
        #expect(early?.code == .cancelled)
        #expect(early?.delivery == .notSent)
    }

    @Test func cancelBeforeResumeCompletesOnceAndNothingIsSent() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint)
        let count = Watched(0)
        let task = client.dataTask(with: SocketRequest(type: 101)) { _ in count.withLockedValue { $0 += 1 } }
        task.cancel()
        task.resume()
        try await count.wait("completion") { $0 == 1 }
        #expect(task.error?.code == .cancelled)
        #expect(task.error?.notExecuted == true)
        _ = try await client.data(for: SocketRequest(type: 102))
        #expect(server.received.map(\.type) == [102])
        #expect(count.current == 1)
    }

    @Test func dispatchedTasksAreCancelledByIdentifierOrAllTogether() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let (results, completed) = AsyncStream.makeStream(of: (Int, SocketError.Code?).self)
        var identifiers: [Int] = []
        for number in 0..<5 {
            identifiers.append(
                client.dispatch(SocketRequest(type: 101)) { result in
                    if case .failure(let error) = result { completed.yield((number, error.code)) }
                }
            )
        }
        #expect(Set(identifiers).count == 5)
        client.cancelTask(withIdentifier: identifiers[3])
        client.cancelTask(withIdentifier: identifiers[3])
        client.cancelTask(withIdentifier: 999)
        #expect(try await first(of: results, "one completion").0 == 3)
        client.cancelAllTasks()
        var rest: Set<Int> = []
        for _ in 0..<4 { rest.insert(try await first(of: results, "the others").0) }
        #expect(rest == [0, 1, 2, 4])
    }

    @Test func checksumMismatchFailsThatCallAlone() async throws {
        let server = try await MockServer(.echo)
        server.on(102, .echo.corrupted())
        let client = SocketClient.connecting(to: server.endpoint)
        async let before = client.data(for: SocketRequest(type: 101, body: "a"))
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 102, body: "b"))
        }
        #expect(error.code == .checksumMismatch)
        #expect(error.delivery == .sentUnknown)
        #expect(try await before.string == "a")
        #expect(try await client.data(for: SocketRequest(type: 101, body: "c")).string == "c")
        #expect(client.statistics.checksumFailures == 1)
    }

    @Test func unknownResponsesAreCountedAndDropped() async throws {
        let server = try await MockServer(
            .glued(
                .echo.withSerial(4_000_000),
                .echo.withSerial(7),
                .frame(Frame(type: 9, serial: 50)),
                .echo.twice()
            )
        )
        let client = SocketClient.connecting(to: server.endpoint)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
        try await eventually("the duplicate") { client.statistics.duplicateResponses == 1 }
        #expect(client.statistics.unknownResponses == 2)
    }

    @Test func frameOverTheLimitEndsTheConnectionAndTheNextOneWorks() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .echo.announcing(length: .max))
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .protocolViolation)
        #expect(error.delivery == .sentUnknown)
        _ = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        _ = try await first(of: events, "a new connection") { if case .connected = $0 { true } else { false } }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
    }

    @Test func requestThatCannotBeSentFailsAndLosesNothingElse() async throws {
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.maximumPayloadLength = 100 }
        for (request, code) in [
            (SocketRequest(type: 101, body: [UInt8](repeating: 0, count: 101)), .frameTooLarge),
            (SocketRequest(type: 15), .invalidArgument),
            (SocketRequest(type: 0x2000_0000), .invalidArgument),
            (SocketRequest(type: 101, timeout: .seconds(-1)), .timeout),
        ] as [(SocketRequest, SocketError.Code)] {
            let error = try await socketError { () throws(SocketError) in _ = try await client.data(for: request) }
            #expect(error.code == code)
        }
        let body = [UInt8](repeating: 1, count: 100)
        #expect(try await client.data(for: SocketRequest(type: 101, body: body)).body == ByteBuffer(bytes: body))
    }

    @Test func moreThanMaximumInFlightFailsAtOnce() async throws {
        let server = try await MockServer(.drop)
        let client = SocketClient.connecting(to: server.endpoint) { $0.maximumInFlight = 3 }
        // Calls that wait for the connection would keep waiting.
        try await client.connected()
        for _ in 0..<3 { client.dispatch(SocketRequest(type: 101)) }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .tooManyInFlight)
        #expect(error.notExecuted)
    }

    // MARK: Pushes

    @Test func pushesGoToEveryoneWhoWantsThemAndTheRestToTheDelegate() async throws {
        final class Delegate: SocketClientDelegate {
            let pushes = NIOLockedValueBox<[UInt32]>([])
            func client(_ client: SocketClient, didReceive push: SocketPush) {
                self.pushes.withLockedValue { $0.append(push.type) }
            }
        }
        let server = try await MockServer(
            .glued(.push(2_001, "push 2001"), .push(2_002, "push 2002"), .push(2_001, "push 2001"), .echo)
        )
        let client = SocketClient.connecting(to: server.endpoint)
        let delegate = Delegate()
        client.delegate = delegate
        let one = client.pushes(ofType: 2_001)
        let other = client.pushes(ofType: 2_001)
        _ = try await client.data(for: SocketRequest(type: 101))
        for stream in [one, other] {
            for _ in 0..<2 {
                let push = try await first(of: stream, "a push")
                #expect(push.type == 2_001)
                #expect(push.string == "push 2001")
            }
        }
        try await eventually("the unclaimed push") { delegate.pushes.withLockedValue { $0 } == [2_002] }
        let all = client.pushes()
        _ = try await client.data(for: SocketRequest(type: 101))
        for type in [2_001, 2_002, 2_001] as [UInt32] {
            #expect(try await first(of: all, "a push").type == type)
        }
        #expect(delegate.pushes.withLockedValue { $0 } == [2_002])
        #expect(client.statistics.pushes == 6)
    }

    @Test func slowReaderLosesTheOldestPushesAndTheyAreCounted() async throws {
        let server = try await MockServer(.glued((0..<10).map { .push(2_001, "\($0)") }).then(.echo))
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes(ofType: 2_001, buffering: .dropOldest(3))
        _ = try await client.data(for: SocketRequest(type: 101))
        for number in 7..<10 { #expect(try await first(of: pushes, "a push").string == "\(number)") }
        #expect(client.statistics.droppedPushes == 7)
    }

    // MARK: Heartbeats

    @Test func serversPingIsAnsweredWithItsSerial() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(
            .glued(.ping(serial: 5), .ping(serial: 49), .frame(Frame(type: FrameType.heartbeat, serial: 0)))
        )
        let client = SocketClient.connecting(to: server.endpoint)
        let answers = try await server.received(2)
        #expect(answers.map(\.frame) == [5, 49].map { Frame(type: FrameType.heartbeat, serial: $0) })
        _ = try await client.data(for: SocketRequest(type: 101))
        #expect(server.received.map(\.type) == [0, 0, 101])
    }

    @Test func clientPingsAnIdleConnectionAndClosesOneThatDoesNotAnswer() async throws {
        let server = try await MockServer()
        // The first connection falls silent without closing.
        server.on(FrameType.heartbeat, .respond { $0.connection == 0 ? .drop : .echo })
        let client = SocketClient(
            configuration: {
                var configuration = SocketClient.Configuration(servers: [server.endpoint])
                configuration.socket.backoff.base = .milliseconds(1)
                configuration.socket.heartbeat = HeartbeatPolicy(
                    interval: .milliseconds(20),
                    replyTimeout: .milliseconds(200),
                    misses: 1
                )
                return configuration
            }()
        )
        let events = client.events
        client.connect()
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = event else { return }
        #expect(error.code == .connectionLost)
        #expect(error.message.contains("heartbeat"))
        #expect(try await server.received(1, ofType: FrameType.heartbeat)[0].connection == 0)
        try await server.received(1, ofType: FrameType.heartbeat, onConnection: 1)
    }

    // MARK: Servers

    @Test func refusedConnectionNamesHostAndPortAndNothingWasSent() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let client = SocketClient.connecting(to: endpoint) { $0.socket.backoff.base = .seconds(60) }
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        // The attempt may have failed before the call was made.
        let found = error.code == .notConnected ? (error.underlying as? SocketError)?.code : error.code
        #expect(found == .connectionRefused)
        #expect(error.message.contains("\(endpoint)"))
        #expect(error.delivery == .notSent)
        #expect(error.notExecuted)
        let next = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        // Between attempts a call fails immediately, with the reason why there is no connection.
        #expect(next.code == .notConnected || next.code == .connectionRefused)
        #expect(next.message.contains("\(endpoint)"))
    }

    @Test func unknownHostAndImpossiblePortAreDistinguished() async throws {
        for (endpoint, code) in [
            (Endpoint(host: "no-such-host.invalid", port: 7_000), .hostNotFound),
            (Endpoint(host: "127.0.0.1", port: 70_000), .invalidArgument),
            (Endpoint(host: "", port: 7_000), .invalidArgument),
        ] as [(Endpoint, SocketError.Code)] {
            let client = SocketClient.connecting(to: endpoint)
            let error = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: 101, timeout: .seconds(60)))
            }
            // The attempt may have failed before the call was made.
            let found = error.code == .notConnected ? (error.underlying as? SocketError)?.code : error.code
            #expect(found == code, "\(error)")
        }
    }

    @Test func callWithoutConnectFailsAtOnce() async throws {
        let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 1)]))
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .notConnected)
    }

    @Test func firstServerRefusesAndTheSecondAnswers() async throws {
        let dead = try await MockServer.closedEndpoint()
        let server = try await MockServer(.echo)
        let client = SocketClient.connecting(to: dead, server.endpoint)
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == server.endpoint)
    }

    @Test func serverThatDiesInMidCallFailsTheCallAndTheNextGoesToAnother() async throws {
        let dying = try await MockServer(.close)
        let other = try await MockServer(.echo)
        let (client, events) = SocketClient.connectingWithEvents(to: dying.endpoint, other.endpoint)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .connectionLost)
        #expect(error.delivery == .sentUnknown)
        #expect(error.serial == 50)
        _ = try await first(of: events, "the second server") {
            if case .connected(other.endpoint) = $0 { true } else { false }
        }
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == other.endpoint)
    }

    @Test func switchServerMovesToTheOtherAndTheOldOneStillAnswers() async throws {
        let clock = VirtualClock()
        let servers = [try await MockServer(.echo, clock: clock), try await MockServer(.echo)]
        servers[0].on(102, .echo.delayed(by: .seconds(1)))
        let (client, events) = SocketClient.connectingWithEvents(to: servers[0].endpoint, servers[1].endpoint)
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[0].endpoint)
        let slow = client.dataTask(with: SocketRequest(type: 102))
        slow.resume()
        try await clock.waitForSleepers()
        client.switchServer()
        _ = try await first(of: events, "the switch") { if case .switched = $0 { true } else { false } }
        #expect(try await client.data(for: SocketRequest(type: 103)).endpoint == servers[1].endpoint)
        #expect(slow.state == .running)
        clock.advance(by: .seconds(1))
        try await eventually("the old server's answer") { slow.state == .completed }
        #expect(slow.response?.endpoint == servers[0].endpoint)
        try await servers[0].ended(connection: 0)
        #expect(client.history.description.contains("left \(servers[0].endpoint)"), "\(client.history)")
        client.switchServer(to: servers[0].endpoint)
        _ = try await first(of: events, "the way back") {
            if case .switched(_, to: servers[0].endpoint) = $0 { true } else { false }
        }
        #expect(try await client.data(for: SocketRequest(type: 101)).endpoint == servers[0].endpoint)
    }

    @Test func disconnectCompletesWhatIsInFlightAndConnectWorksAgain() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .drop)
        let client = SocketClient.connecting(to: server.endpoint)
        let task = client.dataTask(with: SocketRequest(type: 101))
        task.resume()
        try await server.received(1)
        await client.close()
        #expect(client.state.description == "closed")
        try await eventually("completion") { task.state == .completed }
        #expect(task.error?.code == .cancelled)
        client.connect()
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).string == "x")
    }

    @Test func cancelFramesAreSentBeforeClosing() async throws {
        let server = try await MockServer(.drop)
        server.on(102, .echo)
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 102))
        for _ in 0..<100 { client.dispatch(SocketRequest(type: 101)) }
        client.cancelAllTasks()
        await client.close()
        try await server.ended(connection: 0)
        func serials(ofType type: UInt32) -> Set<UInt32> {
            Set(server.received.filter { $0.type == type }.map(\.serial))
        }
        #expect(serials(ofType: 101) == serials(ofType: FrameType.cancel))
    }

    // MARK: Lifetime

    @Test func releasedClientCompletesWhatIsInFlightAndGoes() async throws {
        let server = try await MockServer(.drop)
        let tasks: [SocketTask]
        weak var engine: CallEngine?
        do {
            let client = SocketClient.connecting(to: server.endpoint)
            engine = client.host.engine
            tasks = (0..<10).map { _ in client.dataTask(with: SocketRequest(type: 101)) }
            for task in tasks.dropLast() { task.resume() }
            try await server.received(9)
        }
        try await eventually("completions") { tasks.dropLast().allSatisfy { $0.state == .completed } }
        for task in tasks.dropLast() { #expect(task.error?.code == .cancelled) }
        try await server.ended(connection: 0)
        // The tenth was never resumed; resuming it now completes it too.
        tasks[9].resume()
        try await eventually("the last completion") { tasks[9].state == .completed }
        #expect(tasks[9].error?.code == .cancelled)
        #expect(engine != nil)
    }

    @Test func nothingIsLeftOfAReleasedClientWithoutTasks() async throws {
        let server = try await MockServer(.echo)
        let box = WeakBox()
        do {
            let client = SocketClient.connecting(to: server.endpoint)
            box.set(client.host)
            _ = client.dataTask(with: SocketRequest(type: 101)) { _ in }
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        try await eventually("the end of its owners") { box.isEmpty }
    }

    // MARK: Many threads

    @Test func everyTaskCompletesExactlyOnceUnderEightThreads() async throws {
        let echoes = MockServer.Reaction.oneOf(.echo, .echo, .echo, .echo)
        let server = try await MockServer(
            .oneOf(
                .echo.late(),
                .echo.twice(),
                .echo.held(until: 7, release: .shuffled),
                .drop,
                .oneOf(.oneOf(.close, echoes, echoes, echoes), echoes, echoes, echoes, echoes, echoes),
                echoes,
                echoes,
                echoes,
                echoes,
                echoes
            )
        )
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.backoff.base = .milliseconds(1) }
        let perThread = 1_000
        let completions = Watched([Int](repeating: 0, count: 8 * perThread))
        let wrong = NIOLockedValueBox(0)
        for thread in 0..<8 {
            Thread.run {
                var generator = SeededGenerator(seed: UInt64(1_000 + thread))
                for number in 0..<perThread {
                    let index = thread * perThread + number
                    let body = "\(index)"
                    let timeout = Duration.milliseconds(Int.random(in: 1...200, using: &generator))
                    let task = client.dataTask(with: SocketRequest(type: 101, body: body, timeout: timeout)) { result in
                        if case .success(let response) = result, response.string != body {
                            wrong.withLockedValue { $0 += 1 }
                        }
                        completions.withLockedValue { $0[index] += 1 }
                    }
                    switch Int.random(in: 0..<10, using: &generator) {
                    case 0: task.cancel()
                    case 1:
                        task.resume()
                        task.cancel()
                    case 2:
                        task.resume()
                        Thread.run { task.cancel() }
                    case 3:
                        Thread.run { task.resume() }
                        task.cancel()
                    case 4 where number % 100 == 0:
                        task.resume()
                        client.switchServer()
                    case 5 where number % 250 == 0:
                        task.resume()
                        client.disconnect()
                        client.connect()
                    default: task.resume()
                    }
                    _ = (task.state, task.response, task.error, task.countOfBytesSent)
                }
            }
        }
        try await completions.wait("every completion") { $0.allSatisfy { $0 >= 1 } }
        await client.close()
        #expect(completions.withLockedValue { $0.allSatisfy { $0 == 1 } })
        #expect(wrong.withLockedValue { $0 } == 0)
    }
}

/// A real thread, for tests that require one.
private enum Thread {
    static func run(_ body: @escaping @Sendable () -> Void) {
        DispatchQueue.global().async(execute: body)
    }
}

private final class WeakBox: Sendable {
    private struct Reference {
        weak var host: ClientHost?
        weak var engine: CallEngine?
    }

    private let reference = NIOLockedValueBox(Reference())

    func set(_ host: ClientHost) {
        self.reference.withLockedValue { $0 = Reference(host: host, engine: host.engine) }
    }

    var isEmpty: Bool { self.reference.withLockedValue { $0.host == nil && $0.engine == nil } }
}
