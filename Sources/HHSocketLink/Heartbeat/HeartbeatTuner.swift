// SPDX-License-Identifier: Apache-2.0
/// Obtains the interval from the strategy, based on the outcomes of pings, which it stores for each network.
package struct HeartbeatTuner: Sendable {
    private let strategy: any HeartbeatStrategy
    private let storage: (any HeartbeatStorage)?
    private var network: String
    private var history: HeartbeatHistory
    /// The current interval.
    package private(set) var interval: Duration

    /// - Parameters:
    ///   - network: The name of the current network; the empty string if it is not known.
    ///   - storage: The store for the outcomes; nil for none.
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

    /// Continues with the outcomes stored for this network. Without a storage it starts over with each network.
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

    /// Learns from the outcome of a ping, if it proves something about the interval.
    package mutating func observe(_ outcome: HeartbeatMonitor.Outcome) {
        guard let interval = outcome.testedInterval else { return }
        self.history.record(interval: interval, isAnswered: outcome.isAnswered)
        self.interval = self.strategy.interval(for: self.history)
        self.storage?.store(self.history.runs, forNetwork: self.network)
    }
}
