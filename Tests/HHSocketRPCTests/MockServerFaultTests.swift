// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// A fault of a server during a call: the reaction, the caller's error, and whether the connection survives.
struct Fault: Sendable, CustomTestStringConvertible {
    enum Outcome: Sendable {
        case answer
        case error(SocketError.Code, SocketError.Delivery)
    }

    var name: String
    var reaction: MockServer.Reaction
    var outcome: Outcome
    var notExecuted = false
    /// Whether other calls on the connection get their answers. If not, they fail with `connectionLost`.
    var connectionSurvives = true
    /// The client's counters after this call.
    var statistics = ClientStatistics()
    /// The timeout; long if the call must not time out.
    var timeout = patience * 2

    var testDescription: String { self.name }

    /// Short, for calls that are never answered in time. It grows until the call is sent before it times out.
    static let short = Duration.milliseconds(50)

    static let all: [Fault] = [
        Fault(name: "delay", reaction: .echo.delayed(by: .milliseconds(20)), outcome: .answer),
        Fault(name: "dribble", reaction: .echo.dribbled(), outcome: .answer),
        Fault(
            name: "glue",
            reaction: .glued(.push(2_001, "a"), .ping(), .echo, .push(2_002, "b")),
            outcome: .answer,
            statistics: .init(pushes: 2)
        ),
        Fault(name: "ping", reaction: .ping().then(.echo), outcome: .answer),
        Fault(name: "twice", reaction: .echo.twice(), outcome: .answer, statistics: .init(duplicateResponses: 1)),
        Fault(
            name: "corrupt push",
            reaction: .push(2_001, "x").corrupted().then(.echo),
            outcome: .answer,
            statistics: .init(checksumFailures: 1)
        ),
        Fault(
            name: "drop",
            reaction: .drop,
            outcome: .error(.timeout, .sentUnknown),
            timeout: short
        ),
        Fault(
            name: "late",
            reaction: .echo.late(),
            outcome: .error(.timeout, .sentUnknown),
            statistics: .init(lateResponses: 1),
            timeout: short
        ),
        Fault(
            name: "unknown serial",
            reaction: .echo.withSerial(4_000_000_000),
            outcome: .error(.timeout, .sentUnknown),
            statistics: .init(unknownResponses: 1),
            timeout: short
        ),
        Fault(
            name: "reserved serial",
            reaction: .echo.withSerial(7),
            outcome: .error(.timeout, .sentUnknown),
            statistics: .init(unknownResponses: 1),
            timeout: short
        ),
        Fault(
            name: "corrupt checksum",
            reaction: .echo.corrupted(),
            outcome: .error(.checksumMismatch, .sentUnknown),
            statistics: .init(checksumFailures: 1)
        ),
        Fault(
            name: "unlisted status",
            reaction: .answer("?", status: Status(rawValue: 299)),
            outcome: .error(.server(Status(rawValue: 299)), .answered)
        ),
        Fault(
            name: "status 0",
            reaction: .answer("?", status: .ping),
            outcome: .error(.server(.ping), .answered)
        ),
        Fault(
            name: "lost packet",
            reaction: .status(.lostPacket),
            outcome: .error(.lostPacket, .answered)
        ),
        Fault(
            name: "overloaded",
            reaction: .status(.overloaded),
            outcome: .error(.overloaded, .answered),
            notExecuted: true
        ),
        Fault(
            name: "wild length",
            reaction: .echo.announcing(length: .max),
            outcome: .error(.protocolViolation, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "length over the limit by one",
            reaction: .echo.announcing(length: UInt32(Frame.defaultMaximumPayloadLength) + 1),
            outcome: .error(.protocolViolation, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "close",
            reaction: .close,
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "close in mid-frame",
            reaction: .echo.cut(after: 19).then(.close),
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "close in mid-header",
            reaction: .echo.cut(after: 3).then(.close),
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "half-close",
            reaction: .halfClose,
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "reset",
            reaction: .reset,
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
        Fault(
            name: "reset in mid-frame",
            reaction: .echo.cut(after: 19).then(.reset),
            outcome: .error(.connectionLost, .sentUnknown),
            connectionSurvives: false
        ),
    ]
}

extension ClientStatistics {
    fileprivate init(
        lateResponses: Int = 0,
        duplicateResponses: Int = 0,
        unknownResponses: Int = 0,
        checksumFailures: Int = 0,
        pushes: Int = 0
    ) {
        self.init()
        self.lateResponses = lateResponses
        self.duplicateResponses = duplicateResponses
        self.unknownResponses = unknownResponses
        self.checksumFailures = checksumFailures
        self.pushes = pushes
    }
}

private enum Call {
    static let faulty: UInt32 = 101
    static let bystander: UInt32 = 102
    static let honest: UInt32 = 103
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockServerFaultTests {
    @Test(arguments: Fault.all) func faultIsReportedForWhatItIsAndHarmsNothingElse(fault: Fault) async throws {
        let server = try await MockServer(.echo)
        server.on(Call.faulty, fault.reaction)
        // The other calls in flight are answered once the last of them has arrived, which is after the fault.
        server.on(Call.bystander, .echo.held(until: 6, release: .reversed))
        let client = SocketClient.connecting(to: server.endpoint)

        let before = (0..<5).map { number in
            let task = client.dataTask(with: SocketRequest(type: Call.bystander, body: "bystander \(number)"))
            task.resume()
            return task
        }
        try await server.received(5, ofType: Call.bystander)
        let faulty = try await withGrowingTimeout { timeout -> SocketTask in
            let request = SocketRequest(type: Call.faulty, body: "the faulty one", timeout: max(fault.timeout, timeout))
            let faulty = client.dataTask(with: request)
            faulty.resume()
            try await eventually("the faulty call's end") { faulty.state == .completed }
            return faulty
        } until: {
            $0.error?.code != .timeout || $0.error?.delivery != .notSent
        }
        switch fault.outcome {
        case .answer:
            #expect(faulty.error?.description == nil)
            #expect(faulty.response?.string == "the faulty one")
        case .error(let code, let delivery):
            let error = try #require(faulty.error)
            #expect(error.code == code, "\(error)")
            #expect(error.delivery == delivery)
            #expect(error.notExecuted == fault.notExecuted)
            #expect(error.endpoint == server.endpoint)
            #expect(error.serial != nil)
        }

        if fault.connectionSurvives {
            let last = try await client.data(for: SocketRequest(type: Call.bystander, body: "the last"))
            #expect(last.string == "the last")
            #expect(server.acceptedCount == 1)
        }
        try await eventually("the bystanders' end") { before.allSatisfy { $0.state == .completed } }
        for (number, task) in before.enumerated() {
            if fault.connectionSurvives {
                #expect(task.response?.string == "bystander \(number)")
            } else {
                #expect(task.error?.delivery == .sentUnknown)
                #expect(task.error?.code == .connectionLost || task.error?.code == .protocolViolation)
            }
        }

        // If the connection is lost, there may be a wait before the next attempt, in which calls fail immediately.
        try await eventually("a connection") { if case .ready = client.state { true } else { false } }
        let next = try await client.data(for: SocketRequest(type: Call.honest, body: "next"))
        #expect(next.string == "next")
        try await eventually("what was counted") { client.statistics == fault.statistics }
    }

    @Test func answersInAnyOrderReachTheirCalls() async throws {
        let server = try await MockServer(seed: 3)
        server.on(101, .echo.held(until: 50, release: .shuffled))
        server.on(102, .echo.held(until: 50, release: .reversed))
        let client = SocketClient.connecting(to: server.endpoint)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<100 {
                group.addTask {
                    let request = SocketRequest(type: 101 + UInt32(number % 2), body: "\(number)")
                    let response = try await client.data(for: request)
                    #expect(response.string == "\(number)")
                }
            }
            try await group.waitForAll()
        }
    }

    @Test func silentServerIsFoundDeadByTheHeartbeatAndTheNextConnectionWorks() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .goSilent)
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint) {
            $0.socket.heartbeat = HeartbeatPolicy(
                interval: .milliseconds(100),
                replyTimeout: .seconds(1),
                misses: 1
            )
        }
        _ = try await client.data(for: SocketRequest(type: 104))
        let impatient = client.dataTask(with: SocketRequest(type: 101, timeout: Fault.short))
        let patient = client.dataTask(with: SocketRequest(type: 102))
        impatient.resume()
        patient.resume()
        try await eventually("both ends") { impatient.state == .completed && patient.state == .completed }
        #expect(impatient.error?.code == .timeout)
        #expect(impatient.error?.delivery == .sentUnknown)
        #expect(patient.error?.code == .connectionLost)
        #expect(patient.error?.delivery == .sentUnknown)
        #expect(patient.error?.message.contains("heartbeat") == true)
        _ = try await first(of: events, "a new connection") { if case .connected = $0 { true } else { false } }
        try await eventually("an answer") {
            (try? await client.data(for: SocketRequest(type: 103, body: "next")).string) == "next"
        }
        #expect(!server.received.contains { $0.type == 102 && $0.connection == 0 })
    }

