// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes an enum for a service, the namespace of everything generated for it.
struct ServiceGenerator {
    let service: Service

    func print(_ printer: inout CodePrinter) {
        let (service, options) = (self.service, self.service.context.options)
        self.printService(&printer)
        if options.client || options.mocks { ClientProtocolGenerator(service: service).print(&printer) }
        if options.client { ClientGenerator(service: service).print(&printer) }
        if options.mocks { MockGenerator(service: service).print(&printer) }
        if options.server { ServerGenerator(service: service).print(&printer) }
    }

    private func printService(_ printer: inout CodePrinter) {
        let access = self.service.context.access
        let comment = DocComment.lines(of: self.service.descriptor)
        printer.printBlock("", "\(comment)\(access)enum \(self.service.name) {") { printer in
            printer.print(
                "/// The full name, `\(self.service.descriptor.fullName)`.",
                "\(access)static let serviceName = \"\(self.service.descriptor.fullName)\""
            )
            let numbered = self.service.methods.filter { $0.number != nil }
            guard !numbered.isEmpty else { return }
            printer.printBlock("", "\(access)enum Methods {") { printer in
                for method in numbered { self.printDescription(of: method, &printer) }
            }
        }
    }

    private func printDescription(of method: Method, _ printer: inout CodePrinter) {
        guard let number = method.number else { return }
        let name = "\(self.service.descriptor.fullName)/\(method.descriptor.name)"
        printer.print(
            "/// The name and the type of `\(method.descriptor.name)`.",
            "\(self.service.context.access)static let \(method.declared) = "
                + "\(Names.runtime).MethodDescriptor<\(method.request), \(method.response)>("
        )
        printer.printIndented(
            "\"\(name)\", type: \(number), kind: .\(method.shape.rawValue)"
                + (method.idempotency.map { ", idempotency: .\($0)" } ?? "")
        )
        printer.print(")")
    }
}
