// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandshakeTests {
    /// Runs a gate that stops waiting after a while, and returns its errors.
    private func codes(
        of wait: @escaping @Sendable (Handshake) async throws(SocketError) -> Void
    ) async throws -> [SocketError.Code] {
        let server = try await MockServer(.drop)
        let codes = NIOLockedValueBox<[SocketError.Code]>([])
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.gate = HandshakeGate { handshake in
            let waiter = Task {
                do throws(SocketError) {
                    try await wait(handshake)
                } catch {
                    codes.withLockedValue { $0.append(error.code) }
                }
            }
            waiter.cancel()
            await waiter.value
        }
        let socket = Socket(configuration: configuration)
        socket.connect()
        try await eventually("ready, for the gate went on") { if case .ready = socket.state { true } else { false } }
        return codes.withLockedValue { $0 }
    }

    @Test func waitingForAFrameEndsWithItsTask() async throws {
        #expect(
            try await self.codes { handshake throws(SocketError) in _ = try await handshake.nextFrame() } == [
                .cancelled
            ]
        )
    }

    @Test func waitingForTheAnswerToHelloEndsWithItsTask() async throws {
        let codes = try await self.codes { handshake throws(SocketError) in
            _ = try await handshake.exchangeHello(ByteBuffer())
        }
        #expect(codes == [.cancelled])
    }

    @Test func waitingForTheAnswerToHelloEndsWithTheConnection() async throws {
        let server = try await MockServer(.drop)
        server.on(FrameType.hello, .close)
        let codes = Watched<[SocketError.Code]>([])
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.gate = HandshakeGate { handshake in
            do throws(SocketError) {
                _ = try await handshake.exchangeHello(ByteBuffer())
            } catch {
                codes.withLockedValue { $0.append(error.code) }
                throw error
            }
        }
        let socket = Socket(configuration: configuration)
        socket.connect()
        try await codes.wait("the end") { !$0.isEmpty }
        socket.disconnect()
        #expect(codes.current.first == .connectionLost)
    }

    @Test func waitingForAnAnswerEndsWithItsTask() async throws {
        let codes = try await self.codes { handshake throws(SocketError) in _ = try await handshake.exchange(type: 17) }
        #expect(codes == [.cancelled])
    }
}
