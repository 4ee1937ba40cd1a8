// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// A second language on links, on both sides, over real sockets: it covers the parts of links that clients and servers
/// of frames do not use.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct NoteLinkTests {
    /// A client that is invalidated when the body returns.
    private func withClient(
        _ endpoints: [Endpoint],
        beats: @escaping @Sendable (Duration?, NIODeadline) -> Beats? = { _, _ in nil },
        configure: (inout SocketConfiguration) -> Void = { _ in },
        _ body: (NoteClient) async throws -> Void
    ) async throws {
        let client = NoteClient(endpoints, beats: beats, configure: configure)
        defer { client.invalidate() }
        try await body(client)
    }

    /// Connects, and waits until both sides are connected.
    private func connect(_ client: NoteClient, to server: NoteServer) async throws {
        client.connect()
        try await eventually("the connection") { client.now.connected == 1 && server.now.connections == 1 }
    }

    /// Lets time pass, a second after each beat of the client.
    private func passSeconds(_ count: Int, of time: ManualTime, on server: NoteServer) async throws {
        for _ in 0..<count {
            let beats = server.now.beats
            await time.advance(by: .seconds(1))
            try await eventually("a beat") { server.now.beats > beats }
        }
    }

    private func texts(_ notes: [Note]) -> [String] { notes.filter { $0.kind == .text }.map(\.text) }

    @Test func notesGoBothWaysAndTheClientComesBack() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            client.connect()
            client.send(.text("one"), .text("two"))
            try await eventually("both answers") { self.texts(client.now.received) == ["re: one", "re: two"] }
            server.each { session, _ in session.link?.kill() }
            try await eventually("the loss") { client.now.lost.count == 1 }
            client.send(.text("three"))
            try await eventually("the answer of the next connection") {
                self.texts(client.now.received) == ["re: one", "re: two", "re: three"]
            }
            #expect(server.now.accepted == 2)
        }
        try await server.stop()
    }

    @Test func waitingNotesAreBoundedAndSentByPriority() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            for number in 1...3 { client.send(.text("\(number)")) }
            client.send(.text("4"), priority: .high)
            client.send(.text("5"))
            try await eventually("the fifth is refused") { client.now.outcomes["5"] == "refused" }
            #expect(server.now.accepted == 0)
            client.connect()
            try await eventually("all four have come") { server.now.received.map(\.text) == ["4", "1", "2", "3"] }
        }
        try await server.stop()
    }

    /// NIO empties the socket of a peer that has closed, although nothing is read.
    @Test func lastBytesOfAPeerAreNotKeptWhereThereIsNoRoom() async throws {
        let account = CountingAccount(maximum: 80 << 10, pause: .hours(1))
        let server = try await NoteServer.start(configure: { $0.link?.charge(to: account) })
        let client = try await HostileClient(to: server.endpoint)
        let header: [UInt8] = [Note.Kind.blob.rawValue, 0, 0, 16, 0, 0]
        await client.perform(.raw(header + [UInt8](repeating: 0, count: LinkChannel.longUnitBytes)))
        try await eventually("a pause in the long note") { account.bytes >= LinkChannel.longUnitBytes }
        await client.perform(.raw([UInt8](repeating: 0, count: 40 << 10)).then(.halfClose))
        try await eventually("the request to close the connection") { account.isCondemned }
        #expect(account.mostBytes <= 80 << 10)
        try await server.stop()
    }

    /// The server does not read, and then the connection is lost. The note that was being sent may have arrived.
    @Test func unsentNotesReturnToTheFrontOfTheLine() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            try await self.connect(client, to: server)
            await server.setReading(isSuspended: true)
            client.send(
                .blob(4 << 20, lane: 1),
                .blob(4 << 20, lane: 2),
                .blob(4 << 20, lane: 3),
                .blob(4 << 20, lane: 4)
            )
            try await eventually("the blobs wait") { client.now.outcomes.values.contains("queued") }
            client.send(.text("one"), .text("two"))
            try await eventually("the texts are queued after them") { client.now.outcomes["two"] == "queued" }
            server.each { session, _ in session.link?.kill() }
            try await eventually("the texts have come, in order") {
                self.texts(server.now.received) == ["one", "two"]
            }
            #expect(client.now.lost.count == 1)
            #expect(server.now.accepted == 2)
        }
        try await server.stop()
    }

    /// ``SendBufferTests`` covers the order, which here depends on the kernels' buffers.
    @Test func largeBlobsThatAreSentInPartsArriveWhole() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            try await self.connect(client, to: server)
            await server.setReading(isSuspended: true)
            client.send(.blob(4 << 20, lane: 1), .blob(100 << 10, lane: 2), .blob(4 << 20, lane: 3))
            client.send(.text("between"), priority: .high)
            await server.setReading(isSuspended: false)
            try await eventually("everything") { server.now.received.count == 4 }
            #expect(self.texts(server.now.received) == ["between"])
            for blob in [Note.blob(4 << 20, lane: 1), .blob(100 << 10, lane: 2), .blob(4 << 20, lane: 3)] {
                #expect(server.now.received.contains(blob))
            }
        }
        try await server.stop()
    }

    // MARK: Beats

    @Test func ourBeatExpectsNothingAndKeepsUsAliveForTheServer() async throws {
        let time = ManualTime()
        let server = try await NoteServer.start(time: SocketTime(time)) { _, now in
            Beats(theirSilence: .seconds(20), now: now)
        }
        try await self.withClient(
            [server.endpoint],
            beats: { _, now in Beats(ourSilence: .seconds(1), now: now) },
            configure: { $0.time = SocketTime(time) }
        ) { client in
            try await self.connect(client, to: server)
            try await self.passSeconds(60, of: time, on: server)
            #expect(server.now.accepted == 1)
            #expect(client.now.lost.isEmpty)
        }
        try await server.stop()
    }

    @Test func clientThatSaysNothingIsDeadForTheServer() async throws {
        let time = ManualTime()
        let server = try await NoteServer.start(time: SocketTime(time)) { _, now in
            Beats(theirSilence: .seconds(20), now: now)
        }
        try await self.withClient([server.endpoint], configure: { $0.time = SocketTime(time) }) { client in
            client.connect()
            for number in 1...2 {
                try await time.advance(by: .milliseconds(50), until: "connection \(number)") {
                    client.now.connected == number && server.now.accepted == number && server.now.connections == 1
                }
                await time.advance(by: .seconds(21))
                try await eventually("end \(number)") { server.now.ends.count == number }
                try await eventually("loss \(number)") { client.now.lost.count == number }
            }
            #expect(server.now.ends.allSatisfy { $0.hasPrefix("peerIsDead") })
        }
        try await server.stop()
    }

    @Test func serverThatSaysNothingIsDeadForTheClient() async throws {
        let time = ManualTime()
        let server = try await NoteServer.start(time: SocketTime(time))
        try await self.withClient(
            [server.endpoint],
            beats: { _, now in Beats(theirSilence: .seconds(20), now: now) },
            configure: { $0.time = SocketTime(time) }
        ) { client in
            try await self.connect(client, to: server)
            await time.advance(by: .seconds(21))
            try await eventually("the loss") { !client.now.lost.isEmpty }
            #expect(client.now.lost.first?.message.contains("sent no heartbeat") == true)
            try await time.advance(by: .milliseconds(50), until: "the next connection") { server.now.accepted >= 2 }
        }
        try await server.stop()
    }

    // MARK: The last word

    @Test func closingLinkReceivesUntilThePeerHasAnswered() async throws {
        let server = try await NoteServer.start(configure: { session in session.answersBye = false })
        try await self.withClient([server.endpoint]) { client in
            client.connect()
            client.send(.text("one"))
            try await eventually("the answer") { self.texts(client.now.received) == ["re: one"] }
            client.disconnect()
            try await eventually("our last word") { server.now.received.last?.kind == .bye }
            server.each { session, turn in session.link?.send(.text("still here"), in: &turn) }
            try await eventually("what comes while it closes") { self.texts(client.now.received).last == "still here" }
            #expect(server.now.connections == 1)
            server.each { session, turn in
                session.link?.close(.done, in: &turn)
                session.link?.peerAnsweredClose(in: &turn)
            }
            try await eventually("the end") { server.now.connections == 0 }
            #expect(client.now.received.last?.kind == .bye)
            #expect(client.now.lost.count == 1)
        }
        try await server.stop()
    }

    @Test func peerThatDoesNotAnswerTheLastWordIsNotWaitedForWithoutEnd() async throws {
        let time = ManualTime()
        let server = try await NoteServer.start(
            time: SocketTime(time),
            configure: { session in session.answersBye = false }
        )
        try await self.withClient([server.endpoint], configure: { $0.time = SocketTime(time) }) { client in
            try await self.connect(client, to: server)
            client.disconnect()
            try await eventually("our last word") { server.now.received.last?.kind == .bye }
            await time.advance(by: .seconds(4))
            #expect(server.now.connections == 1)
            // A second for queued bytes, and five for the answer.
            await time.advance(by: .seconds(3))
            try await eventually("the end") { server.now.connections == 0 }
        }
        try await server.stop()
    }

    @Test func serverThatDrainsIsLeftAfterItsAnswers() async throws {
        let old = try await NoteServer.start()
        let new = try await NoteServer.start()
        try await self.withClient([old.endpoint, new.endpoint]) { client in
            client.connect()
            client.send(.text("one"))
            try await eventually("the answer") { self.texts(client.now.received) == ["re: one"] }
            let (left, other) = old.now.accepted == 1 ? (old, new) : (new, old)
            left.drain()
            try await eventually("the loss") { client.now.lost.count == 1 }
            #expect(client.now.lost.first?.message.contains("says bye") == true)
            client.send(.text("two"))
            try await eventually("the next answer") { self.texts(client.now.received).last == "re: two" }
            try await eventually("the old one is empty") { left.now.connections + other.now.connections == 1 }
        }
        try await old.stop()
        try await new.stop()
    }

    /// Links of this language may not overlap: the old one is closed, including the answer, before the next is opened.
    @Test func linkThatIsLeftIsGoneBeforeTheNextIsMade() async throws {
        let one = try await NoteServer.start()
        let other = try await NoteServer.start()
        try await self.withClient([one.endpoint, other.endpoint]) { client in
            client.connect()
            for round in 1...5 {
                // An earlier request would only start another attempt.
                try await eventually("connection \(round)") { client.now.connected == round }
                client.send(.text("\(round)"))
                client.switchServer()
            }
            try await eventually("the last connection") { client.now.connected == 6 }
            try await eventually("every note has arrived") {
                Set(self.texts(one.now.received + other.now.received)) == ["1", "2", "3", "4", "5"]
            }
            try await eventually("every last word") {
                (one.now.received + other.now.received).filter { $0.kind == .bye }.count == 5
            }
            #expect(client.now.overlaps == 0)
            try await eventually("every loss is reported") { client.now.lost.count == 5 }
        }
        try await one.stop()
        try await other.stop()
    }

    // MARK: Ends

    @Test func endSaysWhatFollowsFromIt() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint], configure: { $0.backoff = Backoff(base: .seconds(100)) }) {
            client in
            try await self.connect(client, to: server)
            server.each { session, turn in
                session.link?.send(Note(kind: .bye, body: ByteBuffer(string: "at once")), in: &turn)
            }
            // Otherwise it would take the back-off's 100 s.
            try await eventually("the second connection", within: .seconds(50)) { server.now.accepted == 2 }
            server.each { session, turn in
                session.link?.send(Note(kind: .bye, body: ByteBuffer(string: "never")), in: &turn)
            }
            try await eventually("the end of attempts") {
                client.now.events.contains { if case .gaveUp = $0 { true } else { false } }
            }
            #expect(server.now.accepted == 2)
            let isClosed = if case .closed = client.driver.state { true } else { false }
            #expect(isClosed)
        }
        try await server.stop()
    }

    @Test func malformedBytesEndTheConnection() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            try await self.connect(client, to: server)
            server.each { session, turn in
                session.link?.send(encoded: ByteBuffer(bytes: Array(repeating: 9, count: 20)), in: &turn)
            }
            try await eventually("the loss") { client.now.lost.count == 1 }
            #expect(client.now.lost.first?.code == .protocolViolation)
            #expect(client.now.lost.first?.message.contains("no notes of kind 9") == true)
            client.send(.text("again"))
            try await eventually("the answer") { self.texts(client.now.received) == ["re: again"] }
        }
        try await server.stop()
    }

    // MARK: Suspended reading

    @Test func suspendedReadingIsCountedAndBeatsContinue() async throws {
        let time = ManualTime()
        let server = try await NoteServer.start(time: SocketTime(time)) { _, now in
            Beats(theirSilence: .seconds(20), now: now)
        }
        try await self.withClient(
            [server.endpoint],
            beats: { _, now in Beats(ourSilence: .seconds(1), theirSilence: .seconds(30), now: now) },
            configure: { $0.time = SocketTime(time) }
        ) { client in
            try await self.connect(client, to: server)
            client.setReading(isSuspended: true)
            client.setReading(isSuspended: true)
            client.send(.text("one"))
            try await eventually("the question") { self.texts(server.now.received) == ["one"] }
            try await self.passSeconds(60, of: time, on: server)
            client.setReading(isSuspended: false)
            try await self.passSeconds(20, of: time, on: server)
            // One of the two still suspends reading.
            #expect(client.now.received.isEmpty)
            client.setReading(isSuspended: false)
            try await eventually("the answer") { self.texts(client.now.received) == ["re: one"] }
            #expect(server.now.accepted == 1)
        }
        try await server.stop()
    }

    @Test func serverThatHoldsReadingGetsEverythingLater() async throws {
        let server = try await NoteServer.start()
        try await self.withClient([server.endpoint]) { client in
            try await self.connect(client, to: server)
            await server.setReading(isSuspended: true)
            for number in 0..<100 { client.send(.text("\(number)")) }
            try await eventually("all have left") { client.now.outcomes["99"] == "sent" }
            #expect(server.now.received.count < 100)
            await server.setReading(isSuspended: false)
            try await eventually("all have come") {
                self.texts(server.now.received) == (0..<100).map { "\($0)" }
            }
            try await eventually("all answers") { client.now.received.count == 100 }
        }
        try await server.stop()
    }
}
