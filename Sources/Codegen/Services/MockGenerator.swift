// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes a mock client for tests of applications, which answers calls with handlers.
struct MockGenerator {
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
            printer.print(
                "/// Answers calls with the handlers that a test sets. A call without a handler throws.",
                "\(access)struct MockClient: ClientProtocol {"
            )
            printer.withIndentation { printer in
                for method in self.methods {
                    let request = method.hasOneRequest ? method.request : ""
                    let handler = "@Sendable (\(request)) async throws -> \(method.returned)"
                    printer.print(
                        "/// The handler of `\(method.used)`.",
                        "\(access)var \(method.handler): (\(handler))?"
                    )
                }
                printer.print(
                    "/// Sends pushes to every sequence that this mock has returned.",
                    "\(access)let pushSource = HHSocketRPC.MockPushes()",
                    "",
                    "\(access)init() {}"
                )
                for method in self.methods { self.print(method, &printer) }
                printer.print(
                    "",
                    "\(ClientProtocolGenerator.pushes(access: access)) {",
                    "    self.pushSource.pushes(type)",
                    "}"
                )
            }
            printer.print("}")
        }
        printer.print("}")
    }

    private func print(_ method: Method, _ printer: inout CodePrinter) {
        printer.print(
            "",
            "\(method.clientSignature(access: self.context.access)) {",
            "    guard let handler = self.\(method.handler) else {",
            "        throw HHSocketRPC.SocketError.unanswered("
                + "by: \"\(self.service).MockClient\", handler: \"\(method.handler)\")",
            "    }",
            "    do {",
            "        return try await handler(\(method.hasOneRequest ? "request" : ""))",
            "    } catch {",
            "        throw HHSocketRPC.SocketError(mocked: error)",
            "    }",
            "}"
        )
    }
}