    @Test func refusedConnectionsAreNotifiedAndTheNextIsTakenOnceTheServerListensAgain() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .close)
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint) {
            $0.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        }
        _ = try await client.data(for: SocketRequest(type: 102))
        try await server.refuseConnections()
        let lost = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(lost.code == .connectionLost)
        let event = try await first(of: events, "a refusal") { if case .connectFailed = $0 { true } else { false } }
        guard case .connectFailed(let refused) = event else { return }
        #expect(refused.code == .connectionRefused)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 102))
        }
        // In the middle of an attempt, or between two.
        #expect(error.code == .connectionRefused || error.code == .notConnected)
        #expect(error.delivery == .notSent)
        #expect(error.notExecuted)
        try await server.acceptConnections()
        _ = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
        #expect(try await client.data(for: SocketRequest(type: 102, body: "next")).string == "next")
    }

    @Test func connectionThatIsClosedAtOnceIsTriedAgain() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .close)
        server.onOpen(number: 1, .reset)
        server.onOpen(number: 2, .raw([UInt8](repeating: 0xFF, count: 64)))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(10))
        }
        try await server.connection(3)
        try await eventually("an answer") {
            (try? await client.data(for: SocketRequest(type: 101, body: "x")).string) == "x"
        }
    }

    @Test func requestsOfAServerThatDoesNotReadAreBoundedAndFailWithWhatIsKnown() async throws {
        let server = try await MockServer(.echo)
        server.onOpen(number: 0, .stopReading)
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint) {
            // More than the kernels take, which is some MiB.
            $0.socket.maximumQueuedBytes = 64 << 20
            $0.socket.writeStallTimeout = .milliseconds(300)
        }
        try await server.connection(0)
        let body = ByteBuffer(repeating: 7, count: 1 << 20)
        let tasks = (0..<100).map { _ in client.dataTask(with: SocketRequest(type: 101, body: body)) }
        for task in tasks { task.resume() }
        try await eventually("every completion") { tasks.allSatisfy { $0.state == .completed } }
        let errors = tasks.compactMap(\.error)
        #expect(errors.count == 100)
        let refused = errors.filter { $0.code == .queueFull }
        #expect(!refused.isEmpty)
        #expect(refused.allSatisfy { $0.delivery == .notSent && $0.notExecuted })
        let lost = errors.filter { $0.code == .connectionLost }
        #expect(!lost.isEmpty)
        // Calls that were still in our own queue are known not to have been executed.
        #expect(lost.contains { $0.delivery == .sentUnknown && !$0.notExecuted })
        #expect(lost.contains { $0.delivery == .notSent && $0.notExecuted })
        #expect(refused.count + lost.count == 100)
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = event else { return }
        #expect(error.code == .connectionLost)
        #expect(error.message.contains("took less than 128 bytes a second"))
        try await eventually("an answer") {
            (try? await client.data(for: SocketRequest(type: 102, body: "next")).string) == "next"
        }
    }

    /// A checksum fails; the next header shows whether the length was right.
    @Test func lengthThatIsTooSmallIsNoticedAtTheNextHeader() async throws {
        let server = try await MockServer(.echo)
        server.once(101, .answer("twelve bytes").announcing(length: 4).then(.push(2_001, "behind it")))
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .checksumMismatch)
        #expect(error.delivery == .sentUnknown)
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let lost) = event else { return }
        #expect(lost.code == .protocolViolation)
        #expect(client.statistics.pushes == 0)
        try await eventually("an answer") {
            (try? await client.data(for: SocketRequest(type: 102, body: "next")).string) == "next"
        }
    }

    @Test func runOfWrongChecksumsEndsTheConnectionAndSingleOnesDoNot() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .echo.corrupted())
        let client = SocketClient.connecting(to: server.endpoint)
        for _ in 0..<5 {
            for _ in 0..<2 {
                let error = try await socketError { () throws(SocketError) in
                    _ = try await client.data(for: SocketRequest(type: 101))
                }
                #expect(error.code == .checksumMismatch)
            }
            _ = try await client.data(for: SocketRequest(type: 102))
        }
        #expect(server.acceptedCount == 1)
        let events = client.events
        for _ in 0..<3 {
            let error = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: 101))
            }
            #expect(error.code == .checksumMismatch)
        }
        let event = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let lost) = event else { return }
        #expect(lost.code == .protocolViolation)
        try await server.connection(1)
        #expect(client.statistics.checksumFailures == 13)
    }

    @Test(arguments: ["standard", "tgcd", "plain", "mars"])
    func faultsAreTheSameInEveryFormat(name: String) async throws {
        let format = try #require(WireFormat.presets[name])
        let server = try await MockServer(.echo, format: format)
        server.on(101, .drop)
        server.on(102, .echo.corrupted())
        server.on(103, .answer("?", status: Status(rawValue: 418)))
        server.once(104, .echo.cut(after: 10).then(.reset))
        server.once(105, .echo.announcing(length: 0xFFFF_FF00))
        server.on(106, .glued(.push(2_001, "news"), .ping(), .echo.dribbled(), .echo.withSerial(4_000_000)))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.wireFormat = format
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(5))
        }
        let pushes = client.pushes(ofType: 2_001)
        #expect(try await client.data(for: SocketRequest(type: 200, body: "first")).string == "first")
        let dropped = try await client.errorOfUnansweredCall(SocketRequest(type: 101))
        #expect(dropped.code == .timeout)
        #expect(dropped.delivery == .sentUnknown)
        if let cancel = format.layout.cancel {
            #expect(try await server.received(1, ofType: cancel.type)[0].serial == dropped.serial)
        }
        let corrupt = client.dataTask(with: SocketRequest(type: 102, body: "x"))
        corrupt.resume()
        try await eventually("the corrupt answer") { corrupt.state == .completed }
        #expect(corrupt.error?.code == (format.layout.checksum == nil ? nil : .checksumMismatch))
        if format.hasStatus {
            let unlisted = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: 103))
            }
            #expect(unlisted.code == .server(Status(rawValue: 418)))
        }
        #expect(server.acceptedCount == 1)
        for (type, code) in [(104, .connectionLost), (105, .protocolViolation)] as [(UInt32, SocketError.Code)] {
            let lost = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: type, body: "a body"))
            }
            #expect(lost.code == code)
            #expect(lost.delivery == .sentUnknown)
            try await server.connection(Int(type) - 103)
            try await eventually("a connection") { if case .ready = client.state { true } else { false } }
        }
        #expect(try await client.data(for: SocketRequest(type: 106, body: "last")).string == "last")
        #expect(try await first(of: pushes, "the push").string == "news")
        try await eventually("the unknown one") { client.statistics.unknownResponses == 1 }
        if let heartbeat = format.layout.heartbeat, heartbeat.pingedBy != .client {
            // Our own pings have another serial: a call that timed out has the connection probed.
            try await eventually("the answer to the ping") {
                server.received.contains { $0.type == heartbeat.type && $0.serial == heartbeat.serverSerial }
            }
        }
    }
}
