// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The messages that wait to be read by the user.
protocol STOMPBacklog: AnyObject {
    var bufferedBytes: Int { get }
}

/// Suspends reading while the user is slow. On the socket's thread.
final class STOMPReading {
    private let connection: STOMPConnection
    private let port: STOMPPort
    private let maximumBufferedBytes: Int
    private weak var backlog: (any STOMPBacklog)?
    /// The subscriptions whose messages are not read fast enough.
    private var fullRoutes: Set<String> = []
    /// Whether an operation waits for the broker.
    private var isAwaited = false
    /// The last reported state of ``isBehind``.
    private var isUnwanted = false

    init(_ connection: STOMPConnection, _ port: STOMPPort, maximumBufferedBytes: Int) {
        self.connection = connection
        self.port = port
        self.maximumBufferedBytes = maximumBufferedBytes
    }

    func attach(_ backlog: any STOMPBacklog) { self.backlog = backlog }

    /// Whether reading should be suspended. While the user waits for an answer of the broker, which may follow
    /// messages, these are read up to a limit.
    var isBehind: Bool {
        guard self.isLimited else { return false }
        guard self.isAwaited else { return true }
        return self.backlog?.bufferedBytes ?? 0 >= self.maximumBufferedBytes
    }

    /// Whether messages are not read or settled fast enough. If reading continues in order to get an answer, there is a
    /// limit.
    private var isLimited: Bool { !self.fullRoutes.isEmpty || self.connection.isOverdrawn }

    /// Makes the session check again whether to read, if that has changed.
    func reconsider() {
        let isUnwanted = self.isBehind
        guard isUnwanted != self.isUnwanted else { return }
        self.isUnwanted = isUnwanted
        self.port.updateReading()
    }

    /// A message was delivered.
    func delivered() { if self.isLimited { self.reconsider() } }

    /// Whether the messages of a subscription are read fast enough may have changed.
    func setFull(_ id: String, _ isFull: Bool) {
        if isFull { self.fullRoutes.insert(id) } else { self.fullRoutes.remove(id) }
        self.reconsider()
    }

    /// Whether operations wait for the broker has changed; ``reconsider()`` follows.
    func setAwaited(_ isAwaited: Bool) { self.isAwaited = isAwaited }
}
