// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Client, server and mocks with formats that a codec reads and writes.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FrameCodecInteropTests {
    /// Formats with all features, and with only the required ones.
    static let formats: [WireFormat] = [
        try? NetstringCodec.format(),
        try? WireFormat(
            codec: NetstringCodec(),
            rules: WireFormat.Rules(
                name: "bare",
                applicationTypes: 1...2_000,
                requestSerials: 1...3,
                hasStatus: false,
                push: .init(serial: 7)
            )
        ),
    ].compactMap { $0 }

    @Test func everyFormatIsThere() {
        #expect(Self.formats.count == 2)
    }

    /// Checks the properties that all formats have.
    @Test(arguments: formats)
    func everythingWorksAsInOtherFormats(format: WireFormat) async throws {
        let tests = FormatInteropTests()
        try await tests.bodiesOfAllSizesComeBack(format: format)
        try await tests.serialsBeginWhereTheFormatSays(format: format)
        try await tests.anErrorIsReportedWhereThereIsAStatusAndNeverPassesForSuccess(format: format)
        try await tests.pushesArriveWhereThereAreAny(format: format)
        try await tests.cancelsAreSentWhereThereAreAny(format: format)
        try await tests.theClientPingsWhereItShould(format: format)
        try await tests.theServerPingsWhereItShould(format: format)
    }

    @Test func callsPassOverWebSocketByTheNameThatTheUserGives() async throws {
        let format = try NetstringCodec.format()
        var listener = try ServerListener(url: "ws://127.0.0.1:0/rpc")
        listener.wireFormat = format
        let refused = SocketServer(configuration: .init(listeners: [listener]), router: .echo)
        let error = await #expect(throws: SocketError.self) { try await refused.start() }
        #expect(error?.message.contains("has no subprotocol of its own") == true)
        listener.webSocket?.subprotocol = "netstring.example"
        let server = SocketServer(configuration: .init(listeners: [listener]), router: .echo)
        try await server.start()
        let client = SocketClient.connecting(to: try #require(server.address)) {
            $0.socket.wireFormat = format
            $0.socket.webSocket.subprotocol = "netstring.example"
        }
        for length in [0, 5, 20_000, 70_000, 300_000] {
            let body = String(repeating: "x", count: length)
            #expect(try await client.data(for: SocketRequest(type: 101, body: body)).string == body)
        }
        await client.close()
        await server.shutdown(gracePeriod: .zero)
    }

    /// Uses both mocks, which have no rules here.
    @Test func mocksSpeakIt() async throws {
        let format = try NetstringCodec.format()
        let server = try await MockServer(.echo, format: format)
        server.on(102, .glued(.push(2_001, "news"), .ping(), .echo))
        let client = try await HostileClient(to: server.endpoint, format: format)
        await client.perform(.request(101, serial: 50, "hi").dribbled())
        #expect(try await client.response() == Frame(type: 101, serial: 50, payload: ByteBuffer(string: "hi")))
        await client.perform(.request(102, serial: 51, "x"))
        let frames = try await client.responses(3)
        #expect(format.isPush(frames[0]))
        #expect(frames[0].payload == ByteBuffer(string: "news"))
        #expect(frames[1] == Frame(type: 0, serial: 5, status: .ping))
        #expect(frames[2].serial == 51)
    }

    @Test func bytesThatTheCodecRefusesEndTheConnection() async throws {
        let format = try NetstringCodec.format()
        try await Pair.with(format) { client, server in
            let hostile = try await HostileClient(to: try #require(server.address), format: format)
            await hostile.perform(.raw(Array("nonsense".utf8)))
            try await hostile.ended()
            #expect(try await client.data(for: SocketRequest(type: FormatInteropTests.echo, body: "x")).string == "x")
        }
        let server = try await MockServer(.raw(Array("nonsense".utf8)), format: format)
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.wireFormat = format }
        let error = await #expect(throws: SocketError.self) { try await client.data(for: SocketRequest(type: 101)) }
        #expect(error.map { "\($0)" }?.contains("110 is where a digit or a colon belongs") == true, "\(error as Any)")
        await client.close()
    }

    /// A call or a push whose frame the codec does not encode fails immediately, without affecting others.
    @Test func framesThatTheCodecRefusesFailAlone() async throws {
        let format = try WireFormat(
            codec: PickyCodec(),
            rules: WireFormat.Rules(name: "picky", hasStatus: true, push: .init(serial: 1))
        )
        var router = FormatInteropTests.router
        router.handleSynchronously(104) { _, _ in ByteBuffer(string: "unspeakable") }
        router.handle(105) { _, _ in ByteBuffer(string: "unspeakable") }
        try await Pair.with(format, router: router) { client, server in
            let pushes = client.pushes()
            for type in [104, 105] as [UInt32] {
                let error = await #expect(throws: SocketError.self) {
                    try await client.data(for: SocketRequest(type: type))
                }
                #expect(error?.code == .unknown)
            }
            let request = SocketRequest(type: FormatInteropTests.echo, body: "unspeakable")
            let error = await #expect(throws: SocketError.self) { try await client.data(for: request) }
            #expect(error?.code == .invalidArgument)
            #expect(error?.delivery == .notSent)
            #expect(error?.message.contains("picky has refused") == true)
            #expect(await server.push(type: 1_500, body: ByteBuffer(string: "unspeakable")) == 0)
            let next = try await client.data(for: SocketRequest(type: FormatInteropTests.echo, body: "x"))
            #expect(next.string == "x")
            #expect(await server.push(type: 1_500, body: ByteBuffer(string: "news")) == 1)
            #expect(try await first(of: pushes, "the push").string == "news")
        }
    }
}

/// A codec that refuses some frames.
private struct PickyCodec: FrameCodec {
    private var sound = NetstringCodec()

    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        try self.sound.decode(&bytes, direction, maximumPayloadLength: maximumPayloadLength)
    }

    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        guard frame.payload != ByteBuffer(string: "unspeakable") else {
            throw NetstringCodec.Illegal(description: "that cannot be said")
        }
        try self.sound.encode(frame, direction, into: &bytes)
    }
}
