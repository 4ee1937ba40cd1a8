// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf

/// The options of `hhsocket/options.proto`, with which a `.proto` assigns types of frames. The generator and the
/// command share this file.
enum CustomOptions {
    /// The number of the field, the same for both.
    static let number = 50501

    /// The option `(hhsocket.message_type)` of methods.
    static let messageType = MessageExtension<OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MethodOptions>(
        _protobuf_fieldNumber: Self.number,
        fieldName: "hhsocket.message_type"
    )

    /// The option `(hhsocket.push_type)` of messages.
    static let pushType = MessageExtension<OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MessageOptions>(
        _protobuf_fieldNumber: Self.number,
        fieldName: "hhsocket.push_type"
    )

    static var all: [any AnyMessageExtension] { [Self.messageType, Self.pushType] }
}
