// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The memory that small payloads of one read share, which a client's decoder reuses.
@Suite struct PayloadBlockTests {
    /// A read of this many frames, each with a number as its payload.
    private func read(_ numbers: Range<Int>, _ direction: FrameDirection) -> ByteBuffer {
        let frames = numbers.map { Frame(type: 16, serial: UInt32($0 + 50), payload: ByteBuffer(integer: $0)) }
        return ByteBuffer(bytes: FrameEncoder(direction: direction).encode(frames))
    }

    private func payloads(of decoder: inout FrameDecoder) throws -> [ByteBuffer] {
        var payloads: [ByteBuffer] = []
        while case .frame(let frame)? = try decoder.next() { payloads.append(frame.payload) }
        return payloads
    }

    private func numbers(_ payloads: [ByteBuffer]) -> [Int] {
        payloads.compactMap { $0.getInteger(at: $0.readerIndex) }
    }

    @Test(arguments: [FrameDirection.request, .response])
    func payloadsThatAreKeptStayAsTheyAre(_ direction: FrameDirection) throws {
        var decoder = FrameDecoder(direction: direction)
        var kept: [ByteBuffer] = []
        for round in 0..<20 {
            // From one frame to more than one block.
            let numbers = round * 100..<round * 100 + [1, 2, 40, 99][round % 4]
            decoder.append(self.read(numbers, direction))
            let payloads = try self.payloads(of: &decoder)
            #expect(self.numbers(payloads) == Array(numbers))
            // Other payloads are released, so that some blocks are free and some are not.
            kept += payloads.enumerated().filter { $0.offset % 3 == round % 3 }.map(\.element)
            let expected = (0...round).flatMap { round in
                (0..<[1, 2, 40, 99][round % 4]).filter { $0 % 3 == round % 3 }.map { round * 100 + $0 }
            }
            #expect(self.numbers(kept) == expected)
        }
    }

    @Test func aClientUsesTheMemoryAgain() throws {
        var decoder = FrameDecoder(direction: .response)
        decoder.append(self.read(0..<2, .response))
        let first = try self.payloads(of: &decoder).map { $0.withUnsafeReadableBytes { $0.baseAddress } }
        decoder.append(self.read(2..<4, .response))
        let second = try self.payloads(of: &decoder).map { $0.withUnsafeReadableBytes { $0.baseAddress } }
        #expect(first == second)
        #expect(first.count == 2)
    }

    @Test func nothingOfItIsKeptInRest() throws {
        var decoder = FrameDecoder(direction: .response)
        decoder.append(self.read(0..<2, .response))
        _ = try self.payloads(of: &decoder)
        #expect(decoder.block.capacity > 0)
        decoder.releaseRest()
        #expect(decoder.block.capacity == 0)
        decoder.append(self.read(2..<4, .response))
        #expect(self.numbers(try self.payloads(of: &decoder)) == [2, 3])
    }

    @Test func aServerKeepsNone() throws {
        var decoder = FrameDecoder(direction: .request)
        decoder.append(self.read(0..<2, .request))
        _ = try self.payloads(of: &decoder)
        #expect(decoder.block.capacity == 0)
    }
}
