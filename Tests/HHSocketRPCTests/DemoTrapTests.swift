// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// The bugs of the first demo of this protocol, with a test for each.
///
/// `MockServerFaultTests` cover that a write had no time limit and the queue no bound; `ErrorRateTests` that the count
/// of errors never rose, and was compared with `== 0.1`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct DemoTrapTests {
    /// It parsed one frame per read, so that the second one waited for the next read, or forever.
    @Test func everyFrameOfOneReadIsTaken() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .glued((0..<50).map { .push(2_001, "\($0)") }).then(.echo.held(until: 20)))
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes(ofType: 2_001)
        let tasks = (0..<20).map { client.dataTask(with: SocketRequest(type: 101, body: "\($0)")) }
        for task in tasks { task.resume() }
        // All twenty answers come in one write, and nothing comes after them.
        try await eventually("every answer") { tasks.allSatisfy { $0.state == .completed } }
        for (number, task) in tasks.enumerated() { #expect(task.response?.string == "\(number)") }
        for number in 0..<1_000 { #expect(try await first(of: pushes, "a push").string == "\(number % 50)") }
    }

    /// A part of a frame could raise a range error.
    @Test func everyPartOfAFrameMayComeAloneAndMayBeTheLast() async throws {
        let length = 16 + 5 + 4
        let server = try await MockServer(.echo)
        server.on(101, .echo.dribbled())
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(5))
        }
        #expect(try await client.data(for: SocketRequest(type: 101, body: "parts")).string == "parts")
        for kept in 0..<length {
            server.once(102, .raw(Self.answer(serial: 50).prefix(kept)).then(.close))
            let task = client.dataTask(with: SocketRequest(type: 102, body: "parts"))
            try await eventually("a connection") { if case .ready = client.state { true } else { false } }
            task.resume()
            try await eventually("the end") { task.state == .completed }
            // A part of a frame is reported as a lost connection.
            #expect(task.error?.code == .connectionLost)
            #expect(task.error?.message.contains("middle of a frame, after \(kept) bytes") == (kept > 0))
        }
        try await eventually("an answer") {
            (try? await client.data(for: SocketRequest(type: 103, body: "next")).string) == "next"
        }
    }

    private static func answer(serial: UInt32) -> [UInt8] {
        var bytes = ByteBuffer()
        FrameEncoder(direction: .response).encode(
            Frame(type: 102, serial: serial, payload: ByteBuffer(string: "parts")),
            into: &bytes
        )
        return Array(bytes.readableBytesView)
    }

    /// A read of 20,000 bytes or more was dropped, and the stream was out of step from then on.
    @Test(arguments: [19_979, 19_980, 19_999, 20_000, 20_001, 40_000, 65_536, 1_000_000])
    func readsOfAnySizeKeepInStep(size: Int) async throws {
        let server = try await MockServer(.echo)
        let body = ByteBuffer(bytes: (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) })
        server.on(101, .glued(.push(2_001, body), .echo, .push(2_002, "in step")))
        let client = SocketClient.connecting(to: server.endpoint)
        let pushes = client.pushes()
        #expect(try await client.data(for: SocketRequest(type: 101, body: body)).body == body)
        #expect(try await first(of: pushes, "the push before").body == body)
        #expect(try await first(of: pushes, "the push after").string == "in step")
    }

    /// A response with an unknown serial was answered as if it were a heartbeat.
    @Test func unknownSerialsAreNotAnswered() async throws {
        let server = try await MockServer(.echo)
        server.on(
            101,
            .glued([0, 2, 5, 49, 51, 4_000_000, .max].map { .echo.withSerial($0) }).then(.echo)
        )
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 101))
        _ = try await client.data(for: SocketRequest(type: 102))
        // Only the two requests were received.
        #expect(server.received.map(\.type) == [101, 102])
        #expect(client.statistics.unknownResponses == 7)
    }

    /// A status that it did not know was success.
    @Test(arguments: [0, 1, 199, 201, 202, 205, 299, 400, 500, 10_200, UInt32.max])
    func unlistedStatusIsAnError(status: UInt32) async throws {
        let server = try await MockServer(.answer("not a success", status: Status(rawValue: status)))
        let client = SocketClient.connecting(to: server.endpoint)
        let error = try await socketError { () throws(SocketError) in
            _ = try await client.data(for: SocketRequest(type: 101))
        }
        #expect(error.code == .server(Status(rawValue: status)))
        #expect(error.delivery == .answered)
        #expect(!error.notExecuted)
        #expect(error.body.map { String(buffer: $0) } == "not a success")
    }

    /// Ports were signed numbers of 16 bits.
    @Test func portsAbove32767Work() async throws {
        var server: MockServer?
        for port in [65_535, 65_001, 54_321, 45_678, 32_768] + Array(61_500..<61_600) where server == nil {
            server = try? await MockServer(.echo, port: port)
        }
        let endpoint = try #require(server?.endpoint)
        #expect(endpoint.port > 32_767)
        let client = SocketClient.connecting(to: endpoint)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "x")).endpoint == endpoint)
    }

    /// An error that was passed in was replaced by "unknown", which then counted against the server.
    @Test func errorsArriveAsTheyAre() async throws {
        let server = try await MockServer(.echo)
        server.on(101, .drop)
        server.on(102, .echo.corrupted())
        server.on(103, .status(.database))
        server.on(104, .close)
        let codes: [(UInt32, SocketError.Code)] = [
            (101, .cancelled), (102, .checksumMismatch), (103, .database), (15, .invalidArgument),
            (104, .connectionLost),
        ]
        let client = SocketClient.connecting(to: server.endpoint)
        _ = try await client.data(for: SocketRequest(type: 200))
        for (type, code) in codes {
            let (results, completed) = AsyncStream.makeStream(of: SocketError?.self)
            let task = client.dataTask(with: SocketRequest(type: type)) { result in
                if case .failure(let error) = result { completed.yield(error) } else { completed.yield(nil) }
            }
            task.resume()
            if code == .cancelled {
                try await server.received(1, ofType: type)
                task.cancel()
            }
            let handed = try #require(try await first(of: results, "the completion"))
            #expect(handed.code == code)
            #expect(handed.code != .unknown)
            // The handler, the task and the description say the same.
            #expect(task.error?.description == handed.description)
            #expect(handed.description.hasPrefix("\(code): "))
        }
        // The system's own reason is kept.
        let refused = SocketClient.connecting(to: try await MockServer.closedEndpoint()) {
            $0.socket.backoff.base = .seconds(60)
        }
        let error = try await socketError { () throws(SocketError) in
            _ = try await refused.data(for: SocketRequest(type: 101))
        }
        let connecting = error.code == .notConnected ? error.underlying as? SocketError : error
        #expect(connecting?.code == .connectionRefused)
        #expect(connecting?.underlying != nil)
    }

    /// One static buffer was shared by all threads.
    @Test func clientsOnManyThreadsDoNotShareABuffer() async throws {
        let server = try await MockServer(.echo.dribbled(bytes: 20_000))
        let clients = (0..<8).map { _ in SocketClient.connecting(to: server.endpoint) }
        let wrong = NIOLockedValueBox(0)
        let completed = Watched(0)
        for (number, client) in clients.enumerated() {
            DispatchQueue.global().async {
                for call in 0..<20 {
                    let body = ByteBuffer(repeating: UInt8(number * 20 + call), count: 50_000 + call)
                    client.dispatch(SocketRequest(type: 101, body: body)) { result in
                        if (try? result.get().body) != body { wrong.withLockedValue { $0 += 1 } }
                        completed.withLockedValue { $0 += 1 }
                    }
                }
            }
        }
        try await completed.wait("every answer") { $0 == 160 }
        #expect(wrong.withLockedValue { $0 } == 0)
        withExtendedLifetime(clients) {}
    }
}
