import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// A message of ours and the same of swift-protobuf's: what a test is to do with both of them.
protocol SampleVisitor {
    mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
        _ ours: Ours.Type,
        _ theirs: Theirs.Type
    ) throws
}

/// The messages of everything.proto (proto3) and everything2.proto (proto2), which between them have every kind of
/// field.
enum Samples {
    static let closedEnums: [String: [Int32]] = [
        "size": [3, 5, -1], "sizes": [3, 5, -1], "packed_sizes": [3, 5, -1], "first_size": [3, 5, -1],
        "middle": [3, 5, -1], "none": [3, 5, -1], "twice": [1], "flavours_by_name": [0, 1],
    ]

    static func forge(seed: UInt64) -> MessageForge {
        var forge = MessageForge(seed: seed)
        forge.closedEnums = Self.closedEnums
        return forge
    }

    static func visit(_ visitor: inout some SampleVisitor) throws {
        try visitor.visit(GeneratedSamples.Every_Thing_Scalars.self, ReferenceMessages.Every_Thing_Scalars.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Optionals.self, ReferenceMessages.Every_Thing_Optionals.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Repeated.self, ReferenceMessages.Every_Thing_Repeated.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Maps.self, ReferenceMessages.Every_Thing_Maps.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Choices.self, ReferenceMessages.Every_Thing_Choices.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Node.self, ReferenceMessages.Every_Thing_Node.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Expression.self, ReferenceMessages.Every_Thing_Expression.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Outer.self, ReferenceMessages.Every_Thing_Outer.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Reserved.self, ReferenceMessages.Every_Thing_Reserved.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Keywords.self, ReferenceMessages.Every_Thing_Keywords.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Nothing.self, ReferenceMessages.Every_Thing_Nothing.self)
        try visitor.visit(GeneratedSamples.Every_Thing_WellKnown.self, ReferenceMessages.Every_Thing_WellKnown.self)
        try visitor.visit(GeneratedSamples.Every_Thing_Numbers.self, ReferenceMessages.Every_Thing_Numbers.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Required.self, ReferenceMessages.Every_Thing2_Required.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Optionals.self, ReferenceMessages.Every_Thing2_Optionals.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Defaults.self, ReferenceMessages.Every_Thing2_Defaults.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Repeated.self, ReferenceMessages.Every_Thing2_Repeated.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Choices.self, ReferenceMessages.Every_Thing2_Choices.self)
        try visitor.visit(GeneratedSamples.Every_Thing2_Extensible.self, ReferenceMessages.Every_Thing2_Extensible.self)
    }

    /// How many there are.
    static let count = 19
}
