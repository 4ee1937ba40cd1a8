import Atomics

/// The resources that all connections of a server hold at this moment.
final class ServerLoad: Sendable {
    private let inFlight = ManagedAtomic(0)
    private let bufferedBytes = ManagedAtomic(0)
    private let maximumInFlight: Int
    private let maximumBufferedBytes: Int

    init(maximumInFlight: Int, maximumBufferedBytes: Int) {
        self.maximumInFlight = maximumInFlight
        self.maximumBufferedBytes = maximumBufferedBytes
    }

    var requestsInFlight: Int { self.inFlight.load(ordering: .relaxed) }
    var bytes: Int { self.bufferedBytes.load(ordering: .relaxed) }

    /// Admits one more request, until ``finished(_:)``; false if the limit is reached.
    func start() -> Bool {
        guard self.inFlight.loadThenWrappingIncrement(ordering: .relaxed) >= self.maximumInFlight else { return true }
        self.inFlight.wrappingDecrement(ordering: .relaxed)
        return false
    }

    func finished(_ count: Int = 1) {
        self.inFlight.wrappingDecrement(by: count, ordering: .relaxed)
    }

    /// Whether the connections hold more bytes than they may.
    var isFull: Bool { self.bytes > self.maximumBufferedBytes }

    /// Changes the number of bytes that the connections hold; `change` is negative if it has shrunk.
    func held(_ change: Int) {
        self.bufferedBytes.wrappingIncrement(by: change, ordering: .relaxed)
    }
}
