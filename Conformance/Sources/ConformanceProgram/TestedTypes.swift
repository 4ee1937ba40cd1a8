// SPDX-License-Identifier: Apache-2.0
import ConformanceMessages
import Foundation
import HHSocketMessage

/// The messages that the runner sends, by name, with their extensions.
struct TestedTypes {
    private let types: [String: any ProtobufMessage.Type]
    private let extensions: [MessageExtension]
    private let anyTypes: MessageTypes

    init() {
        typealias Proto2 = ProtobufTestMessages_Proto2_TestAllTypesProto2
        typealias EditionsProto2 = ProtobufTestMessages_Editions_Proto2_TestAllTypesProto2
        let types: [any ProtobufMessage.Type] = [
            Proto2.self, ProtobufTestMessages_Proto3_TestAllTypesProto3.self,
            EditionsProto2.self, ProtobufTestMessages_Editions_Proto3_TestAllTypesProto3.self,
            ProtobufTestMessages_Editions_TestAllTypesEdition2023.self,
            ProtobufTestMessages_EditionUnstable_TestAllTypesEditionUnstable.self,
        ]
        let extensions = [
            ProtobufTestMessages_Proto2_Extensions_extension_int32,
            ProtobufTestMessages_Proto2_Extensions_extension_string,
            ProtobufTestMessages_Proto2_Extensions_extension_bytes,
            ProtobufTestMessages_Proto2_Extensions_GroupField,
            Proto2.MessageSetCorrectExtension1.Extensions.message_set_extension,
            Proto2.MessageSetCorrectExtension2.Extensions.message_set_extension,
            Proto2.ExtensionWithOneof.Extensions.extension_with_oneof,
            ProtobufTestMessages_Editions_Proto2_Extensions_extension_int32,
            ProtobufTestMessages_Editions_Proto2_Extensions_extension_string,
            ProtobufTestMessages_Editions_Proto2_Extensions_extension_bytes,
            ProtobufTestMessages_Editions_Proto2_Extensions_GroupField,
            EditionsProto2.MessageSetCorrectExtension1.Extensions.message_set_extension,
            EditionsProto2.MessageSetCorrectExtension2.Extensions.message_set_extension,
            EditionsProto2.ExtensionWithOneof.Extensions.extension_with_oneof,
            ProtobufTestMessages_Editions_Extensions_extension_int32,
            ProtobufTestMessages_Editions_Extensions_extension_string,
            ProtobufTestMessages_Editions_Extensions_extension_bytes,
            ProtobufTestMessages_Editions_Extensions_GroupLikeType,
            ProtobufTestMessages_Editions_Extensions_delimited_ext,
            ProtobufTestMessages_EditionUnstable_Extensions_extension_int32,
        ]
        self.types = Dictionary(uniqueKeysWithValues: types.map { ($0.protoMessageName, $0) })
        self.extensions = extensions
        self.anyTypes = MessageTypes(types, extensions: extensions)
    }

    func response(to request: Conformance_ConformanceRequest) -> Conformance_ConformanceResponse {
        if request.messageType == Conformance_FailureSet.protoMessageName {
            // Older runners ask for the expected failures, which Conformance/failures.txt lists instead.
            return .with { $0.protobufPayload = Data() }
        }
        guard let type = self.types[request.messageType] else {
            return .with { $0.runtimeError = "the message type \(request.messageType) is not known" }
        }
        return self.response(to: request, type)
    }

    private func response<Message: ProtobufMessage>(
        to request: Conformance_ConformanceRequest,
        _ type: Message.Type
    ) -> Conformance_ConformanceResponse {
        let message: Message
        do {
            switch request.payload {
            case .protobufPayload(let bytes):
                message = try Message(serializedBytes: bytes, extensions: self.extensions)
            case .jsonPayload(let text):
                var options = MessageJSON.DecodingOptions()
                options.ignoreUnknownFields = request.testCategory == .jsonIgnoreUnknownParsingTest
                options.types = self.anyTypes
                message = try Message(jsonString: text, options: options)
            case .textPayload: return .with { $0.skipped = "there is no text format" }
            case .jspbPayload: return .with { $0.skipped = "there is no JSPB" }
            case nil: return .with { $0.runtimeError = "the request has no payload" }
            }
        } catch {
            return .with { $0.parseError = "\(error)" }
        }
        do {
            switch request.requestedOutputFormat {
            case .protobuf:
                // Equal messages have equal bytes in each run.
                let bytes = try message.withCanonicalMessageBytes { Data($0) }
                return .with { $0.protobufPayload = bytes }
            case .json:
                var options = MessageJSON.EncodingOptions()
                options.types = self.anyTypes
                let text = try message.jsonString(options: options)
                return .with { $0.jsonPayload = text }
            case .textFormat: return .with { $0.skipped = "there is no text format" }
            case .jspb: return .with { $0.skipped = "there is no JSPB" }
            case .unspecified, .UNRECOGNIZED:
                return .with { $0.runtimeError = "the format \(request.requestedOutputFormat) is not known" }
            }
        } catch {
            return .with { $0.serializeError = "\(error)" }
        }
    }
}
