import SwiftProtobuf

/// The options of `hhsocket/options.proto`, which say the types of frames.
enum NumberOptions {
    /// `(hhsocket.message_type)` of methods.
    static let messageType = MessageExtension<
        OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MethodOptions
    >(_protobuf_fieldNumber: 50501, fieldName: "hhsocket.message_type")

    /// `(hhsocket.push_type)` of messages.
    static let pushType = MessageExtension<
        OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MessageOptions
    >(_protobuf_fieldNumber: 50501, fieldName: "hhsocket.push_type")

    static let extensions: SimpleExtensionMap = [Self.messageType, Self.pushType]
}
