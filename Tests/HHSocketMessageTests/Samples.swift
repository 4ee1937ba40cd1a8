// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import ReferenceMessages
import SwiftProtobuf
import TestSupport
import Testing

@testable import HHSocketMessage

/// A test's operation on a message of ours and on its counterpart of swift-protobuf.
protocol SampleVisitor {
    mutating func visit<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Equatable>(
        _ ours: Ours.Type,
        _ theirs: Theirs.Type
    ) throws
}

/// The messages of everything.proto (proto3) and everything2.proto (proto2), which together have every kind of field,
/// of extended.proto and groups.proto, and of an edition.
enum Samples {
    static func forge(seed: UInt64) -> MessageForge { MessageForge(seed: seed) }

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
        try visitor.visit(GeneratedSamples.Extended_Animal.self, ReferenceMessages.Extended_Animal.self)
        try visitor.visit(GeneratedSamples.Extended_Collar.self, ReferenceMessages.Extended_Collar.self)
        try visitor.visit(GeneratedSamples.Edition_Features.self, ReferenceMessages.Edition_Features.self)
        try visitor.visit(GeneratedSamples.Every_Groups_Groups.self, ReferenceMessages.Every_Groups_Groups.self)
    }

    /// The number of kinds.
    static let count = 23

    /// Visits a message of known.proto, too, whose random content has no form in JSON. The messages that describe types
    /// are left out, because those of swift-protobuf have one field more than those of the oldest protoc.
    static func visitAll(_ visitor: inout some SampleVisitor) throws {
        try Self.visit(&visitor)
        try visitor.visit(GeneratedSamples.Every_Known_Known.self, ReferenceMessages.Every_Known_Known.self)
    }

    /// The number of kinds that ``visitAll(_:)`` visits.
    static let countOfAll = 24
}
