// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// A method, in the form that the generators of a service use.
struct Method {
    /// The sides that send a stream of messages instead of one. Each case has the name of its kind in a descriptor.
    enum Shape: String {
        case unary, clientStream, serverStream, bidirectionalStream
    }

    let descriptor: MethodDescriptor
    private let names: Names

    init(_ descriptor: MethodDescriptor, _ names: Names) {
        self.descriptor = descriptor
        self.names = names
    }

    /// The type of its frames; nil if the `.proto` declares none.
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

    var shape: Shape {
        switch (self.descriptor.clientStreaming, self.descriptor.serverStreaming) {
        case (false, false): .unary
        case (false, true): .serverStream
        case (true, false): .clientStream
        case (true, true): .bidirectionalStream
        }
    }

    /// The effect of calling the method again, as the `.proto` declares it; nil if it does not.
    var idempotency: String? {
        switch self.descriptor.options.idempotencyLevel {
        case .noSideEffects: "noSideEffects"
        case .idempotent: "idempotent"
        case .idempotencyUnknown: nil
        }
    }

    /// Whether a caller passes one request, rather than sends several over a stream.
    var hasOneRequest: Bool { !self.descriptor.clientStreaming }

    /// The type that a client's function for it returns.
    var returned: String { self.shape == .unary ? self.response : self.stream }

    /// A client's end of its stream.
    var stream: String { "HHSocketRPC.MessageStream<\(self.request), \(self.response)>" }

    /// The signature of a client's function for it.
    ///
    /// - Parameter options: Whether the call's options are a parameter, which has no default.
    func clientSignature(access: String, options: Bool = true) -> String {
        var parameters: [String] = []
        if self.hasOneRequest { parameters.append("_ request: \(self.request)") }
        if options { parameters.append("options: HHSocketRPC.CallOptions") }
        return """
            \(access)nonisolated(nonsending) func \(self.declared)(\(Self.list(parameters))\
            ) async throws(HHSocketRPC.SocketError) -> \(self.returned)
            """
    }

    /// The declaration of a service's function for it.
    var serviceSignature: String {
        let requests = "_ requests: HHSocketServer.RequestMessages<\(self.request)>"
        var parameters = [self.hasOneRequest ? "_ request: \(self.request)" : requests]
        if self.descriptor.serverStreaming {
            parameters.append("to responses: HHSocketServer.MessageWriter<\(self.response)>")
        }
        parameters.append("context: HHSocketServer.ServerContext")
        let returned = self.descriptor.serverStreaming ? "" : " -> \(self.response)"
        return "func \(self.declared)(\(Self.list(parameters))) async throws\(returned)"
    }

    /// Parameters in parentheses, one per line.
    private static func list(_ parameters: [String]) -> String {
        parameters.isEmpty ? "" : "\n\(parameters.map { "    \($0)" }.joined(separator: ",\n"))\n"
    }
}
