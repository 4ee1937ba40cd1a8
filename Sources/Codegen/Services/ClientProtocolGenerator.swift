// SPDX-License-Identifier: Apache-2.0
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

    let service: Service

    func print(_ printer: inout CodePrinter) {
        printer.printBlock("", "extension \(self.service.name) {") { printer in
            printer.printBlock(
                "/// A caller of the service: ``Client``, or ``MockClient`` in tests.",
                "\(self.service.context.access)protocol ClientProtocol: Sendable {"
            ) { printer in
                for method in self.service.methods {
                    printer.print("\(method.comment)\(method.clientSignature(access: ""))", "")
                }
                printer.print(
                    "/// Returns the pushes of one type from now on. Each call returns a separate sequence.",
                    Self.pushes(access: "")
                )
            }
        }
        printer.printBlock("", "extension \(self.service.name).ClientProtocol {") { self.printDefaults(&$0) }
    }

    /// Prints overloads with default arguments, for clients and mocks.
    private func printDefaults(_ printer: inout CodePrinter) {
        let access = self.service.context.access
        for method in self.service.methods {
            let arguments = method.hasOneRequest ? "request, options: .init()" : "options: .init()"
            printer.print(
                "\(method.comment)\(method.clientSignature(access: access, options: false)) {",
                "    try await self.\(method.used)(\(arguments))",
                "}",
                ""
            )
            if method.shape == .clientStream { self.printProducer(of: method, &printer) }
        }
        printer.print(
            "/// Returns the pushes of one type from now on. Each call returns a separate sequence.",
            "\(access)func pushes<Push: \(Names.runtime).PushMessage>(_ type: Push.Type) -> "
                + "HHSocketRPC.MessagePushes<Push> {",
            "    self.pushes(type, buffering: .default)",
            "}"
        )
    }

    /// Prints the overload that sends the messages that a closure produces, and returns the answer.
    private func printProducer(of method: Method, _ printer: inout CodePrinter) {
        let comment = method.comment
        printer.print(
            "\(comment)\(comment.isEmpty ? "" : "///\n")"
                + "/// - Parameter produce: Sends the requests. The stream is finished when it returns, and cancelled "
                + "if it throws.",
            "\(self.service.context.access)nonisolated(nonsending) func \(method.declared)(",
            "    options: HHSocketRPC.CallOptions = .init(),",
            "    _ produce: nonisolated(nonsending) (\(method.stream)) async throws -> Swift.Void",
            ") async throws -> \(method.response) {",
            "    try await self.\(method.used)(options: options).answer(to: produce)",
            "}",
            ""
        )
    }
}
