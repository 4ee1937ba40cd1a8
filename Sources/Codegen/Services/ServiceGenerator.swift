// SPDX-License-Identifier: Apache-2.0
import SwiftProtobuf
import SwiftProtobufPluginLibrary

/// Writes an enum for a service, the namespace of everything generated for it.
struct ServiceGenerator {
    private let service: ServiceDescriptor
    private let context: Context
    private let name: String
    private let methods: [Method]

    init(_ service: ServiceDescriptor, _ context: Context) {
        self.service = service
        self.context = context
        self.name = context.names.service(service)
        self.methods = service.methods.map { Method($0, context.names) }
    }

    func print(_ printer: inout CodePrinter) {
        let options = self.context.options
        self.printService(&printer)
        if options.client || options.mocks {
            ClientProtocolGenerator(service: self.name, self.methods, self.context).print(&printer)
        }
        if options.client { ClientGenerator(service: self.name, self.methods, self.context).print(&printer) }
        if options.mocks { MockGenerator(service: self.name, self.methods, self.context).print(&printer) }
        if options.server {
            ServerGenerator(self.service, name: self.name, self.methods, self.context).print(&printer)
        }
    }

    private func printService(_ printer: inout CodePrinter) {
        let access = self.context.access
        printer.print("", "\(DocComment.lines(of: self.service))\(access)enum \(self.name) {")
        printer.withIndentation { printer in
            printer.print(
                "/// The full name, `\(self.service.fullName)`.",
                "\(access)static let serviceName = \"\(self.service.fullName)\""
            )
            let numbered = self.methods.filter { $0.number != nil }
            guard !numbered.isEmpty else { return }
            printer.print("", "\(access)enum Methods {")
            printer.withIndentation { printer in
                for method in numbered { self.printDescription(of: method, &printer) }
            }
            printer.print("}")
        }
        printer.print("}")
    }

    private func printDescription(of method: Method, _ printer: inout CodePrinter) {
        guard let number = method.number else { return }
        printer.print(
            "/// The name and the type of `\(method.descriptor.name)`.",
            "\(self.context.access)static let \(method.declared) = "
                + "\(Names.runtime).MethodDescriptor<\(method.request), \(method.response)>("
        )
        printer.printIndented(
            "\"\(self.service.fullName)/\(method.descriptor.name)\", type: \(number), kind: .\(method.shape.rawValue)"
                + (method.idempotency.map { ", idempotency: .\($0)" } ?? "")
        )
        printer.print(")")
    }
}
