import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// Each engine alone, and both side by side where there are two: sound bytes, and bytes with something wrong in them.
@Suite struct EngineComparisonTests {
    private struct Comparison: SampleVisitor {
        let messages: Int
        let mutations: Int
        var seed: UInt64
        var refused = 0
        var read = 0

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
            var results: [Result<Ours, any Error>] = []
            for engine in Engines.all { results.append(Result { try engine.read(bytes, as: Ours.self) }) }
            let seed = self.seed
            func context() -> Comment { "\(Ours.protoMessageName), seed \(seed), \(bytes)" }
            switch results[0] {
            case .success(let message):
                self.read += 1
                for result in results.dropFirst() {
                    let other = try result.get()
                    try #require(other == message || Self.hasNaN(message), context())
                }
                try self.compareBytes(message, context)
            case .failure(let error):
                self.refused += 1
                let expected = try #require(error as? MessageError, context())
                for result in results.dropFirst() {
                    #expect(throws: expected, context()) { try result.get() }
                }
            }
        }

        /// A NaN is not equal to itself. (A message with one may be, for arrays are when they are the same.)
        private static func hasNaN(_ message: some ProtobufMessage) -> Bool { "\(message)".contains("nan") }

        /// Written by each, it is the same again for each.
        private func compareBytes<Ours: ProtobufMessage>(_ message: Ours, _ context: () -> Comment) throws {
            for writer in Engines.all {
                let bytes: [UInt8]
                do {
                    bytes = try writer.write(message)
                } catch let error as MessageError where self.mutations > 0 {
                    // A required number that a closed enumeration does not know, or a map's value that is missing.
                    guard case .missingRequiredField = error.reason else { throw error }
                    return
                }
                for reader in Engines.all {
                    let read = try reader.read(bytes, as: Ours.self)
                    try #require(read == message || Self.hasNaN(message), context())
                }
            }
        }
    }

    @Test func enginesAgreeOnWhatIsSound() throws {
        let messages = scaled(60)
        var comparison = Comparison(messages: messages, mutations: 0, seed: 1)
        try Samples.visit(&comparison)
        #expect(comparison.refused == 0)
        #expect(comparison.read == messages * Samples.count)
    }

    @Test func enginesAgreeOnWhatIsWrong() throws {
        var comparison = Comparison(messages: scaled(12), mutations: 25, seed: 1_000_000)
        try Samples.visit(&comparison)
        #expect(comparison.refused > scaled(1_000))
        #expect(comparison.read > scaled(1_000))
    }
}
