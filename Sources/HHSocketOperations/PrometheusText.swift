// SPDX-License-Identifier: Apache-2.0

/// Names, labels and numbers of Prometheus' text format.
enum PrometheusText {
    /// A metric's name of a label of swift-metrics, which may have any characters.
    ///
    /// - Parameter suffix: The end that the name has, once.
    static func name(_ label: String, suffix: String) -> String {
        let name = self.identifier(label, colons: true)
        return name.hasSuffix(suffix) ? name : name + suffix
    }

    /// Labels without braces, ordered by name, with empty values left out. Of names that are equal the first counts.
    static func labels(_ dimensions: [(String, String)]) -> String {
        var values: [String: String] = [:]
        for (name, value) in dimensions where !value.isEmpty {
            var name = self.identifier(name, colons: false)
            // Reserved for Prometheus, and for the buckets of histograms.
            if name.hasPrefix("__") || name == "le" || name == "quantile" { name = "label_" + name }
            if values[name] == nil { values[name] = value }
        }
        return values.sorted { $0.key < $1.key }.map { "\($0.key)=\"\(self.escaped($0.value))\"" }
            .joined(separator: ",")
    }

    /// A number as Prometheus reads it: `3`, `0.25`, `1e-09`, `+Inf`, `NaN`.
    static func number(_ value: Double) -> String {
        if value.isNaN { return "NaN" }
        guard value.isFinite else { return value > 0 ? "+Inf" : "-Inf" }
        return Int64(exactly: value).map { "\($0)" } ?? "\(value)"
    }

    /// Appends a line.
    ///
    /// - Parameter labels: Without braces.
    static func write(_ name: String, labels: String, value: String, to text: inout String) {
        text += labels.isEmpty ? "\(name) \(value)\n" : "\(name){\(labels)} \(value)\n"
    }

    private static func identifier(_ text: String, colons: Bool) -> String {
        var name = ""
        for character in text.unicodeScalars {
            switch character {
            case "a"..."z", "A"..."Z", "0"..."9", "_": name.unicodeScalars.append(character)
            case ":" where colons: name.unicodeScalars.append(character)
            default: name += "_"
            }
        }
        guard let first = name.utf8.first, !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains(first) else {
            return "_" + name
        }
        return name
    }

    private static func escaped(_ value: String) -> String {
        var escaped = ""
        for character in value.unicodeScalars {
            switch character {
            case "\\": escaped += "\\\\"
            case "\"": escaped += "\\\""
            case "\n": escaped += "\\n"
            default: escaped.unicodeScalars.append(character)
            }
        }
        return escaped
    }
}
