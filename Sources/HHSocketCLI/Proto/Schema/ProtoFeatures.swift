// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf

/// The features of protobuf's editions that a message's encoding depends on. Those of proto2 and proto3 are fixed.
struct ProtoFeatures: Sendable {
    private(set) var presence: Google_Protobuf_FeatureSet.FieldPresence
    /// Whether enumerations have only the values that are declared.
    private(set) var hasClosedEnums: Bool
    /// Whether repeated numbers are packed, unless the field specifies otherwise.
    private(set) var isPacked: Bool
    /// Whether messages are encoded between two tags instead of with a length.
    private(set) var hasGroups = false

    /// Creates the features of a file; nil for a syntax that is not supported.
    init?(_ file: Google_Protobuf_FileDescriptorProto) {
        switch file.syntax {
        case "", "proto2": (self.presence, self.hasClosedEnums, self.isPacked) = (.explicit, true, false)
        case "proto3": (self.presence, self.hasClosedEnums, self.isPacked) = (.implicit, false, true)
        case "editions" where file.edition == .edition2023 || file.edition == .edition2024:
            (self.presence, self.hasClosedEnums, self.isPacked) = (.explicit, false, true)
            self = self.overridden(by: file.options.features)
        default: return nil
        }
    }

    /// Returns the features with those that an inner declaration sets.
    func overridden(by features: Google_Protobuf_FeatureSet) -> Self {
        var result = self
        if features.fieldPresence != .unknown { result.presence = features.fieldPresence }
        if features.enumType != .unknown { result.hasClosedEnums = features.enumType == .closed }
        if features.repeatedFieldEncoding != .unknown { result.isPacked = features.repeatedFieldEncoding == .packed }
        if features.messageEncoding != .unknown { result.hasGroups = features.messageEncoding == .delimited }
        return result
    }
}
