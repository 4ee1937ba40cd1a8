// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage

/// The part of a schema to describe.
struct SchemaSelection {
    var services: [ProtoService] = []
    var messages: [ProtoMessage] = []
    var enums: [ProtoEnum] = []
    var extensions: [ProtoExtension] = []

    /// - Parameter symbol: The full name of one declaration; nil for all declarations of the requested files.
    init(_ schema: ProtoSchema, symbol: String?) throws(ProtoError) {
        guard let symbol else {
            let files = Set(schema.files.filter(\.isAskedFor).map(\.name))
            self.services = schema.services.filter { files.contains($0.file) }
            self.messages = schema.messages.values.filter { files.contains($0.file) && !$0.isMapEntry }
                .sorted { $0.name < $1.name }
            self.enums = schema.enums.values.filter { files.contains($0.file) }.sorted { $0.name < $1.name }
            self.extensions = schema.extensions.filter { files.contains($0.file) }
                .sorted { ($0.extended, $0.field.number) < ($1.extended, $1.field.number) }
            return
        }
        self.services = schema.services.compactMap { service in
            if service.name == symbol { return service }
            var part = service
            part.methods = service.methods.filter { $0.name == symbol || $0.nameWithDots == symbol }
            return part.methods.isEmpty ? nil : part
        }
        self.messages = schema.messages[symbol].map { [$0] } ?? []
        self.enums = schema.enums[symbol].map { [$0] } ?? []
        self.extensions = schema.extensions.filter { $0.field.name == symbol }
        guard self.services.isEmpty, self.messages.isEmpty, self.enums.isEmpty, self.extensions.isEmpty else { return }
        let names =
            schema.services.flatMap { [$0.name] + $0.methods.map(\.name) } + schema.messages.keys + schema.enums.keys
            + schema.extensions.map(\.field.name)
        throw ProtoError("There is no \(symbol)\(NearestNames.hint(for: symbol, among: names)).")
    }
}
