// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketFormats
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The header of Weibo's RPC framework Motan, described in Docs/WireFormat.md by these very lines.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct StrangersHeaderTests {
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
        get throws { try DocumentationPage("Docs/WireFormat.md", section: "In Swift: Motan") }
    }

    @Test func everyExampleOfTheSectionIsInThisFile() throws {
        #expect(try Self.page.shortcomings(allowing: ["Foundation", "HHSocketFormats", "HHSocketServer"]) == [])
    }

    /// Two presets, as the page shows them.
    @Test func presetsAreDescribedInTheDocumentation() throws {
        let descriptions = try DocumentationPage("Docs/WireFormat.md").blocks("json")
        let formats = descriptions.compactMap { try? WireFormat(json: $0.utf8) }
        #expect(formats.contains(.standard))
        #expect(formats.contains(.separated))
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

    /// A server that only knows the header's bytes.
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
