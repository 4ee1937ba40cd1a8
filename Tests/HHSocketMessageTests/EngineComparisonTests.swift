// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

#if canImport(HHSocketProtobufC)
import HHSocketProtobufC
#endif

/// Generated messages compared with the engines: valid bytes, and bytes with faults.
@Suite struct EngineComparisonTests {
    private struct Comparison: SampleVisitor {
        let messages: Int
        let mutations: Int
        var seed: UInt64
        var refused = 0
        var read = 0
        /// The number of messages that libprotobuf-c read instead of Swift.
        var servedByProtobufC = 0

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            for _ in 0..<self.messages {
                self.seed += 1
                var forge = Samples.forge(seed: self.seed)
                let bytes = forge.message(Ours.messageDescriptor)
                try self.compare(bytes, ours)
                for _ in 0..<self.mutations {
                    try self.compare(self.mutated(bytes, &forge.random), ours)
                }
            }
        }

        private func mutated(_ bytes: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
            var bytes = bytes
            for _ in 0...Int.random(in: 0...2, using: &random) {
                guard let index = bytes.indices.randomElement(using: &random) else { return bytes }
                switch Int.random(in: 0...3, using: &random) {
                case 0: bytes[index] ^= 1 << UInt8.random(in: 0...7, using: &random)
                case 1: bytes[index] = UInt8.random(in: 0...255, using: &random)
                case 2: bytes.remove(at: index)
                default: bytes.removeLast(bytes.count - index)
                }
            }
            return bytes
        }

        private mutating func compare<Ours: ProtobufMessage>(_ bytes: [UInt8], _ ours: Ours.Type) throws {
            let seed = self.seed
            func context() -> Comment { "\(Ours.protoMessageName), seed \(seed), \(bytes)" }
            let result = Result { try Ours(serializedBytes: bytes) }
            for engine in Engine.allCases {
                let rewritten = Result { try engine.rewritten(bytes, Ours.messageDescriptor) }
                switch (result, rewritten) {
                case (.success(let message), .success(let other)):
                    // libprotobuf-c shortens the tags of unknown fields that were longer than necessary.
                    let ours = try engine.rewritten(message.serializedBytes(), Ours.messageDescriptor)
                    let (one, same) = try (Ours(serializedBytes: ours), Ours(serializedBytes: other))
                    try #require(one == same || Self.hasNaN(message), context())
                case (.failure(let error as MessageError), .failure(let other as MessageError)):
                    #expect(error.reason == other.reason, context())
                case (.failure(let error as MessageError), .success):
                    // The default message of a map entry without a value may lack required fields.
                    guard case .missingRequiredField = error.reason else {
                        Issue.record(error, context())
                        continue
                    }
                default:
                    Issue.record("\(engine) has \(rewritten), generated code \(result): \(context())")
                }
            }
            #if canImport(HHSocketProtobufC)
            let isServed = bytes.withUnsafeBytes { DynamicCodec(Ours.messageDescriptor).unpacked($0) != nil }
            if isServed { self.servedByProtobufC += 1 }
            #endif
            guard case .success(let message) = result else {
                self.refused += 1
                return
            }
            self.read += 1
            let again = try Ours(serializedBytes: message.serializedBytes())
            try #require(again == message || Self.hasNaN(message), context())
        }

        /// A NaN is not equal to itself. (A message with one may be, since arrays with shared storage are equal.)
        private static func hasNaN(_ message: some ProtobufMessage) -> Bool { "\(message)".contains("nan") }
    }

    @Test func enginesAgreeOnWhatIsSound() throws {
        let messages = scaled(60)
        var comparison = Comparison(messages: messages, mutations: 0, seed: 1)
        try Samples.visitAll(&comparison)
        #expect(comparison.refused == 0)
        #expect(comparison.read == messages * Samples.countOfAll)
        #if canImport(HHSocketProtobufC)
        #expect(comparison.servedByProtobufC > comparison.read / 4)
        #endif
    }

    @Test func enginesAgreeOnWhatIsWrong() throws {
        var comparison = Comparison(messages: scaled(12), mutations: 25, seed: 1_000_000)
        try Samples.visitAll(&comparison)
        #expect(comparison.refused > scaled(1_000))
        #expect(comparison.read > scaled(600))
    }
}
