import NIOConcurrencyHelpers

/// Keeps what the heartbeat has learned about each network, so that it need not be learned anew.
///
/// Called on the socket thread, and for the first time on the thread that makes the socket or client: it must be quick,
/// and must not wait for a disk or a lock that another thread holds for long. What it returns is not trusted; runs that
/// cannot be are put right.
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
    /// What was stored last for this network, oldest first; nothing for one that is not known.
    func runs(forNetwork label: String) -> [HeartbeatHistory.Run]

    /// Keeps the runs of a network, at most 64, instead of what was stored for it before. Called after each ping that
    /// taught something.
    func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String)
}

/// Remembers networks as long as the process runs, up to 64 of them; beyond that the one that was not used for longest
/// is forgotten.
public final class InMemoryHeartbeatStorage: HeartbeatStorage {
    private struct Networks {
        var runs: [String: [HeartbeatHistory.Run]] = [:]
        /// The label used last is last.
        var labels: [String] = []

        mutating func use(_ label: String) {
            self.labels.removeAll { $0 == label }
            self.labels.append(label)
        }
    }

    /// How many networks are remembered.
    public static let maximumNetworks = 64

    private let networks = NIOLockedValueBox(Networks())

    public init() {}

    public func runs(forNetwork label: String) -> [HeartbeatHistory.Run] {
        self.networks.withLockedValue { networks in
            guard let runs = networks.runs[label] else { return [] }
            networks.use(label)
            return runs
        }
    }

    public func store(_ runs: [HeartbeatHistory.Run], forNetwork label: String) {
        self.networks.withLockedValue { networks in
            networks.runs[label] = runs
            networks.use(label)
            if networks.labels.count > Self.maximumNetworks {
                networks.runs[networks.labels.removeFirst()] = nil
            }
        }
    }
}
