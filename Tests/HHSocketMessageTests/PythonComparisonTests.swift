// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// Random messages, read and written by us and by Python's protobuf, which shares no code with either engine.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PythonComparisonTests {
    /// The number of messages of each kind.
    private static let messages = scaled(200)

    /// A Python whose protobuf reads and writes messages of editions. Earlier versions know their names and ignore
    /// their features.
    private static let python = TestSupport.python(
        having: "google.protobuf",
        "assert tuple(map(int, google.protobuf.__version__.split('.')[:2])) >= (5, 26)"
    )

    /// Collects the questions to Python.
    private struct Questions: SampleVisitor {
        var seed: UInt64
        var names: [String] = []
        var messages: [[UInt8]] = []

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            for _ in 0..<PythonComparisonTests.messages {
                self.seed += 1
                var forge = Samples.forge(seed: self.seed)
                self.names.append(Ours.protoMessageName)
                // Encoded by us first, so that Python reads our bytes.
                let message = try Ours(serializedBytes: forge.message(Ours.messageDescriptor))
                self.messages.append(try message.serializedBytes())
            }
        }
    }

    /// Compares the answers of Python.
    private struct Answers: SampleVisitor {
        let questions: Questions
        let answers: [[UInt8]]
        var index = 0

        mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
            _ ours: Ours.Type,
            _ theirs: Theirs.Type
        ) throws {
            for _ in 0..<PythonComparisonTests.messages {
                let expected = try Ours(serializedBytes: self.questions.messages[self.index])
                let answered = try Ours(serializedBytes: self.answers[self.index])
                try #require(answered == expected, "\(Ours.protoMessageName), message \(self.index)")
                self.index += 1
            }
        }
    }

    @Test(
        .enabled(
            if: PythonComparisonTests.python != nil,
            "There is no Python with protobuf 5.26 or newer (pip install protobuf): messages are NOT COMPARED with Python's."
        )
    )
    func messagesWrittenAndReadByBothAreTheSame() async throws {
        var questions = Questions(seed: 40_000_000)
        try Samples.visitAll(&questions)
        var input = Data()
        func add(_ piece: some Collection<UInt8>) {
            withUnsafeBytes(of: UInt32(piece.count).bigEndian) { input.append(contentsOf: $0) }
            input.append(contentsOf: piece)
        }
        // The concatenation of sets is a set.
        let sets = try ["protos.pb", "editions.pb"].map { name in
            try Data(contentsOf: packageFolder.appendingPathComponent("Tests/CodegenTests/DescriptorSets/\(name)"))
        }
        add(Data(sets.joined()))
        for (name, message) in zip(questions.names, questions.messages) {
            add(Array(name.utf8))
            add(message)
        }

        let script = packageFolder.appendingPathComponent("Tests/HHSocketMessageTests/python_peer.py")
        let outcome = try await Command.run(
            ["-B", script.path],
            of: try #require(Self.python),
            input: input
        )
        try #require(outcome.exitCode == 0, "\(outcome.errors)")

        var answers: [[UInt8]] = []
        var rest = Array(outcome.output)[...]
        func number() -> UInt32 { rest.prefix(4).reduce(0) { $0 << 8 | UInt32($1) } }
        while rest.count >= 4 {
            let length = number()
            rest = rest.dropFirst(4)
            if length == .max {
                let reason = String(decoding: rest.dropFirst(4).prefix(Int(number())), as: UTF8.self)
                Issue.record("\(questions.names[answers.count]), message \(answers.count): Python says \(reason)")
                return
            }
            answers.append(Array(rest.prefix(Int(length))))
            rest = rest.dropFirst(Int(length))
        }
        try #require(answers.count == questions.messages.count)
        #expect(answers.count == Samples.countOfAll * Self.messages)
        var comparison = Answers(questions: questions, answers: answers)
        try Samples.visitAll(&comparison)
        #expect(comparison.index == answers.count)
    }
}
