// SPDX-License-Identifier: Apache-2.0
// Custom fields by their names.
extension HeaderPlan {
    func customFields(
        _ values: [String: [UInt8]],
        over base: [UInt8]?,
        format: String
    ) throws(SocketError) -> [UInt8] {
        var fields = self.zeros(over: base)
        for (name, value) in values {
            guard let custom = self.customs.first(where: { $0.name == name }) else {
                let names = self.customs.map(\.name).joined(separator: ", ")
                throw .invalid(
                    """
                    the wire format \(format) has no header field \(name); \
                    \(names.isEmpty ? "it has none to fill in" : "there are: \(names)")
                    """
                )
            }
            guard value.count == custom.width else {
                throw .invalid(
                    """
                    the header field \(name) of the wire format \(format) is \(custom.width) bytes wide; \
                    \(value.count) were given
                    """
                )
            }
            fields.replaceSubrange(custom.position..<custom.position + custom.width, with: value)
        }
        return fields
    }

    /// The fields that `request`, packed by `plan`, has in common with this header, over `base`.
    func customFields(echoing request: [UInt8], of plan: HeaderPlan, over base: [UInt8]?) -> [UInt8]? {
        guard self.customLength > 0, request.count == plan.customLength else { return base }
        var fields = self.zeros(over: base)
        for custom in self.customs {
            guard let source = plan.customs.first(where: { $0.name == custom.name }) else { continue }
            fields.replaceSubrange(
                custom.position..<custom.position + custom.width,
                with: request[source.position..<source.position + source.width]
            )
        }
        return fields
    }

    func values(of fields: [UInt8]?) -> [String: [UInt8]] {
        guard self.customLength > 0 else { return [:] }
        let fields = self.zeros(over: fields)
        return Dictionary(
            uniqueKeysWithValues: self.customs.map { ($0.name, Array(fields[$0.position..<$0.position + $0.width])) }
        )
    }

    private func zeros(over base: [UInt8]?) -> [UInt8] {
        if let base, base.count == self.customLength { return base }
        return [UInt8](repeating: 0, count: self.customLength)
    }
}
