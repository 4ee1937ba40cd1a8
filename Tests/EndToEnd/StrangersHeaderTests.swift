import Foundation
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The header of Weibo's RPC framework Motan, described in Docs/WireFormat.md by these very lines.
@Suite(.tags(.io), .timeLimit(.minutes(3))) struct StrangersHeaderTests {
    // snippet: motan
    static func motan() throws -> WireFormat {
        let header: [WireFormat.Field] = [
            .constant([0xF0, 0xF0, 0x01]),  // magic, version
            .custom("flags", bytes: 1),  // 0 request, 1 response, 3 void, 5 exception
            .type(), .serial(),  // the request id, 8 bytes
            .length(),
        ]
        return try WireFormat(
            WireFormat.Layout(name: "motan", request: header, response: header, requestSerials: 1...UInt32.max)
        )
    }
    // end of snippet

    static let json = """
        {
          "name": "motan",
          "request":  [{"constant": "F0F001"}, {"custom": "flags", "bytes": 1}, "type", "serial", "length"],
          "response": [{"constant": "F0F001"}, {"custom": "flags", "bytes": 1}, "type", "serial", "length"],
          "requestSerials": [1, 4294967295]
        }
        """

    @Test func theSameAsJSON() throws {
        #expect(try WireFormat(json: Self.json.utf8) == Self.motan())
    }

    static var page: DocumentationPage {
        get throws { try DocumentationPage("Docs/WireFormat.md") }
    }

    /// Whatever the page shows as a description of a format is one.
    @Test func theDescriptionsInTheDocumentationCanBeRead() throws {
        let descriptions = try Self.page.blocks("json")
        #expect(descriptions.count == 4)
        let formats = try descriptions.map { try WireFormat(json: $0.utf8) }
        #expect(formats.contains(.standard))
    }

    private static func format(named name: String) throws -> WireFormat {
        let descriptions = try Self.page.blocks("json")
        let formats = try descriptions.map { try WireFormat(json: $0.utf8) }
        return try #require(formats.first { $0.description == name })
    }

    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try Self.page.shortcomings(allowing: ["Foundation", "HHSocketServer"]) == [])
    }

    /// A constant of 16 bits and a type of 16 bits, taken for one type.
    @Test func aTypeOf16BitsNextToAConstant() async throws {
        var router = Router()
        router.handle(0xACDC_0065) { request, _ in request.body }
        let server = try await ByteServer { _, received in
            // What its own server would read: AC DC, a command, and the rest.
            guard received.getInteger(at: received.readerIndex, as: UInt16.self) == 0xACDC,
                received.getInteger(at: received.readerIndex + 2, as: UInt16.self) == 101,
                let length = received.getInteger(at: received.readerIndex + 8, as: UInt32.self),
                let frame = received.readSlice(length: 12 + Int(length))
            else { return ByteBuffer() }
            return frame
        }
        let format = try Self.format(named: "magic")
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.wireFormat = format }
        #expect(try await client.data(for: SocketRequest(type: 0xACDC_0065, body: "hello")).string == "hello")
        await client.close()
        try await server.close()
        try await Pair.with(format, router: router) { client, _ in
            let response = try await client.data(for: SocketRequest(type: 0xACDC_0065, body: "hello"))
            #expect(response.string == "hello")
        }
    }

    /// What the page warns of: with pushes of other serials, one that has the serial of a call in flight is its answer.
    @Test func aPushWithTheSerialOfACallIsItsAnswer() async throws {
        let format = try Self.format(named: "company")
        let server = try await ByteServer { _, received in
            guard received.readableBytes >= 12,
                let length = received.getInteger(at: received.readerIndex, as: UInt32.self),
                let frame = received.readSlice(length: Int(length)),
                let serial = frame.getInteger(at: frame.readerIndex + 8, as: UInt32.self)
            else { return ByteBuffer() }
            var answer = ByteBuffer()
            // A push that no call and no subscriber gets, then one that a call gets.
            for serial in [serial &+ 1_000, serial] {
                answer.writeInteger(UInt32(12 + 4))
                answer.writeInteger(UInt32(2001))
                answer.writeInteger(serial)
                answer.writeString("news")
            }
            return answer
        }
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.wireFormat = format }
        let response = try await client.data(for: SocketRequest(type: 1000, body: "hello"))
        #expect(response.string == "news" && response.type == 2001)
        #expect(client.statistics.unknownResponses == 1)
        await client.close()
        try await server.close()
    }

    /// What the page shows of the command: its lines are run, and print what stands there.
    @Test func recordingsAreInspected() async throws {
        let folder = try TemporaryFolder()
        let page = try Self.page
        let description = try #require(page.blocks("json").first { $0.contains("\"company\"") })
        let recordings = [
            ("request.txt", "00000011 000003E8 00000001 68656C6C6F"),
            ("little.txt", "11000000 E8030000 01000000 68656C6C6F"),
        ]
        for (name, text) in recordings + [("company.json", description)] {
            #expect(page.text.contains(text))
            try text.write(toFile: folder.file(name), atomically: true, encoding: .utf8)
        }
        let blocks = page.blocks("").filter { $0.hasPrefix("hhsocket inspect") }
        #expect(blocks.count == 2)
        for block in blocks {
            let lines = block.components(separatedBy: "\n")
            let arguments = lines[0].split(separator: " ").dropFirst()
                .map { $0.contains(".") ? folder.file(String($0)) : String($0) }
            let outcome = try await Command.run(arguments)
            #expect(outcome.text + outcome.errors == lines[1] + "\n")
        }
    }

    @Test func bothAreInTheDocumentationInUnderFifteenLines() throws {
        let page = try Self.page.text
        #expect(page.contains(Self.json))
        let source = try String(contentsOfFile: #filePath, encoding: .utf8)
        let lines = source.components(separatedBy: "\n")
        let start = try #require(lines.firstIndex { $0.hasSuffix("// snippet: motan") })
        let end = try #require(lines.firstIndex { $0.hasSuffix("// end of snippet") })
        let snippet = lines[(start + 2)..<(end - 1)].map { String($0.dropFirst(8)) }
        #expect(snippet.count < 15)
        #expect(page.contains(snippet.joined(separator: "\n")))
    }

    /// The bytes of DefaultRpcCodec, by hand: magic, version, flags, request id, body length, body.
    @Test func goldenBytes() throws {
        let format = try Self.motan()
        for (flags, hex) in [
            (0, "F0F00100 000003E8 00000001 00000005 68656C6C6F"),
            (1, "F0F00101 000003E8 00000001 00000005 68656C6C6F"),
        ] as [(UInt8, String)] {
            #expect(try Self.page.text.contains("\n\(hex)\n"))
            let golden = hex.split(separator: " ").joined()
            var bytes = ByteBuffer()
            FrameEncoder(direction: .request, format: format).encode(
                Frame(type: 1000, serial: 1, payload: ByteBuffer(string: "hello"), customFields: [flags]),
                into: &bytes
            )
            #expect(bytes.readableBytesView.map { String(format: "%02X", Int($0)) }.joined() == golden)
            var decoder = FrameDecoder(direction: .response, format: format)
            decoder.append(bytes)
            let output = try decoder.next()
            guard case .frame(let frame) = output else {
                Issue.record("\(String(describing: output))")
                return
            }
            #expect(format.header(of: frame) == ["flags": [flags]])
        }
    }

    /// A server that knows nothing but the header's bytes.
    private static func strangersServer() async throws -> ByteServer {
        try await ByteServer { _, received in
            var answer = ByteBuffer()
            while let length = received.getInteger(at: received.readerIndex + 12, as: UInt32.self),
                var message = received.readSlice(length: 16 + Int(length))
            {
                guard message.readableBytesView.starts(with: [0xF0, 0xF0, 0x01, 0x00]) else {
                    return ByteBuffer(string: "no request")
                }
                message.setInteger(0x01 as UInt8, at: message.readerIndex + 3)
                answer.writeBuffer(&message)
            }
            return answer
        }
    }

    @Test func theExampleOfThePage() async throws {
        let server = try await Self.strangersServer()
        let servers = [server.endpoint]
        func motan() throws -> WireFormat { try Self.motan() }

        var configuration = SocketClient.Configuration(servers: servers)
        configuration.socket.wireFormat = try motan()
        let client = SocketClient(configuration: configuration)
        client.connect()
        let response = try await client.data(for: SocketRequest(type: 1000, body: "hello"))
        if response.header["flags"] == [5] { print("an exception") }

        #expect(response.string == "hello")
        await client.close()
        try await server.close()
    }

    @Test func aClientSpeaksToAStrangersServer() async throws {
        let server = try await Self.strangersServer()
        let format = try Self.motan()
        let client = SocketClient.connecting(to: server.endpoint) { $0.socket.wireFormat = format }
        for body in ["hello", "", String(repeating: "x", count: 100_000)] {
            let response = try await client.data(for: SocketRequest(type: 1000, body: body))
            #expect(response.string == body)
            #expect(response.header == ["flags": [1]])
        }
        await client.close()
        try await server.close()
    }

    @Test func ourServerSpeaksItToo() async throws {
        var router = Router()
        router.handle(1000) { request, _ in
            #expect(request.header == ["flags": [0]])
            return request.body
        }
        try await Pair.with(Self.motan(), router: router) { client, _ in
            let response = try await client.data(for: SocketRequest(type: 1000, body: "hello"))
            #expect(response.string == "hello")
        }
    }
}
