// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// Equal messages have equal canonical bytes.
@Suite(.timeLimit(.minutes(5))) struct CanonicalBytesTests {
    private func bytes(_ message: some HHSocketMessage.MessageBody) throws -> [UInt8] {
        try message.withCanonicalMessageBytes { Array($0) }
    }

    /// An equal map with another order of entries, since a dictionary's order also depends on its capacity.
    private func roomy<Key: Hashable, Value>(_ map: [Key: Value]) -> [Key: Value] {
        var copy = [Key: Value](minimumCapacity: 10_000)
        for (key, value) in map.reversed() { copy[key] = value }
        return copy
    }

    @Test func mapsAreWrittenInTheOrderOfTheirKeys() throws {
        var message = GeneratedSamples.Every_Thing_Maps()
        for number in -50..<50 {
            message.stringString["key \(number)"] = "value"
            message.int32Int32[Int32(number)] = 1
            message.uint64Uint64[UInt64(bitPattern: Int64(number))] = 1
            message.boolBool[number < 0] = true
            var inner = GeneratedSamples.Every_Thing_Maps()
            for key in 0..<20 { inner.sint64Sint64[Int64(key * number)] = 1 }
            message.within[Int32(number)] = inner
        }
        var same = message
        same.stringString = self.roomy(message.stringString)
        same.int32Int32 = self.roomy(message.int32Int32)
        same.uint64Uint64 = self.roomy(message.uint64Uint64)
        same.boolBool = self.roomy(message.boolBool)
        same.within = self.roomy(
            message.within.mapValues { inner in
                var inner = inner
                inner.sint64Sint64 = self.roomy(inner.sint64Sint64)
                return inner
            }
        )
        #expect(same == message)
        // Otherwise the test could not fail.
        let asItComes: ([UInt8], [UInt8]) = try (message.serializedBytes(), same.serializedBytes())
        #expect(asItComes.0 != asItComes.1)
        #expect(try self.bytes(same) == self.bytes(message))
        #expect(try GeneratedSamples.Every_Thing_Maps(serializedBytes: self.bytes(message)) == message)
        message.int32Int32[7] = 2
        #expect(try self.bytes(same) != self.bytes(message))
    }

    private struct Comparison: SampleVisitor {
        var seed: UInt64 = 1
        var compared = 0

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            for _ in 0..<50 {
                self.seed += 1
                var forge = Samples.forge(seed: self.seed)
                let message = try Ours(serializedBytes: forge.message(Ours.messageDescriptor))
                let bytes = try message.withCanonicalMessageBytes { Array($0) }
                // The canonical bytes have the usual length, and decode to an equal message.
                #expect(try bytes.count == message.serializedBytes().count)
                let back = try Ours(serializedBytes: bytes)
                #expect(try back.withCanonicalMessageBytes { Array($0) } == bytes)
                self.compared += 1
            }
        }
    }

    @Test func everyKindOfMessageReadsBackTheSame() throws {
        var comparison = Comparison()
        try Samples.visit(&comparison)
        #expect(comparison.compared == 50 * Samples.count)
    }
}
