/// The servers to choose from, and how each has behaved.
struct ServerList: Sendable {
    private struct Entry: Sendable {
        var endpoint: Endpoint
        /// Failed attempts and lost connections since the last connection that stayed.
        var failures = 0
    }

    private var entries: [Entry]
    /// Where the next round starts, among servers that behaved equally well.
    private var start = 0

    init(_ endpoints: [Endpoint]) {
        var seen: Set<Endpoint> = []
        self.entries = endpoints.filter { seen.insert($0).inserted }.map { Entry(endpoint: $0) }
    }

    var isEmpty: Bool { self.entries.isEmpty }

    /// Every server once: those with the fewest failures first, equals in the order of the list from `start` on.
    func round() -> [Endpoint] {
        let rotated = self.entries[self.start...] + self.entries[..<self.start]
        return rotated.enumerated()
            .sorted { ($0.element.failures, $0.offset) < ($1.element.failures, $1.offset) }
            .map(\.element.endpoint)
    }

    mutating func failed(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].failures += 1
    }

    mutating func proved(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.entries[index].failures = 0
    }

    /// Makes the next round start with `endpoint`, which is added if it is new.
    mutating func prefer(_ endpoint: Endpoint) {
        if self.index(of: endpoint) == nil { self.entries.append(Entry(endpoint: endpoint)) }
        guard let index = self.index(of: endpoint) else { return }
        self.start = index
        self.entries[index].failures = 0
    }

    /// Makes the next round start with the server after `endpoint`.
    mutating func passOver(_ endpoint: Endpoint) {
        guard let index = self.index(of: endpoint) else { return }
        self.start = (index + 1) % self.entries.count
        self.entries[index].failures += 1
    }

    private func index(of endpoint: Endpoint) -> Int? {
        self.entries.firstIndex { $0.endpoint == endpoint }
    }
}
