// SPDX-License-Identifier: Apache-2.0
public import HHSocketMessage
public import SwiftProtobuf

// The conformances of swift-protobuf's own messages, which no generated file declares.
extension SwiftProtobuf.Google_Protobuf_Any: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_BoolValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_BytesValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_DoubleValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Duration: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Empty: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_FieldMask: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_FloatValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Int32Value: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Int64Value: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_ListValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_StringValue: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Struct: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Timestamp: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_UInt32Value: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_UInt64Value: MessageBody {}
extension SwiftProtobuf.Google_Protobuf_Value: MessageBody {}
