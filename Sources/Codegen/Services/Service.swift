// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// A service, in the form that its generators use.
struct Service {
    let descriptor: ServiceDescriptor
    /// The namespace of everything that is generated for it.
    let name: String
    let methods: [Method]
    let context: Context

    init(_ descriptor: ServiceDescriptor, _ context: Context) {
        self.descriptor = descriptor
        self.name = context.names.service(descriptor)
        self.methods = descriptor.methods.map { Method($0, context.names) }
        self.context = context
    }
}
