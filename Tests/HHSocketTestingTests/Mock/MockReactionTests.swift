// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The reactions that all mock servers have, as a client of bytes sees them on each wire.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct MockReactionTests {
    @Test(arguments: TestedWire.allCases)
    func everyReactionSendsItsBytes(_ wire: TestedWire) async throws {
        #expect(try await wire.differences(nil) == [])
    }

    @Test(arguments: TestedWire.allCases, ReactionFlaw.allCases)
    func wrongExpectationsAreFound(_ wire: TestedWire, _ flaw: ReactionFlaw) async throws {
        #expect(try await wire.differences(flaw) == ["\(flaw)"])
    }
}

/// A reaction of which something wrong is expected.
enum ReactionFlaw: CaseIterable {
    case twice, cut
}

/// A wire, with a client of bytes.
enum TestedWire: CaseIterable {
    case frames, lines, messages, broker

    /// The names of the reactions of which a client sees other bytes than it should.
    func differences(_ flaw: ReactionFlaw?) async throws -> [String] {
        let hello = Array("hello".utf8)
        switch self {
        case .frames:
            let frame = Frame(type: 101, serial: 50, payload: ByteBuffer(bytes: hello))
            var (request, answer) = (ByteBuffer(), ByteBuffer())
            FrameEncoder(direction: .request).encode(frame, into: &request)
            FrameEncoder(direction: .response).encode(frame, into: &answer)
            let check = try await ReactionCheck<FrameWire>(MockServer(), .echo, Array(buffer: answer), flaw)
            return try await check.differences(sending: Array(buffer: request))
        case .lines:
            let check = try await ReactionCheck<LineWire>(LineServer(), .echo, hello + [0x0A], flaw)
            return try await check.differences(sending: hello + [0x0A])
        case .messages:
            let check = try await ReactionCheck<MessageWire>(MockWebSocketServer(), .echo, [0x81, 5] + hello, flaw)
            // The key of the mask is zero.
            return try await check.differences(sending: [0x81, 0x85, 0, 0, 0, 0] + hello) { client in
                try await client.send(
                    "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                )
                try await eventually("the opening") { client.bytes.suffix(4) == [0x0D, 0x0A, 0x0D, 0x0A] }
            }
        case .broker:
            let broker = try await MockBroker()
            broker.on(.connect, .handle)
            let check = ReactionCheck<STOMPWire>(broker, .receipt, Array("RECEIPT\nreceipt-id:r\n\n\0".utf8), flaw)
            let frame = Array("SEND\ndestination:/queue/a\nreceipt:r\n\nhello\0".utf8)
            return try await check.differences(sending: frame) { client in
                try await client.send("CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n\n\0")
                try await client.frames(1)
            }
        }
    }
}

/// A server, and its reactions with the bytes that a client should see.
private struct ReactionCheck<Wire: MockWire> {
    private let server: MockPeer<Wire>
    private var rows: [(name: String, reaction: MockReaction<Wire>, bytes: [UInt8])] = []

    /// - Parameters:
    ///   - output: A reaction that sends something.
    ///   - bytes: The bytes that it sends.
    init(_ server: MockPeer<Wire>, _ output: MockReaction<Wire>, _ bytes: [UInt8], _ flaw: ReactionFlaw?) {
        let beginning = Array(bytes.prefix(5))
        self.server = server
        self.add("itself", output, bytes)
        self.add("drop", .drop, [])
        self.add("reset", .reset, [])
        self.add("twice", output.twice(), flaw == .twice ? bytes : bytes + bytes)
        self.add("cut", output.cut(after: 5), flaw == .cut ? bytes : beginning)
        self.add("both", output.cut(after: 5).times(2), beginning + beginning)
        self.add("dribbled", output.dribbled(bytes: 3).then(output.cut(after: 5)), bytes + beginning)
        self.add("glued", .glued(.raw("<"), output, .raw(">")), Array("<".utf8) + bytes + Array(">".utf8))
        self.add("oneOf", .oneOf(output, output), bytes)
        self.add("respond", .respond { _ in output }, bytes)
        self.add("held", output.held(until: 1).then(output), bytes + bytes)
        self.add("silent", .goSilent.then(output).then(.wakeUp), [])
        self.add("halfClose", output.then(.halfClose), bytes)
    }

    private mutating func add(_ name: String, _ reaction: MockReaction<Wire>, _ bytes: [UInt8]) {
        self.rows.append((name, reaction, bytes))
    }

    /// - Parameter open: Makes a connection ready for the bytes to which the server reacts.
    func differences(
        sending bytes: [UInt8],
        open: (RawSTOMPClient) async throws -> Void = { _ in }
    ) async throws -> [String] {
        var found: [String] = []
        for (number, row) in self.rows.enumerated() {
            let client = try await RawSTOMPClient(to: self.server.endpoint)
            try await open(client)
            let (server, seen, received) = (self.server, client.bytes.count, self.server.received.count)
            server.onAnyOther(row.reaction)
            try await client.send(ByteBuffer(bytes: bytes))
            try await eventually("the reaction \(row.name)") { server.received.count > received }
            // The end follows what was sent, unless it comes with the reaction.
            try await server.connection(number).perform(.halfClose)
            try await client.ended()
            if Array(client.bytes.dropFirst(seen)) != row.bytes { found.append(row.name) }
        }
        return found
    }
}
