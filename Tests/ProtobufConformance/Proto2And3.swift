// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// The types that the runner asks for.
let testMessages: [String: any ProtobufMessage.Type] = [
    "protobuf_test_messages.proto2.TestAllTypesProto2": ProtobufTestMessages_Proto2_TestAllTypesProto2.self,
    "protobuf_test_messages.proto3.TestAllTypesProto3": ProtobufTestMessages_Proto3_TestAllTypesProto3.self,
]

/// The types that an `Any` of the cases may contain, and their extensions.
let anyTypes = MessageTypes(
    Array(testMessages.values),
    extensions: [ProtobufTestMessages_Proto2_Extensions_extension_int32]
)
