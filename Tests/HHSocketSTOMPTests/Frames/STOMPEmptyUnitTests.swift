// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketSTOMP

/// Units that carry nothing cost work in proportion to their bytes, however many arrive in one read.
@Suite struct STOMPEmptyUnitTests {
    /// Expects that a read with four times as many units takes about four times as long to decode.
    private func expectLinear(
        _ count: Int,
        sourceLocation: SourceLocation = #_sourceLocation,
        _ text: (Int) -> String
    ) throws {
        let growth = try WorkGrowth(count) { count in
            var decoder = STOMPDecoder()
            decoder.agree(on: .v1_2)
            let read = ByteBuffer(string: text(count))
            return {
                decoder.append(read)
                while try decoder.next() != nil {}
                #expect(decoder.bufferedBytes == 0, sourceLocation: sourceLocation)
            }
        }
        #expect(growth.isLinear, "\(growth)", sourceLocation: sourceLocation)
    }

    @Test(arguments: [
        "\n", "\r\n", "MESSAGE\n\n\0", "MESSAGE\na:\n\n\0", "MESSAGE\ncontent-length:0\n\n\0", "RECEIPT\n\n\0\n",
    ])
    func fourTimesAsManyTakeFourTimesTheWork(_ unit: String) throws {
        try self.expectLinear(1_000) { String(repeating: unit, count: $0) }
    }

    /// As many as a frame may have by default.
    @Test func headersWithoutAValueTakeWorkInProportion() throws {
        try self.expectLinear(250) { "MESSAGE\n" + String(repeating: "a:\n", count: $0) + "\n\0" }
    }

    /// A frame whose body has no length is searched for its end as it arrives.
    @Test func bodyThatArrivesByteByByteTakesWorkInProportion() throws {
        let growth = try WorkGrowth(1_000) { count in
            var decoder = STOMPDecoder()
            decoder.agree(on: .v1_2)
            decoder.append(ByteBuffer(string: "MESSAGE\n\n"))
            let byte = ByteBuffer(string: "a")
            return {
                for _ in 0..<count {
                    decoder.append(byte)
                    _ = try decoder.next()
                }
            }
        }
        #expect(growth.isLinear, "\(growth)")
    }
}
