import SwiftProtobufPluginLibrary

/// Writes the protocol that a server implements, and its registration with a router.
struct ServerGenerator {
    private let descriptor: ServiceDescriptor
    private let name: String
    private let methods: [Method]
    private let streams: [Method]
    private let context: Context

    init(_ descriptor: ServiceDescriptor, name: String, _ methods: [Method], _ context: Context) {
        self.descriptor = descriptor
        self.name = name
        self.methods = methods.filter(\.isUnary)
        self.streams = methods.filter { !$0.isUnary }
        self.context = context
    }

    func print(_ printer: inout CodePrinter) {
        printer.print("", "extension \(self.name) {")
        printer.withIndentation { printer in
            printer.print("/// The methods of the service, as a server implements them.")
            // They are not requirements: one that cannot be called would still have to be implemented.
            for method in self.streams { printer.print("///", "/// \(method.unavailability).") }
            printer.print("\(self.context.access)protocol ServiceProtocol: Sendable {")
            printer.withIndentation { printer in
                for (index, method) in self.methods.enumerated() {
                    if index > 0 { printer.print() }
                    printer.print(
                        "\(method.comment)func \(method.declared)(",
                        "    _ request: \(method.request),",
                        "    context: HHSocketServer.ServerContext",
                        ") async throws -> \(method.response)"
                    )
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
            "///   - as: Needed only where one type implements several services: `\(self.name).self`.",
            "///   - executor: Where the methods run; nil, the default: as `handlerExecutor` says.",
            "\(self.context.access)mutating func register("
        )
        printer.printIndented(
            "_ service: some \(self.name).ServiceProtocol,",
            "as _: \(self.name).Type = \(self.name).self,",
            "on executor: HHSocketServer.HandlerExecutor? = nil"
        )
        printer.print(") {")
        printer.withIndentation { printer in
            for method in self.methods {
                printer.print(
                    "self.handle(\(self.name).Methods.\(method.used), on: executor) { request, context in",
                    "    try await service.\(method.used)(request, context: context)",
                    "}"
                )
            }
        }
        printer.print("}")
    }
}
