import SwiftProtobufPluginLibrary

/// A method, as the generators of a service's parts use it.
struct Method {
    let descriptor: MethodDescriptor
    private let names: Names

    init(_ descriptor: MethodDescriptor, _ names: Names) {
        self.descriptor = descriptor
        self.names = names
    }

    /// The type of its frames; nil if the `.proto` gives none.
    var number: UInt32? { self.descriptor.messageType }
    /// Its name in its declaration.
    var declared: String { Names.declared(self.names.method(self.descriptor)) }
    /// Its name after a dot.
    var used: String { self.names.method(self.descriptor) }
    /// The name of a mock's property with its handler.
    var handler: String { self.names.handler(self.descriptor) }
    var request: String { self.names.namer.fullName(message: self.descriptor.inputType) }
    var response: String { self.names.namer.fullName(message: self.descriptor.outputType) }
    var comment: String { DocComment.lines(of: self.descriptor) }

    /// Whether its request and its response are one message each.
    var isUnary: Bool { !self.descriptor.clientStreaming && !self.descriptor.serverStreaming }

    /// The kind in a descriptor.
    var kind: String {
        switch (self.descriptor.clientStreaming, self.descriptor.serverStreaming) {
        case (false, false): ".unary"
        case (false, true): ".serverStream"
        case (true, false): ".clientStream"
        case (true, true): ".bidirectionalStream"
        }
    }

    /// The reason that a streaming method cannot be called.
    var unavailability: String {
        let streams =
            switch (self.descriptor.clientStreaming, self.descriptor.serverStreaming) {
            case (true, true): "streams its requests and its answers"
            case (true, false): "streams its requests"
            default: "streams its answers"
            }
        return "\(self.descriptor.service.fullName)/\(self.descriptor.name) \(streams), which HHSocket does not do yet"
    }

    /// The signature of a client's function for it; the options have no default.
    func clientSignature(access: String) -> String {
        """
        \(access)nonisolated(nonsending) func \(self.declared)(
            _ request: \(self.request),
            options: HHSocketRPC.CallOptions
        ) async throws(HHSocketRPC.SocketError) -> \(self.response)
        """
    }
}
