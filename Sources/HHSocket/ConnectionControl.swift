// SPDX-License-Identifier: Apache-2.0
/// The controls of a persistent connection, whatever its protocol, which ``Socket`` and `SocketClient` of HHSocketRPC
/// have in common.
///
/// All methods may be called from any thread and return at once.
public protocol ConnectionControl: AnyObject, Sendable {
    /// The driver of the connection. For HHSocket's own use.
    var _driver: ControlledDriver { get }
}

/// An opaque reference to the object that makes connections and keeps one.
public struct ControlledDriver: Sendable {
    package let driver: Driver

    package init(_ driver: Driver) { self.driver = driver }

    fileprivate func submit(_ request: @escaping @Sendable (Driver, inout Turn) -> Void) {
        self.driver.submit { [driver] in request(driver, &$0) }
    }
}

extension ConnectionControl {
    /// Connects, and reconnects whenever the connection is lost, until ``disconnect()``. During a wait it tries at
    /// once; while connected or connecting it has no effect. If the network monitor reports no network, one round of
    /// attempts is made nevertheless, since monitors can be wrong.
    public func connect() {
        self._driver.submit { $0.connect(in: &$1) }
    }

    /// Connects as ``connect()`` does, but gives up after a number of rounds without a ready connection, each of which
    /// tries every server once. With one server a round is one attempt. Once a connection is ready,
    /// ``Backoff/maximumRounds`` applies again.
    ///
    /// - Parameter attempts: 1 or more; less counts as 1.
    public func connect(attempts: Int) {
        self._driver.submit { $0.connect(attempts: attempts, in: &$1) }
    }

    /// Closes the connection, after flushing what was sent (for at most a second), and stays closed until
    /// ``connect()``. Calls in flight complete with `cancelled`.
    public func disconnect() {
        self._driver.submit { $0.disconnect(in: &$1) }
    }

    /// Fails over to the next best server, as soon as a connection to it is ready. Calls in flight are still answered
    /// by the old server, for ``SocketConfiguration/drainTimeout`` at most. If no other server can be reached the
    /// current connection is kept.
    public func switchServer() {
        self._driver.submit { $0.switchServer(to: nil, in: &$1) }
    }

    /// Fails over to `endpoint`, which is added to the list if it is new, as soon as a connection to it is ready. If it
    /// cannot be reached the current connection is kept.
    public func switchServer(to endpoint: Endpoint) {
        self._driver.submit { $0.switchServer(to: endpoint, in: &$1) }
    }

    /// Replaces the list of servers. The scores of servers that stay are kept. If the current server is not in the new
    /// list the connection fails over, as by ``switchServer()``.
    public func setServers(_ servers: [Endpoint]) {
        self._driver.submit { $0.replaceServers(with: servers, in: &$1) }
    }

    /// Reports that the network was lost, has returned, or has changed its path.
    ///
    /// Without a network no attempts are made, unless a server in the list is on this machine. When a network returns
    /// or changes, a pending attempt starts at once, and a connection that looks alive is probed.
    ///
    /// For an app that has better information than ``SocketConfiguration/networkMonitor``; the latest report counts, so
    /// the monitor should then be nil.
    ///
    /// - Parameters:
    ///   - isReachable: Whether there is a network.
    ///   - name: The network's name, such as that of the Wi-Fi, for each of which an adaptive heartbeat learns; nil if
    ///     it is the same as before.
    public func networkDidChange(isReachable: Bool, name: String? = nil) {
        self._driver.submit { $0.networkChanged(isReachable: isReachable, label: name, in: &$1) }
    }

    /// Reports that the app goes into the background; ``SocketConfiguration/backgroundPolicy`` determines the effect.
    public func applicationDidEnterBackground() {
        self._driver.submit { $0.didEnterBackground(in: &$1) }
    }

    /// Reports that the app returns to the foreground: a connection that looks alive is probed, a dead one is replaced
    /// without waiting.
    public func applicationWillEnterForeground() {
        self._driver.submit { $0.willEnterForeground(in: &$1) }
    }

    /// Reads certificates and keys again, on the calling thread: later connections use them; the current one is kept
    /// until it is lost or ``switchServer()`` is called. For client certificates that are replaced while the process
    /// runs.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` whose message names the file that cannot be read, or if
    ///   the configuration has no TLS; the certificates and keys read before stay in use.
    public func reloadTLS() throws(SocketError) {
        try self._driver.driver.reloadTLS()
    }

    /// The connection's thread as an executor of Swift tasks and actors. A call that is awaited there requires no
    /// thread hop.
    ///
    /// ```swift
    /// Task(executorPreference: client.executor) { … }
    /// ```
    public var executor: SocketExecutor { self._driver.driver.executor }

    /// The latest events of the connection, with their causes.
    public var history: ConnectionHistory { self._driver.driver.history }

    /// The current state of the connection.
    public var state: SocketState { self._driver.driver.state }
}
