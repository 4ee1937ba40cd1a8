// SPDX-License-Identifier: Apache-2.0
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct ClosingHandshakeTests {
    private let close = WebSocketClose(code: 1_000)

    @Test func serverThatClosesWaitsForTheAnswerAndEndsTCP() {
        var handshake = ClosingHandshake(role: .server)
        #expect(handshake.close(self.close) == [.send(self.close), .awaitPeer])
        #expect(handshake.close(self.close) == [])
        #expect(handshake.receive(WebSocketClose(code: 1_000)) == [.closeChannel])
    }

    @Test func clientThatClosesWaitsForTheServerToEndTCP() {
        var handshake = ClosingHandshake(role: .client)
        #expect(handshake.close(self.close) == [.send(self.close), .awaitPeer])
        #expect(handshake.receive(WebSocketClose(code: 1_000)) == [.awaitPeer])
        #expect(handshake.endInput() == [.closeChannel])
    }

    @Test(arguments: [WebSocketRole.client, .server]) func peersCloseIsAnsweredWithItsCode(role: WebSocketRole) {
        var handshake = ClosingHandshake(role: role)
        #expect(handshake.receive(WebSocketClose(code: 4_000, reason: "why")) == [])
        let last = role == .server ? ClosingHandshake.Action.closeChannel : .awaitPeer
        #expect(handshake.close(self.close) == [.send(WebSocketClose(code: 4_000)), last])
        var empty = ClosingHandshake(role: role)
        _ = empty.receive(WebSocketClose())
        #expect(empty.close(self.close) == [.send(WebSocketClose()), last])
    }

    @Test(arguments: [WebSocketRole.client, .server]) func brokenPeerIsNotListenedTo(role: WebSocketRole) {
        var handshake = ClosingHandshake(role: role)
        let close = WebSocketClose(code: 1_002)
        #expect(handshake.fail(close) == [.send(close), .closeOutput, .awaitPeer])
        #expect(handshake.endInput() == [.closeChannel])
    }

    @Test func endOfInputWithoutACloseFrameIsTheEnd() {
        var handshake = ClosingHandshake(role: .server)
        #expect(handshake.endInput() == [])
        #expect(handshake.close(self.close) == [.send(self.close), .closeChannel])
    }
}
