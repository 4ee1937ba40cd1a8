// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The life of a link of lines: the state that survives a connection, its heartbeats, and its limits.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LineLinkLifeTests {
    // MARK: Waiting

    @Test func linesSentWhileNothingIsReadyAreSentInOrderAndOnce() async throws {
        let server = try await LineServer()
        try await server.refuseConnections()
        let link = LineLinks.link(to: server.endpoint)
        let outcomes = Watched<[Bool]>([])
        link.send("before connect()", completion: nil)
        link.connect()
        for number in 0..<100 {
            link.send("\(number)") { result in
                outcomes.withLockedValue { $0.append((try? result.get()) != nil) }
            }
        }
        let cancelled = Task { try await link.send("never") }
        cancelled.cancel()
        let error = await #expect(throws: SocketError.self) { try await cancelled.value }
        #expect(error?.code == .cancelled && error?.delivery == .notSent)
        try await server.acceptConnections()
        try await outcomes.wait("all outcomes") { $0.count == 100 }
        #expect(outcomes.current.allSatisfy { $0 })
        try await link.send("last")
        let texts = try await server.received(102).map(\.text)
        #expect(texts == ["before connect()"] + (0..<100).map { "\($0)" } + ["last"])
        link.disconnect()
    }

    @Test func lineThatHasBegunWhenTheLinkIsLostIsNotSentAgain() async throws {
        let server = try await LineServer()
        server.onOpen(number: 0, .stopReading)
        let link = LineLinks.link(to: server.endpoint)
        let events = link.events
        link.connect()
        try await LineLinks.opening(events)
        let outcomes = Watched<[String]>([])
        func send(_ name: String, _ line: ByteBuffer) {
            link.send(line) { result in
                let text: String
                do throws(SocketError) {
                    try result.get()
                    text = "\(name): sent"
                } catch {
                    text = "\(name): \(error.code) \(error.delivery)"
                }
                outcomes.withLockedValue { $0.append(text) }
            }
        }
        // More than the system's buffers hold, which may grow to 32 MiB and more.
        send("begun", ByteBuffer(repeating: 0x78, count: 56 << 20))
        send("waiting", ByteBuffer(string: "whole"))
        // Earlier submissions have begun when a job runs on the link's thread.
        await Task(executorPreference: link.executor) {}.value
        try await server.connection(0).perform(.reset)
        try await outcomes.wait("both outcomes") { $0.count == 2 }
        #expect(outcomes.current == ["begun: connectionLost sentUnknown", "waiting: sent"])
        #expect(try await server.received(1, onConnection: 1).map(\.text) == ["whole"])
        #expect(server.received.count == 1)
        link.disconnect()
    }

    @Test func linesThatWaitAreBoundedWhileTheServerIsDead() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) {
            $0.maximumWaitingLines = 100
            $0.socket.maximumQueuedBytes = 1_000
        }
        let events = link.events
        link.connect()
        try await LineLinks.opening(events)
        // A connection that waits to be accepted would be lost with the port.
        let connection = try await server.connection(0)
        try await server.refuseConnections()
        await connection.perform(.reset)
        _ = try await LineLinks.closure(events)
        let outcomes = Watched<[SocketError.Code]>([])
        for number in 0..<500 {
            link.send("\(number % 10)") { result in
                if case .failure(let error) = result { outcomes.withLockedValue { $0.append(error.code) } }
            }
        }
        try await outcomes.wait("the refused") { $0.count == 400 }
        #expect(Set(outcomes.current) == [.queueFull])
        // An empty queue accepts a line of any size; after others it has to fit.
        let error = await #expect(throws: SocketError.self) {
            try await link.send(String(repeating: "x", count: 1_000))
        }
        #expect(error?.code == .queueFull)
        try await server.acceptConnections()
        #expect(try await server.received(100).map(\.text) == (0..<100).map { "\($0 % 10)" })
        link.disconnect()
    }

    @Test func linesThatWaitFailWhenTheUserCloses() async throws {
        let server = try await LineServer()
        try await server.refuseConnections()
        let link = LineLinks.link(to: server.endpoint)
        let outcomes = Watched<[SocketError?]>([])
        link.connect()
        for number in 0..<20 {
            link.send("\(number)") { result in
                outcomes.withLockedValue { outcomes in
                    if case .failure(let error) = result { outcomes.append(error) } else { outcomes.append(nil) }
                }
            }
        }
        link.disconnect()
        try await outcomes.wait("all outcomes") { $0.count == 20 }
        #expect(outcomes.current.allSatisfy { $0?.code == .cancelled && $0?.delivery == .notSent })
        let error = await #expect(throws: SocketError.self) { try await link.send("closed") }
        #expect(error?.code == .notConnected)
    }

    // MARK: Ends

    @Test func lineThatIsCutOffIsDroppedAndNotJoinedToTheNext() async throws {
        let server = try await LineServer()
        server.onOpen(number: 0, .glued(.line("first"), .line("never whole").cut(after: 5)).then(.disconnect))
        server.onOpen(number: 1, .line("second").cut(after: 3).then(.reset))
        server.onOpen(number: 2, .line("third"))
        let link = LineLinks.link(to: server.endpoint)
        link.connect()
        #expect(try await link.lines.next(2) == ["first", "third"])
        #expect(server.acceptedCount == 3)
        link.disconnect()
    }

    @Test func lineThatIsTooLongEndsTheConnectionAndNothingOfItIsPassedOn() async throws {
        let server = try await LineServer()
        let limit = 1_048_576
        let fits = String(repeating: "x", count: limit)
        server.onOpen(number: 0, .glued(.line("before"), .line(fits), .line(fits + "y"), .line("behind")))
        server.onOpen(number: 1, .line("after"))
        let link = LineLinks.link(to: server.endpoint)
        let events = link.events
        link.connect()
        #expect(try await link.lines.next(3).map(\.count) == [6, limit, 5])
        let error = try await LineLinks.closure(events)
        #expect(error?.code == .frameTooLarge)
        #expect(error?.endpoint == server.endpoint)
        #expect(error?.message.contains("1048576 bytes") == true)
        link.disconnect()
    }

    @Test func linesThatTheServerHasSentBeforeItsEndAreAllReadHoweverLate() async throws {
        let server = try await LineServer()
        // More than the inbox takes, but less than the system's buffer, since the end is only seen after all bytes.
        let count = 8_000
        let all = (0..<count).map { "\($0)\n" }.joined()
        server.onOpen(number: 0, .raw(all.utf8).then(.raw("cut off".utf8)).then(.disconnect))
        server.onOpen(number: 1, .line("after"))
        let link = LineLinks.link(to: server.endpoint)
        let (openings, closings) = (link.events, link.events)
        link.connect()
        // Reading begins when the next connection is ready.
        let error = try await LineLinks.closure(closings)
        #expect(error?.code == .connectionLost)
        for _ in 0..<2 { try await LineLinks.opening(openings) }
        let lines = try await link.lines.next(count + 1)
        #expect(lines == (0..<count).map { "\($0)" } + ["after"])
        // Reading continues.
        try await server.connection(1).perform(.line("more"))
        #expect(try await link.lines.next(1) == ["more"])
        link.disconnect()
    }

    @Test func lossReconnectsAlsoWhereConnectWasCalledTwice() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint)
        let events = link.events
        link.connect()
        link.connect()
        try await LineLinks.opening(events)
        // On an open connection it has no effect.
        link.connect()
        try await server.connection(0).perform(.disconnect)
        let error = try await LineLinks.closure(events)
        #expect(error?.code == .connectionLost)
        try await LineLinks.opening(events)
        try await server.connection(1)
        // After the user's close it stays closed, and after the user's `connect()` it reconnects again.
        link.disconnect()
        #expect(try await LineLinks.closure(events) == nil)
        await link.waitUntilClosed()
        try await server.ended(connection: 1)
        link.connect()
        try await LineLinks.opening(events)
        try await server.connection(2).perform(.reset)
        #expect(try await LineLinks.closure(events) != nil)
        try await LineLinks.opening(events)
        try await server.connection(3)
        #expect(server.acceptedCount == 4)
        link.disconnect()
    }

    @Test func answerThatIsUnderWayIsStillReadBehindDisconnect() async throws {
        let server = try await LineServer(.echo)
        let link = LineLinks.link(to: server.endpoint)
        link.connect()
        for _ in 0..<10 {
            try await link.send("bye")
            link.disconnect()
            #expect(try await link.lines.next(1) == ["bye"])
            link.connect()
        }
        link.disconnect()
        await link.waitUntilClosed()
    }

    // MARK: Heartbeats

    @Test func heartbeatIsSentAtOnceAfterEachOpeningAndBeforeWhatWaits() async throws {
        let server = try await LineServer()
        let count = Watched(0)
        let link = LineLinks.link(to: server.endpoint) {
            $0.heartbeatLine = { "beat \(count.increment())" }
            $0.socket.heartbeat = HeartbeatPolicy(interval: .seconds(3_600))
        }
        link.send("waiting", completion: nil)
        for _ in 0..<3 { link.connect() }
        #expect(try await server.received(2).map(\.text) == ["beat 1", "waiting"])
        for number in 1...3 {
            try await server.connection(number - 1).perform(.disconnect)
            #expect(try await server.received(1, onConnection: number).map(\.text) == ["beat \(number + 1)"])
        }
        // There is one timer: nothing else has arrived.
        try await link.send("end")
        #expect(try await server.received(6).map(\.text) == ["beat 1", "waiting", "beat 2", "beat 3", "beat 4", "end"])
        link.disconnect()
    }

    @Test func heartbeatExpectsNoAnswer() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) {
            $0.heartbeatLine = { "beat" }
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(5), replyTimeout: .milliseconds(1), misses: 0)
        }
        link.connect()
        #expect(try await server.received(20).allSatisfy { $0.text == "beat" && $0.connection == 0 })
        #expect(server.acceptedCount == 1)
        link.disconnect()
    }

    @Test func serverThatAnswersNoHeartbeatIsLostWhereThatIsAskedFor() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) {
            $0.heartbeatLine = { "beat" }
            $0.heartbeatReplyTimeout = .milliseconds(50)
            $0.socket.heartbeat = HeartbeatPolicy(interval: .seconds(3_600), misses: 0)
        }
        let events = link.events
        link.connect()
        let error = try await LineLinks.closure(events)
        #expect(error?.code == .connectionLost)
        #expect(error?.message.contains("heartbeat") == true)
        try await server.received(1, onConnection: 1)
        link.disconnect()
    }

    @Test func payloadOfThePolicyIsALineToo() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(5), payload: ByteBuffer(string: "alive"))
        }
        link.connect()
        #expect(try await server.received(3).allSatisfy { $0.text == "alive" })
        link.disconnect()
    }

    @Test func heartbeatThatCannotBeSentIsSkipped() async throws {
        let server = try await LineServer()
        let calls = Watched(0)
        let link = LineLinks.link(to: server.endpoint) {
            $0.heartbeatLine = {
                let call = calls.increment()
                if call == 1 { throw Unexpected(description: "nothing to say") }
                return call == 2 ? "two\nlines" : "beat"
            }
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(5))
        }
        link.connect()
        #expect(try await server.received(1).map(\.text) == ["beat"])
        #expect(server.acceptedCount == 1)
        link.disconnect()
    }

    @Test func withoutALineThereIsNoHeartbeat() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) {
            $0.socket.heartbeat = HeartbeatPolicy(interval: .milliseconds(1), replyTimeout: .milliseconds(1), misses: 0)
        }
        link.connect()
        // Time for a heartbeat, by another clock.
        for _ in 0..<10 {
            try await server.connection(0).perform(.line("tick").delayed(by: .milliseconds(2)))
            _ = try await link.lines.next(1)
        }
        try await link.send("end")
        #expect(try await server.received(1).map(\.text) == ["end"])
        #expect(server.acceptedCount == 1)
        link.disconnect()
    }
}
