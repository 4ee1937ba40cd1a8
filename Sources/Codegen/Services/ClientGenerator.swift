// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes the client of a service.
struct ClientGenerator {
    let service: Service

    func print(_ printer: inout CodePrinter) {
        let access = self.service.context.access
        printer.printBlock("", "extension \(self.service.name) {") { printer in
            printer.printBlock("/// A client of the service.", "\(access)struct Client: ClientProtocol {") { printer in
                printer.print(
                    "/// The client that makes the calls.",
                    "\(access)let client: HHSocketRPC.SocketClient",
                    "",
                    "\(access)init(_ client: HHSocketRPC.SocketClient) { self.client = client }"
                )
                for method in self.service.methods { self.print(method, &printer) }
                printer.print(
                    "",
                    "\(ClientProtocolGenerator.pushes(access: access)) {",
                    "    self.client.pushes(type, buffering: buffering)",
                    "}"
                )
            }
        }
    }

    private func print(_ method: Method, _ printer: inout CodePrinter) {
        let function = method.shape == .unary ? "call" : method.shape.rawValue
        let request = method.hasOneRequest ? ", request" : ""
        // Not qualified, because a service may have the name of a component.
        let arguments = "Methods.\(method.used)\(request), options: options"
        // It needs no comment: documentation inherits that of the requirement.
        printer.print(
            "",
            "\(method.clientSignature(access: self.service.context.access)) {",
            "    try await self.client.\(function)(\(arguments))",
            "}"
        )
    }
}
