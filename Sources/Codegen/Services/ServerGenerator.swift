// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes the protocol that a server implements, and its registration with a router.
struct ServerGenerator {
    private let descriptor: ServiceDescriptor
    private let name: String
    private let methods: [Method]
    private let context: Context

    init(_ descriptor: ServiceDescriptor, name: String, _ methods: [Method], _ context: Context) {
        self.descriptor = descriptor
        self.name = name
        self.methods = methods
        self.context = context
    }

    func print(_ printer: inout CodePrinter) {
        printer.print("", "extension \(self.name) {")
        printer.withIndentation { printer in
            printer.print(
                "/// The methods of the service, as a server implements them.",
                "\(self.context.access)protocol ServiceProtocol: Sendable {"
            )
            printer.withIndentation { printer in
                for (index, method) in self.methods.enumerated() {
                    if index > 0 { printer.print() }
                    printer.print("\(method.comment)\(method.serviceSignature)")
                }
            }
            printer.print("}")
        }
        printer.print("}", "", "extension HHSocketServer.Router {")
        printer.withIndentation { printer in self.printRegistration(&printer) }
        printer.print("}")
    }

    private func printRegistration(_ printer: inout CodePrinter) {
        printer.print(
            "/// Answers every method of `\(self.descriptor.fullName)` with `service`.",
            "///",
            "/// - Parameters:",
            "///   - as: Required only if one type implements several services: `\(self.name).self`.",
            "///   - executor: The executor of the methods; nil, the default, for `handlerExecutor`.",
            "\(self.context.access)mutating func register("
        )
        printer.printIndented(
            "_ service: some \(self.name).ServiceProtocol,",
            "as _: \(self.name).Type = \(self.name).self,",
            "on executor: HHSocketServer.HandlerExecutor? = nil"
        )
        printer.print(") {")
        printer.withIndentation { printer in
            for method in self.methods { self.printRegistration(of: method, &printer) }
        }
        printer.print("}")
    }

    private func printRegistration(of method: Method, _ printer: inout CodePrinter) {
        let (function, parameters, arguments) =
            switch method.shape {
            case .unary: ("handle", "request", "request")
            case .clientStream: ("handleClientStream", "requests", "requests")
            case .serverStream: ("handleServerStream", "request, responses", "request, to: responses")
            case .bidirectionalStream:
                ("handleBidirectionalStream", "requests, responses", "requests, to: responses")
            }
        printer.print(
            "self.\(function)(\(self.name).Methods.\(method.used), on: executor) { \(parameters), context in",
            "    try await service.\(method.used)(\(arguments), context: context)",
            "}"
        )
    }
}
