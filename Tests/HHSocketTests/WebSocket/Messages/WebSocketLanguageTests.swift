// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

extension WebSocketLanguage {
    /// Creates a language without compression, with the default limits.
    init(uncompressed role: WebSocketRole) {
        self.init(
            role: role,
            limits: WebSocketLimits(),
            deflate: nil,
            compression: nil,
            buffers: BufferPool(),
            account: nil
        )
    }
}

/// The close of a link of messages: the server ends TCP first, so that the lingering port is not a client's; a client
/// leaves that to the server while it can be expected, and each side waits for the other for at most five seconds.
@Suite struct WebSocketLanguageTests {
    /// A close frame as `role` receives it.
    private func close(to role: WebSocketRole, _ code: UInt16) -> ByteBuffer {
        let payload = [UInt8(code >> 8), UInt8(code & 0xFF)]
        let key: UInt32? = role == .server ? 7 : nil
        return ByteBuffer(bytes: WebSocketDecoderTests.frame(0x88, payload, key: key))
    }

    /// The close frame that has been written, as the other side reads it.
    private func written(_ bytes: inout SendBytes, by role: WebSocketRole) throws -> WebSocketClose? {
        var decoder = WebSocketDecoder(
            role: role == .client ? .server : .client,
            mode: .messages(WebSocketLimits()),
            account: nil
        )
        decoder.append(bytes.gathered)
        guard case .close(let close)? = try decoder.next() else { return nil }
        return close
    }

    private let patience = Closing.awaitPeer(.seconds(5))

    @Test func clientThatAnswersACloseFrameWaitsForTheServerToEndTCP() throws {
        var (language, bytes) = (WebSocketLanguage(uncompressed: .client), SendBytes())
        language.append(self.close(to: .client, 1_001))
        #expect(try language.next() == .close(WebSocketClose(code: 1_001)))
        #expect(language.close(.done, into: &bytes) == self.patience)
        #expect(try self.written(&bytes, by: .client) == WebSocketClose(code: 1_001))
    }

    @Test func serverThatAnswersACloseFrameEndsTCP() throws {
        var (language, bytes) = (WebSocketLanguage(uncompressed: .server), SendBytes())
        language.append(self.close(to: .server, 4_000))
        #expect(try language.next() == .close(WebSocketClose(code: 4_000)))
        #expect(language.close(.done, into: &bytes) == .shutdown)
        #expect(try self.written(&bytes, by: .server) == WebSocketClose(code: 4_000))
    }

    @Test(arguments: [(WebSocketRole.client, UInt16(1_000)), (.server, 1_001)])
    func sideThatClosesFirstWaitsForTheOther(role: WebSocketRole, code: UInt16) throws {
        var (language, bytes) = (WebSocketLanguage(uncompressed: role), SendBytes())
        #expect(language.close(.done, into: &bytes) == self.patience)
        #expect(try self.written(&bytes, by: role) == WebSocketClose(code: code))
        // A second close frame is not written.
        let length = bytes.count
        _ = language.close(.done, into: &bytes)
        #expect(bytes.count == length)
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func brokenPeerIsNotifiedWhyAndNotWaitedFor(role: WebSocketRole) throws {
        var (language, bytes) = (WebSocketLanguage(uncompressed: role), SendBytes())
        // Masked by a server, or not masked by a client.
        language.append(self.close(to: role == .client ? .server : .client, 1_000))
        #expect(throws: LinkError.self) { try language.next() }
        #expect(language.close(.protocolViolation, into: &bytes) == .shutdown)
        let close = try #require(try self.written(&bytes, by: role))
        #expect(close.code == 1_002)
        #expect(close.reason.contains("masked"))
    }

    @Test func windowThatIsNotNamedHasFifteenBits() {
        #expect(DeflateAgreement().serverWindowBits == 15)
        #expect(DeflateAgreement().clientWindowBits == 15)
    }
}
