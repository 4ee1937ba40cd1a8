// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

extension MethodDescriptor {
    /// The type of the method's frames; nil if the `.proto` declares none.
    var messageType: UInt32? { self.options.getExtensionValue(ext: CustomOptions.messageType) }
}

extension Descriptor {
    /// The type of the frames that push the message; nil if it is not pushed.
    var pushType: UInt32? { self.options.getExtensionValue(ext: CustomOptions.pushType) }
}
