// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@Suite struct WebSocketEncoderTests {
    private let secret = [UInt8](repeating: 3, count: 32)

    private func decode(_ bytes: ByteBuffer, from role: WebSocketRole, _ mode: WebSocketDecoder.Mode) throws
        -> [WebSocketInput]
    {
        var decoder = WebSocketDecoder(role: role == .client ? .server : .client, mode: mode, account: nil)
        decoder.append(bytes)
        var inputs: [WebSocketInput] = []
        while let input = try decoder.next() { inputs.append(input) }
        return inputs
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func everythingComesBack(_ role: WebSocketRole) throws {
        var encoder = WebSocketEncoder(role: role, secret: self.secret)
        for length in [0, 1, 2, 3, 7, 8, 9, 125, 126, 1_024, 65_535, 65_536, 200_001] {
            let payload = ByteBuffer(bytes: (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 7) })
            var bytes = ByteBuffer()
            encoder.encode(.binary, payload, into: &bytes)
            encoder.encodePing(ByteBuffer(string: "p"), into: &bytes)
            encoder.encodeFragment(.text, isFirst: true, isFinal: false, ByteBuffer(string: "frag"), into: &bytes)
            encoder.encodePong(ByteBuffer(repeating: 1, count: 300), into: &bytes)
            encoder.encodeFragment(.text, isFirst: false, isFinal: true, ByteBuffer(string: "ment"), into: &bytes)
            encoder.encodeClose(WebSocketClose(code: 4_000, reason: "bye"), into: &bytes)
            #expect(
                try self.decode(bytes, from: role, .messages(WebSocketLimits())) == [
                    .message(.binary, payload), .ping(ByteBuffer(string: "p")),
                    .pong(ByteBuffer(repeating: 1, count: 125)),
                    .message(.text, ByteBuffer(string: "fragment")), .close(WebSocketClose(code: 4_000, reason: "bye")),
                ]
            )
        }
    }

    @Test func streamsAreSentInMessagesThatGatewaysPassOn() throws {
        var encoder = WebSocketEncoder(role: .server, account: nil)
        let payload = ByteBuffer(bytes: (0..<150_000).map { UInt8(truncatingIfNeeded: $0 &* 13) })
        var bytes = ByteBuffer()
        encoder.encodeStream(payload, into: &bytes)
        let messages = try self.decode(bytes, from: .server, .messages(WebSocketLimits()))
        let lengths = messages.map { if case .message(.binary, let body) = $0 { body.readableBytes } else { 0 } }
        #expect(lengths == [65_535, 65_535, 18_930])
        let joined = WebSocketDecoderTests.joined(try self.decode(bytes, from: .server, .stream))
        #expect(joined == [.bytes(payload)])
    }

    @Test func masksAreNeverRepeatedAndDependOnTheSecret() {
        var (one, other) = (MaskSource(secret: self.secret), MaskSource())
        let keys = (0..<4_096).map { _ in one.next() }
        #expect(Set(keys).count >= 4_094)
        #expect(Set(keys).isDisjoint(with: (0..<16).map { _ in other.next() }))
    }

    @Test func longReasonsAreCutAtACharacter() throws {
        var encoder = WebSocketEncoder(role: .server, account: nil)
        var bytes = ByteBuffer()
        encoder.encodeClose(WebSocketClose(code: 1_000, reason: String(repeating: "é", count: 70)), into: &bytes)
        let inputs = try self.decode(bytes, from: .server, .messages(WebSocketLimits()))
        #expect(inputs == [.close(WebSocketClose(code: 1_000, reason: String(repeating: "é", count: 61)))])
    }

    /// The boundaries in a sequence of flags can only be found from its front.
    @Test(.timeLimit(.minutes(5))) func veryLongReasonsAreCutInNoTime() throws {
        var encoder = WebSocketEncoder(role: .client, account: nil)
        var bytes = ByteBuffer()
        let flags = String(repeating: "🇩🇪", count: 200_000)
        encoder.encodeClose(WebSocketClose(code: 1_000, reason: flags), into: &bytes)
        let inputs = try self.decode(bytes, from: .client, .messages(WebSocketLimits()))
        #expect(inputs == [.close(WebSocketClose(code: 1_000, reason: String(repeating: "🇩🇪", count: 15)))])
    }
}
