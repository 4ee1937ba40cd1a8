/// Which of the names that exist somebody may have meant.
enum NearestNames {
    /// Such as ` (did you mean text or tags?)`; empty where nothing comes near.
    ///
    /// - Parameter all: Whether to tell all names, where none is near and there are few.
    static func hint(for name: String, among names: [String], all: Bool = false) -> String {
        let near = Self.nearest(to: name, among: names)
        if !near.isEmpty { return " (did you mean \(Self.list(near))?)" }
        guard all, (1...10).contains(names.count) else { return "" }
        return " (there is \(Self.list(names, by: "and")))"
    }

    /// The three nearest at most.
    static func nearest(to name: String, among names: [String]) -> [String] {
        let limit = max(2, name.count / 3)
        let distances = names.map { ($0, Self.distance(Array(name.lowercased().utf8), Array($0.lowercased().utf8))) }
        return distances.filter { $0.1 <= limit }.sorted { ($0.1, $0.0) < ($1.1, $1.0) }.prefix(3).map(\.0)
    }

    private static func list(_ names: [String], by conjunction: String = "or") -> String {
        guard let last = names.last, names.count > 1 else { return names.first ?? "" }
        return "\(names.dropLast().joined(separator: ", ")) \(conjunction) \(last)"
    }

    /// Levenshtein's: how many letters must be changed, added or taken away.
    private static func distance(_ left: [UInt8], _ right: [UInt8]) -> Int {
        // Nobody mistypes so much; and it would take long.
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
