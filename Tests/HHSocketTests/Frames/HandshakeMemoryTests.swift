// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket

/// The frames that a server sends while a gate is at work.
@Suite struct HandshakeMemoryTests {
    private let handshake = Handshake(
        endpoint: Endpoint(host: "server", port: 1),
        attempt: 1,
        lastSerial: 0xffff_ffff,
        transmit: { _, completion in completion(.success(())) }
    )

    /// A frame that was received, as the connection passes it on.
    private func frame(_ payload: ByteBuffer) -> Frame {
        ArrivedFrame(Frame(type: 1_001, serial: 0, payload: payload)).owned()
    }

    private func end() -> [Frame] { self.handshake.end(SocketError(.connectionLost, message: "over")) }

    /// Each may be all that is left of a large read.
    @Test func waitingFramesKeepNoReads() throws {
        for _ in 0..<100 {
            let read = ByteBuffer(repeating: 7, count: 256 << 10)
            #expect(self.handshake.receive(self.frame(try #require(read.getSlice(at: 1_000, length: 1_025)))))
        }
        let frames = self.end()
        #expect(frames.count == 100)
        for frame in frames {
            #expect(frame.payload == ByteBuffer(repeating: 7, count: 1_025))
            #expect(frame.payload.storageCapacity <= 2 * 1_025)
        }
    }

    @Test func bytesOfWaitingFramesAreBounded() async throws {
        let half = ByteBuffer(repeating: 1, count: Handshake.maximumWaitingBytes / 2)
        #expect(self.handshake.receive(self.frame(half)))
        #expect(self.handshake.receive(self.frame(half)))
        #expect(!self.handshake.receive(self.frame(ByteBuffer(repeating: 1, count: 1))))
        // There is room again when the gate has taken one.
        _ = try await self.handshake.nextFrame()
        #expect(self.handshake.receive(self.frame(ByteBuffer(repeating: 1, count: 1))))
        #expect(self.end().count == 2)
    }

    @Test func oneFrameOfAnyLengthMayWait() {
        #expect(self.handshake.receive(self.frame(ByteBuffer(repeating: 1, count: 2 * Handshake.maximumWaitingBytes))))
        #expect(!self.handshake.receive(self.frame(ByteBuffer())))
        #expect(self.end().count == 1)
    }
}
