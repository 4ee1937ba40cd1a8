/// Asks the strategy for the interval, tells it what pings have shown, and remembers that for each network.
package struct HeartbeatTuner: Sendable {
    private let strategy: any HeartbeatStrategy
    private let storage: (any HeartbeatStorage)?
    private var network: String
    private var history: HeartbeatHistory
    /// How long the interval is now.
    package private(set) var interval: Duration

    /// - Parameters:
    ///   - network: What the present network is called; the empty string where that is not known.
    ///   - storage: Where to remember; nil for nowhere.
    package init(
        _ strategy: any HeartbeatStrategy,
        network: String = "",
        storage: (any HeartbeatStorage)? = nil,
        isApplicationActive: Bool = false
    ) {
        self.strategy = strategy
        self.storage = storage
        self.network = network
        self.history = HeartbeatHistory(
            runs: storage?.runs(forNetwork: network) ?? [],
            isApplicationActive: isApplicationActive
        )
        self.interval = strategy.interval(for: self.history)
    }

    /// Continues with what is known about this network. Without a storage each network is learned anew.
    package mutating func networkChanged(to label: String) {
        guard label != self.network else { return }
        self.network = label
        self.history = HeartbeatHistory(
            runs: self.storage?.runs(forNetwork: label) ?? [],
            isApplicationActive: self.history.isApplicationActive
        )
        self.interval = self.strategy.interval(for: self.history)
    }

    package mutating func applicationChanged(isActive: Bool) {
        guard isActive != self.history.isApplicationActive else { return }
        self.history.isApplicationActive = isActive
        self.interval = self.strategy.interval(for: self.history)
    }

    /// Learns from what became of a ping, if that taught something about the interval.
    package mutating func observe(_ outcome: HeartbeatMonitor.Outcome) {
        guard let interval = outcome.testedInterval else { return }
        self.history.record(interval: interval, isAnswered: outcome.isAnswered)
        self.interval = self.strategy.interval(for: self.history)
        self.storage?.store(self.history.runs, forNetwork: self.network)
    }
}
