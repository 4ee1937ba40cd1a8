// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import NIOCore

/// The connections of a client: the one that calls are sent on, and those that drain. On the socket thread.
final class ClientLinks {
    private let driver: any ConnectionDriver
    private let reporter: CallReporter
    private var latest: ClientConnection?
    /// The draining connections: replaced by another, with calls still in flight.
    private var drainingConnections: [ConnectionID: ClientConnection] = [:]
    /// The latest connection whose go-away has been parsed.
    private var goneAway = ConnectionID(number: 0)
    private var isDeferred = false

    /// The size, in bytes, of the longest go-away that is parsed.
    private static let maximumGoAwayLength = 64 << 10

    init(_ driver: any ConnectionDriver, reporter: CallReporter) {
        self.driver = driver
        self.reporter = reporter
    }

    // MARK: Connections

    /// The connection that calls are sent on while it is ready; else the latest one.
    var current: ClientConnection? { self.latest }

    /// The connection with this identifier, if it is the current one or draining.
    func connection(_ id: ConnectionID) -> ClientConnection? {
        if let latest = self.latest, latest.id == id { return latest }
        return self.drainingConnections[id]
    }

    /// The connection with this identifier, if it is draining.
    func draining(_ id: ConnectionID) -> ClientConnection? { self.drainingConnections[id] }

    /// Sends calls on this connection from now on.
    ///
    /// - Parameter drains: Whether its predecessor may still have calls in flight.
    func adopt(_ connection: ClientConnection, predecessorDrains drains: Bool) {
        self.isDeferred = false
        if let predecessor = self.latest {
            if drains { self.drainingConnections[predecessor.id] = predecessor } else { predecessor.streams?.abandon() }
        }
        self.latest = connection
    }

    /// Forgets a connection that was lost. The current one stays the latest.
    func forget(_ id: ConnectionID) { self.drainingConnections[id] = nil }

    /// Releases a drained connection, which has nothing left in flight.
    func finishDrained(_ id: ConnectionID, in turn: inout Turn) {
        let connection = self.drainingConnections.removeValue(forKey: id)
        connection?.streams?.abandon()
        connection?.link.releaseReceiver(in: &turn)
        self.driver.perform(.finishDraining(id), in: &turn)
    }

    /// Releases the current connection, and abandons the streams of all, since the client was released.
    func invalidate() {
        self.latest?.streams?.abandon()
        for connection in self.drainingConnections.values { connection.streams?.abandon() }
        self.latest = nil
    }

    // MARK: Origins

    /// The origin of a connection; that of the latest one if this connection has ended.
    func origin(of id: ConnectionID) -> SocketResponse.Origin {
        self.connection(id)?.origin ?? self.latest?.origin
            ?? SocketResponse.Origin(endpoint: Endpoint(host: "", port: 0))
    }

    func endpoint(of id: ConnectionID) -> Endpoint { self.origin(of: id).endpoint }

    // MARK: Reconnecting

    /// Whether reconnecting is deferred until a call requires it.
    var isReconnectDeferred: Bool { self.isDeferred }

    /// Handles the beginning of an attempt to connect.
    func reconnectBegins() { self.isDeferred = false }

    /// Handles the deferral of attempts to connect.
    ///
    /// - Parameter isNeeded: Whether calls wait for a connection, so that they must begin nevertheless.
    func reconnectIsDeferred(isNeeded: Bool, in turn: inout Turn) {
        self.isDeferred = true
        if isNeeded { self.reconnectSooner(in: &turn) }
    }

    func reconnectSooner(in turn: inout Turn) {
        self.isDeferred = false
        self.driver.perform(.reconnectSooner, in: &turn)
    }

    // MARK: Go-away

    /// Receives a go-away: the driver fails over, and no call is sent on the connection. Only a connection's first
    /// go-away is parsed, so that a flood of them costs only the counting.
    func receivedGoAway(_ frame: Frame, on id: ConnectionID, in turn: inout Turn) {
        self.reporter.count(\.goAways)
        guard id != self.goneAway, self.drainingConnections[id] == nil else { return }
        self.goneAway = id
        self.driver.perform(.goAway(id, self.goAway(in: frame), isAnnounced: true), in: &turn)
    }

    private func goAway(in frame: Frame) -> GoAway {
        guard frame.payload.readableBytes <= Self.maximumGoAwayLength,
            let message = try? frame.payload.message(as: WireGoAway.self)
        else {
            self.reporter.count(\.malformedGoAways)
            return GoAway()
        }
        return GoAway(message)
    }
}
