// SPDX-License-Identifier: Apache-2.0
/// Suggestions for a mistyped name.
package enum NearestNames {
    /// Returns a hint such as ` (did you mean text or tags?)`; empty if no name is near.
    ///
    /// - Parameter all: Whether to list all names if none is near and there are at most ten.
    package static func hint(for name: String, among names: [String], all: Bool = false) -> String {
        let near = Self.nearest(to: name, among: names)
        if !near.isEmpty { return " (did you mean \(Self.list(near))?)" }
        guard all, (1...10).contains(names.count) else { return "" }
        return " (there is \(Self.list(names, by: "and")))"
    }

    /// Returns at most the three nearest names.
    package static func nearest(to name: String, among names: [String]) -> [String] {
        let limit = max(2, name.count / 3)
        let distances = names.map { ($0, Self.distance(Array(name.lowercased().utf8), Array($0.lowercased().utf8))) }
        return distances.filter { $0.1 <= limit }.sorted { ($0.1, $0.0) < ($1.1, $1.0) }.prefix(3).map(\.0)
    }

    private static func list(_ names: [String], by conjunction: String = "or") -> String {
        guard let last = names.last, names.count > 1 else { return names.first ?? "" }
        return "\(names.dropLast().joined(separator: ", ")) \(conjunction) \(last)"
    }

    /// Returns the Levenshtein distance in bytes.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        // Longer names are not compared, because that would take too long.
        guard left.count <= 200, right.count <= 200 else { return .max }
        var row = Array(0...right.count)
        for (index, byte) in left.enumerated() {
            var diagonal = row[0]
            row[0] = index + 1
            for (column, other) in right.enumerated() {
                let changed = diagonal + (byte == other ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(changed, diagonal + 1, row[column] + 1)
            }
        }
        return row[right.count]
    }
}
