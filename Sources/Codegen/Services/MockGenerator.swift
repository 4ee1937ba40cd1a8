// SPDX-License-Identifier: Apache-2.0
import SwiftProtobufPluginLibrary

/// Writes a mock client for tests of applications, which answers calls with handlers.
struct MockGenerator {
    let service: Service

    func print(_ printer: inout CodePrinter) {
        let access = self.service.context.access
        printer.printBlock("", "extension \(self.service.name) {") { printer in
            printer.printBlock(
                "/// Answers calls with the handlers that a test sets. A call without a handler throws.",
                "///",
                "/// A call throws `timeout` when the time of its options is up, and `cancelled` when its task is "
                    + "cancelled.",
                "\(access)struct MockClient: ClientProtocol {"
            ) { printer in
                for method in self.service.methods { self.printHandler(of: method, &printer) }
                printer.print(
                    "/// Sends pushes to every sequence that this mock has returned.",
                    "\(access)let pushSource = HHSocketRPC.MockPushes()",
                    "private let clock: any Swift.Clock<Swift.Duration>",
                    "",
                    "/// - Parameter clock: The clock of the calls' timeouts; real time by default.",
                    "\(access)init(clock: some Swift.Clock<Swift.Duration> = Swift.ContinuousClock()) {",
                    "    self.clock = clock",
                    "}"
                )
                for method in self.service.methods { self.print(method, &printer) }
                printer.print(
                    "",
                    "\(ClientProtocolGenerator.pushes(access: access)) {",
                    "    self.pushSource.pushes(type)",
                    "}"
                )
            }
        }
    }

    private func printHandler(of method: Method, _ printer: inout CodePrinter) {
        let access = self.service.context.access
        let wrapper = method.hasOneRequest ? "MockHandler" : "MockStreamHandler"
        let request = method.hasOneRequest ? method.request : ""
        printer.print(
            "/// The handler of `\(method.used)`.",
            "@HHSocketRPC.\(wrapper)(of: \"\(self.service.name).MockClient\", named: \"\(method.handler)\")",
            "\(access)var \(method.handler): (@Sendable (\(request)) async throws -> \(method.returned))?"
        )
    }

    /// Prints the function that sets a handler with options, and that of the client.
    private func print(_ method: Method, _ printer: inout CodePrinter) {
        let access = self.service.context.access
        let request = method.hasOneRequest ? "\(method.request), " : ""
        let function = method.shape == .unary ? "answer" : "open"
        let argument = method.hasOneRequest ? "request, " : ""
        printer.print(
            "",
            "/// Sets a handler of `\(method.used)` that is given the call's options too.",
            "\(access)mutating func \(method.handler)(",
            "    _ handler: @escaping @Sendable (\(request)HHSocketRPC.CallOptions) async throws -> \(method.returned)",
            ") {",
            "    self._\(method.handler).set(handler)",
            "}",
            "",
            "\(method.clientSignature(access: access)) {",
            "    try await self._\(method.handler).\(function)(\(argument)options: options, clock: self.clock)",
            "}"
        )
    }
}
