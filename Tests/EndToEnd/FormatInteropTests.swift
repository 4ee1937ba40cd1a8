// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Client against server over TCP, in each format.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FormatInteropTests {
    static let echo: UInt32 = 1000
    static let fail: UInt32 = 1001
    static let sleep: UInt32 = 1002
    static let header: UInt32 = 1003

    static var router: Router {
        var router = Router()
        router.handleSynchronously(self.echo) { request, _ in request.body }
        router.handle(self.fail) { request, _ in throw StatusError(.noPermission, body: request.body) }
        router.handle(self.sleep) { request, _ in
            try await untilCancelled()
            return request.body
        }
        router.handle(self.header) { request, _ in
            ByteBuffer(string: request.header.map { "\($0.key)=\($0.value)" }.sorted().joined(separator: " "))
        }
        return router
    }

    /// The presets, and layouts with other properties.
    static let formats: [WireFormat] = [.standard, .tgcd, .plain, .mars, .separated] + others

    static let others: [WireFormat] = {
        let layouts = [
            WireFormat.Layout(
                name: "little",
                request: [
                    .length(.little), .constant([0xCA, 0xFE]), .serial(.little), .type(.little), .status(.little),
                ],
                response: [.length(.little), .serial(.little), .type(.little), .status(.little), .constant([0, 1])],
                lengthCounts: .frame,
                checksum: .init(.crc32c, width: 8, .little),
                tail: .little,
                okStatus: 0,
                heartbeat: .init(type: 3, pingedBy: .server, serials: 0...UInt32.max),
                push: .init(serial: 7),
                cancel: .init(type: 0x7FFF_FFFF)
            ),
            WireFormat.Layout(
                name: "bare",
                request: [.type(), .serial(), .length()],
                response: [.serial(), .type(), .length()],
                checksum: .init(.crc32),
                applicationTypes: 1...2_000,
                requestSerials: 1...3
            ),
            WireFormat.Layout(
                name: "narrow",
                request: [
                    .constant([0xAC, 0xDC]), .length(bytes: 3), .type(bytes: 2), .serial(.little, bytes: 2), .flags(),
                ],
                response: [
                    .constant([0xAC, 0xDC]), .length(bytes: 3), .type(bytes: 2), .serial(.little, bytes: 2),
                    .status(bytes: 1), .flags(0x80),
                ],
                lengthCounts: .rest,
                okStatus: 0,
                statuses: [
                    1: .unknown, 2: .noPermission, 3: .undefinedType, 4: .illegalLength, 5: .lostPacket,
                    6: .illegalFormat, 7: .deadlineExceeded, 8: .overloaded, 9: .draining,
                ],
                heartbeat: .init(type: 1, answerType: 2, pingedBy: .both),
                push: .init(flag: 0x02),
                cancel: .init(type: 7)
            ),
            WireFormat.Layout(
                name: "typeless",
                request: [.length(.little), .type(bytes: 2), .serial(bytes: 8)],
                response: [.length(.little), .serial(bytes: 8), .status()],
                lengthCounts: .rest
            ),
            WireFormat.Layout(
                name: "text",
                request: [
                    .text("Q "), .type(.decimal), .text(" "), .serial(.hexadecimal(digits: 8)), .text(" "),
                    .length(.hexadecimal), .text("\n"),
                ],
                response: [
                    .text("A "), .type(.decimal), .text(" "), .serial(.hexadecimal(digits: 8)), .text(" "),
                    .status(.decimal), .text(" "), .length(.hexadecimal), .text("\n"),
                ],
                checksum: .init(.crc32),
                bodyEnd: Array("\n".utf8),
                push: .init(types: 1_400...1_500)
            ),
        ]
        return layouts.compactMap { try? WireFormat($0) }
    }()

    @Test func everyFormatIsThere() {
        #expect(Self.formats.count == 10)
    }

    @Test(arguments: formats)
    func bodiesOfAllSizesComeBack(format: WireFormat) async throws {
        try await Pair.with(format) { client, server in
            for length in [0, 1, 19, 511, 513, 16_384, 65_536, 65_537, 1 << 20] {
                let body = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 31) }
                let response = try await client.data(for: SocketRequest(type: Self.echo, body: body))
                #expect(response.body == ByteBuffer(bytes: body))
                #expect(response.type == Self.echo)
                #expect(response.status == .ok)
                #expect(format.layout.requestSerials.contains(response.serial))
            }
            // Counted when a read is done, which may be after its answers were read.
            try await eventually("the count") { server.statistics[.requests] == 9 }
            #expect(server.statistics[.badChecksums] == 0)
            #expect(client.statistics.unknownResponses == 0)
        }
    }

    @Test(arguments: formats)
    func serialsBeginWhereTheFormatSays(format: WireFormat) async throws {
        try await Pair.with(format) { client, _ in
            let serials = format.layout.requestSerials
            for offset in 0..<5 as Range<UInt32> {
                let response = try await client.data(for: SocketRequest(type: Self.echo))
                let count = serials.upperBound - serials.lowerBound
                #expect(response.serial == serials.lowerBound + (count == .max ? offset : offset % (count + 1)))
            }
        }
    }

    @Test(arguments: formats)
    func anErrorIsReportedWhereThereIsAStatusAndNeverPassesForSuccess(format: WireFormat) async throws {
        try await Pair.with(format) { client, server in
            let request = SocketRequest(type: Self.fail, body: "why")
            let unknown = SocketRequest(type: 999)
            if format.hasStatus {
                let error = await #expect(throws: SocketError.self) { try await client.data(for: request) }
                let other = await #expect(throws: SocketError.self) { try await client.data(for: unknown) }
                #expect(error?.code == .noPermission)
                #expect(error?.body.map { String(buffer: $0) } == "why")
                #expect(other?.code == .undefinedType)
                #expect(other?.notExecuted == true)
                #expect(server.statistics[.errorsNotSent] == 0)
            } else {
                #expect(try await client.errorOfUnansweredCall(request).code == .timeout)
                #expect(try await client.errorOfUnansweredCall(unknown).code == .timeout)
                try await eventually("the count") { server.statistics[.errorsNotSent] == 2 }
            }
            let next = try await client.data(for: SocketRequest(type: Self.echo, body: "x"))
            #expect(next.string == "x")
        }
    }

    @Test(arguments: formats)
    func pushesArriveWhereThereAreAny(format: WireFormat) async throws {
        try await Pair.with(format) { client, server in
            let pushes = client.pushes()
            _ = try await client.data(for: SocketRequest(type: Self.echo))
            let count = await server.push(type: 1_500, body: ByteBuffer(string: "news"))
            guard format.layout.push != nil else {
                #expect(count == 0)
                return
            }
            #expect(count == 1)
            let push = try await first(of: pushes, "the push")
            #expect(push.type == 1_500)
            #expect(push.string == "news")
            #expect(push.status == .ok)
        }
    }

    @Test(arguments: formats)
    func cancelsAreSentWhereThereAreAny(format: WireFormat) async throws {
        try await Pair.with(format) { client, server in
            let task = client.dataTask(with: SocketRequest(type: Self.sleep))
            task.resume()
            try await eventually("the request") { server.statistics[.requests] == 1 }
            task.cancel()
            try await eventually("the end") { task.state == .completed }
            #expect(task.error?.code == .cancelled)
            _ = try await client.data(for: SocketRequest(type: Self.echo))
            try await eventually("the count") { server.statistics[.requests] == 2 }
            #expect(server.statistics[.cancelledRequests] == (format.layout.cancel == nil ? 0 : 1))
        }
    }

    @Test(arguments: formats)
    func theClientPingsWhereItShould(format: WireFormat) async throws {
        let (events, seen) = AsyncStream.makeStream(of: SocketEvent.self)
        let time = ManualTime()
        try await Pair.with(
            format,
            configureClient: {
                $0.socket.heartbeat = HeartbeatPolicy(interval: .seconds(60), replyTimeout: .seconds(10))
                $0.socket.time = SocketTime(time)
            }
        ) { client, server in
            let watcher = Task { for await event in client.events { seen.yield(event) } }
            defer { watcher.cancel() }
            _ = try await client.data(for: SocketRequest(type: Self.echo))
            for number in 1...3 {
                await time.advance(by: .seconds(60))
                if format.clientPing != nil {
                    try await eventually("ping \(number)") { server.statistics[.heartbeatsAnswered] == number }
                }
                // Its answer is behind that to a ping, and is as good a sign of life where there are no pings.
                _ = try await client.data(for: SocketRequest(type: Self.echo))
            }
            #expect(server.statistics[.heartbeatsAnswered] == (format.clientPing == nil ? 0 : 3))
            #expect(server.statistics[.connectionsAccepted] == 1)
            #expect(client.statistics.unknownResponses == 0)
        }
        seen.finish()
        for await event in events {
            if case .disconnected(let error) = event { Issue.record("\(error)") }
        }
    }

    @Test(arguments: formats)
    func theServerPingsWhereItShould(format: WireFormat) async throws {
        let policy = HeartbeatPolicy(interval: .seconds(60), replyTimeout: .seconds(10))
        let time = ManualTime()
        guard format.serverPing != nil else {
            let server = SocketServer(configuration: .init(wireFormat: format, heartbeat: policy), router: Self.router)
            let error = await #expect(throws: SocketError.self) { try await server.start() }
            #expect(error?.code == .invalidArgument)
            return
        }
        try await Pair.with(
            format,
            configureServer: {
                $0.heartbeat = policy
                $0.time = SocketTime(time)
            },
            configureClient: { $0.socket.heartbeat = nil }
        ) { client, server in
            for number in 1...3 {
                _ = try await client.data(for: SocketRequest(type: Self.echo))
                await time.advance(by: .seconds(60))
                try await eventually("ping \(number)") { server.statistics[.pingsSent] == number }
                // The client has the ping when it has the answer, and answers before it calls again.
                for _ in 0..<2 { _ = try await client.data(for: SocketRequest(type: Self.echo)) }
            }
            #expect(server.statistics[.heartbeatsAnswered] == 0)
            #expect(server.statistics[.deadPeers] == 0)
            let next = try await client.data(for: SocketRequest(type: Self.echo, body: "x"))
            #expect(next.string == "x")
            #expect(server.statistics[.connectionsAccepted] == 1)
        }
    }

    // MARK: Custom header fields

    @Test func headerFieldsAreFilledInPerRequestOverTheConfigurations() async throws {
        let format = try WireFormat.tgcd(sessionIDLength: 4)
        try await Pair.with(format, configureClient: { $0.socket.header = ["sessionID": [1, 2, 3, 4]] }) {
            client,
            _ in
            let usual = try await client.data(for: SocketRequest(type: Self.header))
            #expect(usual.string == "sessionID=[1, 2, 3, 4]")
            let special = SocketRequest(type: Self.header, header: ["sessionID": [9, 9, 9, 9]])
            #expect(try await client.data(for: special).string == "sessionID=[9, 9, 9, 9]")
            #expect(usual.header.isEmpty)
        }
    }

    @Test func anAnswerRepeatsTheRequestsFieldsAndAPushHasTheServers() async throws {
        try await Pair.with(
            .mars,
            configureServer: { $0.listeners[0].header = ["clientVersion": [7, 7, 7, 7]] },
            configureClient: { $0.socket.header = ["clientVersion": [0, 0, 0, 200]] }
        ) { client, server in
            let pushes = client.pushes()
            let response = try await client.data(for: SocketRequest(type: Self.header))
            #expect(response.string == "clientVersion=[0, 0, 0, 200]")
            #expect(response.header == ["clientVersion": [0, 0, 0, 200]])
            await server.push(type: 2_001, body: ByteBuffer())
            #expect(try await first(of: pushes, "the push").header == ["clientVersion": [7, 7, 7, 7]])
        }
    }

    @Test(
        arguments: [
            (WireFormat.mars, ["clientVersion": [1]]), (.mars, ["version": [0, 0, 0, 1]]), (.standard, ["x": [1]]),
        ] as [(WireFormat, [String: [UInt8]])]
    )
    func headerFieldsThatTheFormatDoesNotHaveAreRefused(format: WireFormat, header: [String: [UInt8]]) async throws {
        try await Pair.with(format) { client, server in
            let request = SocketRequest(type: Self.echo, header: header)
            let error = await #expect(throws: SocketError.self) { try await client.data(for: request) }
            #expect(error?.code == .invalidArgument)
            #expect(error?.delivery == .notSent)
            for name in header.keys { #expect(error?.message.contains(name) == true) }
            let next = try await client.data(for: SocketRequest(type: Self.echo, body: "x"))
            #expect(next.string == "x")
            try await eventually("the count") { server.statistics[.requests] == 1 }
        }
        // The header is in the configurations of client and server.
        let server = SocketServer(configuration: .init(wireFormat: format, header: header), router: Self.router)
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
        let client = SocketClient.connecting(to: Endpoint(host: "127.0.0.1", port: 1)) {
            $0.socket.wireFormat = format
            $0.socket.header = header
        }
        let refused = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: Self.echo))
        }
        #expect(refused?.code == .invalidArgument)
        await client.close()
    }

    @Test func typesAreThoseThatTheFormatHasForApplications() async throws {
        try await Pair.with(.mars) { client, _ in
            let reserved = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: 6))
            }
            #expect(reserved?.code == .invalidArgument)
        }
        var router = Router()
        router.handleSynchronously(5) { request, _ in request.body }
        try await Pair.with(.mars, router: router) { client, _ in
            let response = try await client.data(for: SocketRequest(type: 5, body: "five"))
            #expect(response.string == "five")
        }
    }

    // MARK: Speaking different formats

    @Test(arguments: [(WireFormat.mars, WireFormat.standard), (.standard, .mars), (.tgcd, .mars)])
    func aPeerThatSpeaksAnotherFormatEndsInATypedErrorAndNotInNonsense(
        mine: WireFormat,
        theirs: WireFormat
    ) async throws {
        try await Pair.with(theirs, configureClient: { $0.socket.wireFormat = mine }) { client, server in
            let request = SocketRequest(type: Self.echo, body: [UInt8](repeating: 1, count: 100), timeout: .seconds(2))
            let error = await #expect(throws: SocketError.self) { try await client.data(for: request) }
            #expect(error?.code == .connectionLost || error?.code == .protocolViolation || error?.code == .timeout)
            #expect(server.statistics[.requests] == 0)
        }
    }

    @Test func aRunOfWrongChecksumsIsLostAndReconnected() async throws {
        // Answers each request of 17 bytes, `x` being its payload; on the first connection with a wrong checksum.
        let server = try await ByteServer { number, received in
            var answer = ByteBuffer()
            while received.readableBytes >= 17, let header = received.readSlice(length: 8) {
                received.moveReaderIndex(forwardBy: 9)
                answer.writeImmutableBuffer(header)
                answer.writeBytes([0, 0, 0, 200, 0, 0, 0, 1, UInt8(ascii: "x"), 0, 0x79, 0, number == 0 ? 0x78 : 0x79])
            }
            return answer
        }
        let (client, events) = SocketClient.connectingWithEvents(to: server.endpoint)
        for _ in 0..<3 {
            let error = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: Self.echo, body: "x"))
            }
            #expect(error?.code == .checksumMismatch)
        }
        let loss = try await first(of: events, "the loss") { if case .disconnected = $0 { true } else { false } }
        guard case .disconnected(let error) = loss else { return }
        #expect(error.code == .protocolViolation)
        #expect((error.underlying as? FrameError)?.code == .corruptRun)
        _ = try await first(of: events, "a new connection") {
            if case .connected = $0 { true } else { false }
        }
        #expect(try await client.data(for: SocketRequest(type: Self.echo, body: "x")).string == "x")
        #expect(client.statistics.checksumFailures == 3)
        await client.close()
        try await server.close()
    }
}
