// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// The types of edition 2023 that correspond to those that the runner asks for.
let testMessages: [String: any ProtobufMessage.Type] = [
    "protobuf_test_messages.proto2.TestAllTypesProto2":
        ProtobufTestMessages_Editions_Proto2_TestAllTypesProto2.self,
    "protobuf_test_messages.proto3.TestAllTypesProto3":
        ProtobufTestMessages_Editions_Proto3_TestAllTypesProto3.self,
]

/// The types that an `Any` of the cases may contain, and their extensions.
let anyTypes = MessageTypes(
    [ProtobufTestMessages_Proto3_TestAllTypesProto3.self],
    extensions: [ProtobufTestMessages_Editions_Proto2_Extensions_extension_int32]
)
