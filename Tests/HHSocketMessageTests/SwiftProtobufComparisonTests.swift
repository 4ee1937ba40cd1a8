// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// Random messages, read and written by us and by swift-protobuf.
@Suite struct SwiftProtobufComparisonTests {
    /// The number of messages of each kind.
    private static let messages = scaled(200)

    private struct Comparison: SampleVisitor {
        var seed: UInt64
        var compared = 0

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            for number in 0..<SwiftProtobufComparisonTests.messages {
                self.seed += 1
                var forge = Samples.forge(seed: self.seed)
                let bytes = forge.message(Ours.messageDescriptor)
                let seed = self.seed
                func context() -> Comment { "\(Ours.protoMessageName), seed \(seed), message \(number)" }
                do {
                    let expected = try Theirs(serializedBytes: bytes)
                    let message = try Ours(serializedBytes: bytes)
                    // Our bytes are read by them, including unknown fields, which equality compares too.
                    try #require(try Theirs(serializedBytes: message.serializedBytes()) == expected, context())
                    // Their bytes are read by us.
                    let theirBytes: [UInt8] = try expected.serializedBytes()
                    try #require(try Ours(serializedBytes: theirBytes) == message, context())
                    self.compared += 1
                } catch {
                    Issue.record(error, context())
                }
            }
        }
    }

    @Test func messagesReadAndWrittenByBothAreTheSame() throws {
        var comparison = Comparison(seed: 20_261_122)
        try Samples.visitAll(&comparison)
        #expect(comparison.compared == Samples.countOfAll * Self.messages)
    }
}
