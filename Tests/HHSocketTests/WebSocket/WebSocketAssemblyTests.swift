// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Joining a message that arrives in very many pieces takes time linear in its length, not quadratic: copying 16 MiB
/// for each of 131,072 pieces would be a terabyte, which no machine copies within the time limit.
@Suite(.timeLimit(.minutes(5))) struct WebSocketAssemblyTests {
    private static let length = 16 << 20
    private static let fragments = 131_072

    /// The bytes of a message of that length, whose period is not a power of two.
    private static let payload = {
        let period = ByteBuffer(bytes: (0..<65_521).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) })
        var payload = ByteBuffer()
        while payload.readableBytes < Self.length { payload.writeImmutableBuffer(period) }
        return payload.getSlice(at: 0, length: Self.length) ?? payload
    }()

    private func decode(_ wire: ByteBuffer, readLength: Int) throws -> [WebSocketInput] {
        var decoder = WebSocketDecoder(role: .client, mode: .messages(WebSocketLimits()), account: nil)
        var wire = wire
        var inputs: [WebSocketInput] = []
        while wire.readableBytes > 0 {
            let length = min(readLength, wire.readableBytes)
            // Each read has its own buffer, as with the channel.
            var read = ByteBuffer()
            if let slice = wire.readSlice(length: length) { read.writeImmutableBuffer(slice) }
            decoder.append(read)
            while let input = try decoder.next() { inputs.append(input) }
        }
        #expect(decoder.bufferedBytes == 0)
        return inputs
    }

    private func expectPayload(_ inputs: [WebSocketInput]) {
        guard case .message(.binary, let message)? = inputs.first, inputs.count == 1 else {
            Issue.record("\(inputs.count) inputs")
            return
        }
        #expect(message.readableBytes == Self.length)
        #expect(message == Self.payload)
    }

    @Test(arguments: [100, 65_536]) func asManyFragmentsAsAreAllowed(readLength: Int) throws {
        let size = Self.length / Self.fragments
        var wire = ByteBuffer()
        for index in 0..<Self.fragments {
            let isFinal = index == Self.fragments - 1
            wire.writeInteger(UInt8(index == 0 ? 0x02 : 0x00) | (isFinal ? 0x80 : 0))
            wire.writeMultipleIntegers(UInt8(126), UInt16(size))
            if let part = Self.payload.getSlice(at: index * size, length: size) { wire.writeImmutableBuffer(part) }
        }
        try self.expectPayload(self.decode(wire, readLength: readLength))
    }

    @Test func oneFrameInReadsOfAHundredBytes() throws {
        var wire = ByteBuffer()
        wire.writeMultipleIntegers(UInt8(0x82), UInt8(127), UInt64(Self.length))
        wire.writeImmutableBuffer(Self.payload)
        try self.expectPayload(self.decode(wire, readLength: 100))
    }

    @Test func oneFragmentMoreThanAreAllowedIsAViolation() throws {
        var wire = ByteBuffer(bytes: [0x02, 0])
        for _ in 0..<(Self.fragments - 1) { wire.writeBytes([0x00, 0] as [UInt8]) }
        #expect(try self.decode(wire, readLength: 65_536).isEmpty)
        wire.writeBytes([0x00, 0] as [UInt8])
        #expect(throws: WebSocketViolation.tooManyFragments(limit: Self.fragments)) {
            try self.decode(wire, readLength: 65_536)
        }
    }
}
