import SwiftProtobufPluginLibrary

/// What the generators of a service's parts need to know about a method.
struct Method {
    let descriptor: MethodDescriptor
    private let names: Names

    init(_ descriptor: MethodDescriptor, _ names: Names) {
        self.descriptor = descriptor
        self.names = names
    }

    /// Nil if the `.proto` says none.
    var number: UInt32? { self.descriptor.messageType }
    /// Its name where it is declared.
    var declared: String { Names.declared(self.names.method(self.descriptor)) }
    /// Its name behind a point.
    var used: String { self.names.method(self.descriptor) }
    /// The property of a mock that answers for it.
    var handler: String { self.names.handler(self.descriptor) }
    var request: String { self.names.namer.fullName(message: self.descriptor.inputType) }
    var response: String { self.names.namer.fullName(message: self.descriptor.outputType) }
    var comment: String { DocComment.lines(of: self.descriptor) }

    /// Whether it takes one message and answers with one.
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

    /// Why it cannot be called.
    var unavailability: String {
        let streams =
            switch (self.descriptor.clientStreaming, self.descriptor.serverStreaming) {
            case (true, true): "streams its requests and its answers"
            case (true, false): "streams its requests"
            default: "streams its answers"
            }
        return "\(self.descriptor.service.fullName)/\(self.descriptor.name) \(streams), which HHSocket does not do yet"
    }

    /// The function that a client has for it; the options have no default.
    func clientSignature(access: String) -> String {
        """
        \(access)nonisolated(nonsending) func \(self.declared)(
            _ request: \(self.request),
            options: HHSocketRPC.CallOptions
        ) async throws(HHSocketRPC.SocketError) -> \(self.response)
        """
    }
}
