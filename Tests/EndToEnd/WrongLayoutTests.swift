// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// A layout that differs from the server's: the errors show the received bytes, and their interpretation.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WrongLayoutTests {
    /// The layout of an engineer who overlooked that the server is little-endian.
    private func company() throws -> WireFormat {
        try WireFormat(
            WireFormat.Layout(
                name: "company",
                request: [.length(), .type(), .serial()],
                response: [.length(), .type(), .serial()],
                lengthCounts: .frame,
                applicationTypes: 1...UInt32.max,
                requestSerials: 1...UInt32.max
            )
        )
    }

    private func call(
        answeredWith bytes: [UInt8],
        _ change: (inout SocketClient.Configuration) -> Void = { _ in }
    ) async throws -> SocketError {
        let format = try self.company()
        let server = try await MockServer(format: format)
        server.on(1000, .raw(bytes))
        let client = SocketClient.connecting(to: server.endpoint) {
            $0.socket.wireFormat = format
            change(&$0)
        }
        let error = await #expect(throws: SocketError.self) {
            try await client.data(for: SocketRequest(type: 1000, body: "hello"))
        }
        await client.close()
        return try #require(error)
    }

    /// The error of a call that times out, with a longer timeout as long as the message does not contain `words`: the
    /// server's bytes may arrive late.
    private func timeout(answeredWith bytes: [UInt8], saying words: String) async throws -> SocketError {
        try await withGrowingTimeout { limit in
            try await self.call(answeredWith: bytes) { $0.timeout = limit }
        } until: {
            $0.message.contains(words)
        }
    }

    private static func littleEndian(_ length: UInt32) -> [UInt8] {
        [length, 1000, 1].flatMap { word in withUnsafeBytes(of: word.littleEndian) { Array($0) } }
    }

    @Test func anImpossibleLengthIsShownWithItsHeader() async throws {
        let error = try await self.call(answeredWith: Self.littleEndian(17) + Array("hello".utf8))
        #expect(error.code == .connectionLost || error.code == .protocolViolation)
        #expect(
            error.message.contains(
                """
                the header 11000000E803000001000000 is read as length 285212672, type 3892510720, serial 16777216; in the \
                other byte order its length would be 17
                """
            ),
            "\(error.message)"
        )
    }

    @Test func bytesThatNeverMakeAFrameAreShownWhenTheCallTimesOut() async throws {
        let bytes: [UInt8] = [0x00, 0x0F, 0x42, 0x40, 0xAC, 0xDC, 0x00, 0x01, 0x00, 0x00, 0x00, 0x07, 0x68, 0x69]
        let words = """
            the 14 bytes that have arrived on this connection form no frame; the header 000F4240ACDC000100000007 is read as \
            length 1000000, type 2900099073, serial 7; is the wire format company the server's?
            """
        let error = try await self.timeout(answeredWith: bytes, saying: words)
        #expect(error.code == .timeout)
        #expect(error.message.contains(words), "\(error.message)")
    }

    @Test func tooFewBytesForAHeaderAreShown() async throws {
        let words = "the 2 bytes that have arrived on this connection form no frame; they begin with CAFE"
        let error = try await self.timeout(answeredWith: [0xCA, 0xFE], saying: words)
        #expect(error.message.contains(words), "\(error.message)")
    }

    @Test func silenceIsReportedToo() async throws {
        let words = "no byte has arrived on this connection"
        let error = try await self.timeout(answeredWith: [], saying: words)
        #expect(error.message.contains(words), "\(error.message)")
    }
}
