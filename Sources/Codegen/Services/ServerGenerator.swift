// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes the protocol that a server implements, and its registration with a router.
struct ServerGenerator {
    let service: Service

    func print(_ printer: inout CodePrinter) {
        printer.printBlock("", "extension \(self.service.name) {") { printer in
            printer.printBlock(
                "/// The methods of the service, as a server implements them.",
                "\(self.service.context.access)protocol ServiceProtocol: Sendable {"
            ) { printer in
                for (index, method) in self.service.methods.enumerated() {
                    if index > 0 { printer.print() }
                    printer.print("\(method.comment)\(method.serviceSignature)")
                }
            }
        }
        printer.printBlock("", "extension HHSocketServer.Router {") { printer in self.printRegistration(&printer) }
    }

    private func printRegistration(_ printer: inout CodePrinter) {
        printer.print(
            "/// Answers every method of `\(self.service.descriptor.fullName)` with `service`.",
            "///",
            "/// - Parameters:",
            "///   - as: Required only if one type implements several services: `\(self.service.name).self`.",
            "///   - executor: The executor of the methods; nil, the default, for `handlerExecutor`.",
            "\(self.service.context.access)mutating func register("
        )
        printer.printIndented(
            "_ service: some \(self.service.name).ServiceProtocol,",
            "as _: \(self.service.name).Type = \(self.service.name).self,",
            "on executor: HHSocketServer.HandlerExecutor? = nil"
        )
        printer.printBlock(") {") { printer in
            for method in self.service.methods { self.printRegistration(of: method, &printer) }
        }
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
            "self.\(function)(\(self.service.name).Methods.\(method.used), on: executor) { \(parameters), context in",
            "    try await service.\(method.used)(\(arguments), context: context)",
            "}"
        )
    }
}
