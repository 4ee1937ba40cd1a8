extension WireMetadata {
    package init(values: [String: String]) {
        self.init()
        self.values = values
    }

    /// How many bytes the names and values have.
    package static func length(of values: [String: String]) -> Int {
        values.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    }
}
