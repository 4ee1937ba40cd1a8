// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

/// The kinds of messages.
@Suite struct WebSocketMessageTests {
    @Test func kindFollowsFromTheContent() {
        let bytes: [UInt8] = [0x68, 0x69]
        let buffer = ByteBuffer(bytes: bytes)
        #expect(WebSocketMessage(buffer) == WebSocketMessage(.binary, buffer))
        #expect(WebSocketMessage(bytes) == WebSocketMessage(buffer))
        #expect(WebSocketMessage("hi") == WebSocketMessage(.text, buffer))
        #expect(WebSocketMessage("hi").text == "hi" && WebSocketMessage(buffer).text == nil)
    }
}
