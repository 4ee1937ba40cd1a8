import SwiftProtobufPluginLibrary

/// Writes the protocol to which a client and its mock conform.
struct ClientProtocolGenerator {
    /// The function that returns the pushes of one type; the buffering policy has no default.
    static func pushes(access: String) -> String {
        """
        \(access)func pushes<Push: \(Names.runtime).PushMessage>(
            _ type: Push.Type,
            buffering: HHSocketRPC.PushBufferingPolicy
        ) -> HHSocketRPC.MessagePushes<Push>
        """
    }

    private let service: String
    private let methods: [Method]
    private let context: Context

    init(service: String, _ methods: [Method], _ context: Context) {
        self.service = service
        self.methods = methods.filter(\.isUnary)
        self.context = context
    }

    func print(_ printer: inout CodePrinter) {
        printer.print("", "extension \(self.service) {")
        printer.withIndentation { printer in
            printer.print(
                "/// A caller of the service: ``Client``, or ``MockClient`` in tests.",
                "\(self.context.access)protocol ClientProtocol: Sendable {"
            )
            printer.withIndentation { printer in
                for method in self.methods {
                    printer.print("\(method.comment)\(method.clientSignature(access: ""))", "")
                }
                printer.print(
                    "/// The pushes of one type, from now on. Each call gives a sequence of its own.",
                    Self.pushes(access: "")
                )
            }
            printer.print("}")
        }
        printer.print("}", "", "extension \(self.service).ClientProtocol {")
        printer.withIndentation { printer in self.printDefaults(&printer) }
        printer.print("}")
    }

    /// Prints overloads with default arguments, for clients and mocks.
    private func printDefaults(_ printer: inout CodePrinter) {
        let access = self.context.access
        for method in self.methods {
            printer.print(
                "\(method.comment)\(access)nonisolated(nonsending) func \(method.declared)(",
                "    _ request: \(method.request)",
                ") async throws(HHSocketRPC.SocketError) -> \(method.response) {",
                "    try await self.\(method.used)(request, options: .init())",
                "}",
                ""
            )
        }
        printer.print(
            "/// The pushes of one type, from now on. Each call gives a sequence of its own.",
            "\(access)func pushes<Push: \(Names.runtime).PushMessage>(_ type: Push.Type) -> "
                + "HHSocketRPC.MessagePushes<Push> {",
            "    self.pushes(type, buffering: .default)",
            "}"
        )
    }
}
