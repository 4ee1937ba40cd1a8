// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers

/// A store for the heartbeat's history on each network, so that it need not be learned again.
///
/// Called on the socket thread, and for the first time on the thread that makes the socket or client: it must be quick,
/// and must not wait for a disk or a lock that another thread holds for long. The runs it returns are not trusted;
/// invalid values are corrected.
///
/// ```swift
/// struct HeartbeatDefaults: HeartbeatStorage {
///     func runs(forNetwork label: String) -> [HeartbeatHistory.Run] {
///         guard let data = UserDefaults.standard.data(forKey: "heartbeat.\(label)") else { return [] }
///         return (try? JSONDecoder().decode([HeartbeatHistory.Run].self, from: data)) ?? []
///     }
///
///     func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String) {
///         UserDefaults.standard.set(try? JSONEncoder().encode(runs), forKey: "heartbeat.\(label)")
///     }
/// }
/// ```
public protocol HeartbeatStorage: Sendable {
    /// Returns the runs stored last for this network, oldest first; none for an unknown network.
    func runs(forNetwork label: String) -> [HeartbeatHistory.Run]

    /// Stores the runs of a network, at most 64, in place of those stored before. Called after each ping that proved
    /// something about the interval.
    func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String)
}

/// A storage that remembers up to 64 networks while the process runs; beyond that the least recently used is forgotten.
package final class InMemoryHeartbeatStorage: HeartbeatStorage {
    private struct Networks {
        var runs: [String: [HeartbeatHistory.Run]] = [:]
        /// The labels, least recently used first.
        var labels: [String] = []

        mutating func use(_ label: String) {
            self.labels.removeAll { $0 == label }
            self.labels.append(label)
        }
    }

    /// The number of networks that are remembered.
    package static let maximumNetworks = 64

    private let networks = NIOLockedValueBox(Networks())

    package init() {}

    package func runs(forNetwork label: String) -> [HeartbeatHistory.Run] {
        self.networks.withLockedValue { networks in
            guard let runs = networks.runs[label] else { return [] }
            networks.use(label)
            return runs
        }
    }

    package func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String) {
        self.networks.withLockedValue { networks in
            networks.runs[label] = runs
            networks.use(label)
            if networks.labels.count > Self.maximumNetworks {
                networks.runs[networks.labels.removeFirst()] = nil
            }
        }
    }
}
