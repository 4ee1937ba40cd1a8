/// What an application asks of a long connection, whatever is spoken on it: the controls that ``Socket`` and
/// `SocketClient` of HHSocketRPC have in common.
///
/// All methods may be called from any thread and return at once.
public protocol ConnectionControl: AnyObject, Sendable {
    /// The connection that is controlled; HHSocket's own.
    var _driver: ControlledDriver { get }
}

/// A reference to what makes connections and keeps one. Only HHSocket makes them and looks into them.
public struct ControlledDriver: Sendable {
    package let driver: Driver

    package init(_ driver: Driver) { self.driver = driver }

    fileprivate func submit(_ request: @escaping @Sendable (Driver, inout Turn) -> Void) {
        self.driver.submit(.closure { [driver] in request(driver, &$0) })
    }
}

extension ConnectionControl {
    /// Connects, and reconnects whenever the connection is lost, until ``disconnect()``. While waiting to reconnect it
    /// tries at once; connected or connecting already it does nothing. Where there is no network, by what the network
    /// monitor says, one round of attempts is made all the same: monitors err.
    public func connect() {
        self._driver.submit { $0.connect(in: &$1) }
    }

    /// Connects as ``connect()`` does, but gives up after a number of rounds without a ready connection, each of which
    /// tries every server once. With one server they are attempts. Once a connection is ready,
    /// ``Backoff/maximumRounds`` counts again.
    ///
    /// - Parameter attempts: 1 or more; less counts as 1.
    public func connect(attempts: Int) {
        self._driver.submit { $0.connect(attempts: attempts, in: &$1) }
    }

    /// Closes the connection, after what was sent has left (within a second), and stays closed until ``connect()``.
    /// Calls in flight complete with `cancelled`.
    public func disconnect() {
        self._driver.submit { $0.disconnect(in: &$1) }
    }

    /// Leaves the present server for the next best one, as soon as a connection to that is ready. Calls in flight are
    /// still answered by the old one, for ``SocketConfiguration/drainTimeout`` at most. If no other server can be
    /// reached the connection stays where it is.
    public func switchServer() {
        self._driver.submit { $0.switchServer(to: nil, in: &$1) }
    }

    /// Leaves the present server for `endpoint`, which is added to the list if it is new, as soon as a connection to it
    /// is ready. If it cannot be reached the connection stays where it is.
    public func switchServer(to endpoint: Endpoint) {
        self._driver.submit { $0.switchServer(to: endpoint, in: &$1) }
    }

    /// Replaces the list of servers. What is known of those that stay is kept. If the present one is not among them it
    /// is left, as by ``switchServer()``.
    public func setServers(_ servers: [Endpoint]) {
        self._driver.submit { $0.replaceServers(with: servers, in: &$1) }
    }

    /// To be called when the network has gone, has come back, or has changed its path.
    ///
    /// Without a network nothing is attempted, unless a server in the list is on this machine. When there is one again,
    /// or another, what waited connects at once, and a connection that looks alive is probed.
    ///
    /// For an app that knows better than ``SocketConfiguration/networkMonitor``; the last word counts, so it should
    /// then be nil.
    ///
    /// - Parameter name: What to call this network, such as the Wi-Fi's name; an adaptive heartbeat learns for each.
    ///   Nil: as before.
    public func networkDidChange(isReachable: Bool, name: String? = nil) {
        self._driver.submit { $0.networkChanged(isReachable: isReachable, label: name, in: &$1) }
    }

    /// To be called when the app goes into the background; what follows, ``SocketConfiguration/backgroundPolicy`` says.
    public func applicationDidEnterBackground() {
        self._driver.submit { $0.didEnterBackground(in: &$1) }
    }

    /// To be called when the app returns to the foreground: a connection that looks alive is probed, a dead one is made
    /// anew without waiting.
    public func applicationWillEnterForeground() {
        self._driver.submit { $0.willEnterForeground(in: &$1) }
    }

    /// Reads certificates and keys anew, on the calling thread: connections that are made from now on use them, the
    /// present one stays until it is lost or ``switchServer()`` is called. For client certificates that are replaced
    /// while the process runs.
    ///
    /// - Throws: ``SocketError`` with code `invalidArgument` that says what cannot be read, or that the configuration
    ///   has no TLS; what was read before stays in use.
    public func reloadTLS() throws(SocketError) {
        try self._driver.driver.reloadTLS()
    }

    /// What happened to the connection lately, and why.
    public var history: ConnectionHistory { self._driver.driver.history }

    /// What the connection is doing now.
    public var state: SocketState { self._driver.driver.state }
}
