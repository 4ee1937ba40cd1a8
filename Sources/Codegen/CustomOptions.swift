import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// The options of `hhsocket/options.proto`.
enum CustomOptions {
    /// The number of the field, the same for both.
    static let number = 50501

    static let messageType = MessageExtension<OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MethodOptions>(
        _protobuf_fieldNumber: Self.number,
        fieldName: "hhsocket.message_type"
    )
    static let pushType = MessageExtension<OptionalExtensionField<ProtobufUInt32>, Google_Protobuf_MessageOptions>(
        _protobuf_fieldNumber: Self.number,
        fieldName: "hhsocket.push_type"
    )

    static var all: [any AnyMessageExtension] { [Self.messageType, Self.pushType] }
}

extension MethodDescriptor {
    /// The number by which the method is called; nil if it says none.
    var messageType: UInt32? { self.options.getExtensionValue(ext: CustomOptions.messageType) }
}

extension Descriptor {
    /// The number by which the message is pushed; nil if it is not.
    var pushType: UInt32? { self.options.getExtensionValue(ext: CustomOptions.pushType) }
}
