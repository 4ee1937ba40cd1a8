import Atomics

/// The resources that one connection holds at this moment, as a part of its server's.
final class ConnectionLoad: Sendable {
    private let server: ServerLoad
    private let maximumBytes: Int
    private let held = ManagedAtomic(0)

    init(_ server: ServerLoad, maximumBytes: Int) {
        self.server = server
        self.maximumBytes = maximumBytes
    }

    var bytes: Int { self.held.load(ordering: .relaxed) }

    /// Whether this connection, or all of them together, hold more bytes than they may.
    var isFull: Bool { self.bytes > self.maximumBytes || self.server.isFull }

    /// Changes the number of bytes that the connection holds; `change` is negative if it has shrunk.
    func held(_ change: Int) {
        self.held.wrappingIncrement(by: change, ordering: .relaxed)
        self.server.held(change)
    }
}
