// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes the client of a service.
struct ClientGenerator {
    private let service: String
    private let methods: [Method]
    private let context: Context

    init(service: String, _ methods: [Method], _ context: Context) {
        self.service = service
        self.methods = methods
        self.context = context
    }

    func print(_ printer: inout CodePrinter) {
        let access = self.context.access
        printer.print("", "extension \(self.service) {")
        printer.withIndentation { printer in
            printer.print("/// A client of the service.", "\(access)struct Client: ClientProtocol {")
            printer.withIndentation { printer in
                printer.print(
                    "/// The client that makes the calls.",
                    "\(access)let client: HHSocketRPC.SocketClient",
                    "",
                    "\(access)init(_ client: HHSocketRPC.SocketClient) { self.client = client }"
                )
                for method in self.methods { self.print(method, &printer) }
                printer.print(
                    "",
                    "\(ClientProtocolGenerator.pushes(access: access)) {",
                    "    self.client.pushes(type, buffering: buffering)",
                    "}"
                )
            }
            printer.print("}")
        }
        printer.print("}")
    }

    private func print(_ method: Method, _ printer: inout CodePrinter) {
        let function = method.shape == .unary ? "call" : method.shape.rawValue
        let request = method.hasOneRequest ? ", request" : ""
        // Not qualified, because a service may have the name of a component.
        let arguments = "Methods.\(method.used)\(request), options: options"
        // It needs no comment: documentation inherits that of the requirement.
        printer.print(
            "",
            "\(method.clientSignature(access: self.context.access)) {",
            "    try await self.client.\(function)(\(arguments))",
            "}"
        )
    }
}
