// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Changes of connections, and their effects on calls.
extension ClientCore: DriverHost {
    func connectionChanged(_ change: ConnectionChange, in turn: inout Turn) {
        switch change {
        case .beingMade:
            self.life.isReconnectDeferred = false
            self.hot.table.linkIsConnecting()
        case .ready(let id, let endpoint):
            self.connectionIsReady(id, endpoint, in: &turn)
        case .goingAway(let id):
            self.connectionGoesAway(id, in: &turn)
        case .reconnectDeferred:
            self.reconnectIsDeferred(in: &turn)
        case .draining(let id):
            self.left[id]?.streams?.drains()
            self.hot.table.linkGoesAway(id)
            self.finishDrained(in: &turn)
        case .lost(let id, let error):
            self.connectionWasLost(id, error, in: &turn)
        case .offline(let error):
            self.fail(self.hot.table.linkIsOffline(), error, in: &turn)
            self.armTimer()
        case .happened(let event):
            self.happened(event, in: &turn)
        case .invalidated:
            self.invalidated(in: &turn)
        }
    }

    private func connectionIsReady(_ id: ConnectionID, _ endpoint: Endpoint, in turn: inout Turn) {
        guard let pending = self.connector.takePending(id) else { return }
        self.life.isReconnectDeferred = false
        if let predecessor = self.connection, self.hot.table.link == .ready || self.hot.table.link == .goingAway {
            self.left[predecessor.id] = predecessor
        }
        let origin = SocketResponse.Origin(endpoint: endpoint, agreement: pending.agreement)
        let connection = ClientConnection(link: pending.link, origin: origin, core: self)
        self.connection = connection
        pending.link.receiver = connection
        let unread = pending.finish(in: &turn)
        self.hot.errorRate?.clear()
        self.hot.table.linkIsReady(id)
        self.sendWaiting(in: &turn)
        self.armTimer()
        for frame in unread { connection.received(frame, in: &turn) }
        self.pushes.handOver(in: &turn)
        connection.streams?.finishReceiving(in: &turn)
    }

    /// Sends calls that waited for the connection, as long as more of them may be in flight.
    func sendWaiting(in turn: inout Turn) {
        while let next = self.hot.table.nextWaiting() {
            guard let serial = next.serial else { continue }
            self.send(next.call, self.request(of: next.call), next.call.priority, next.key, serial, in: &turn)
        }
    }

    /// Releases the drained connections that have nothing left in flight.
    func finishDrained(in turn: inout Turn) {
        guard self.hot.table.hasDrained else { return }
        while let id = self.hot.table.nextDrained() {
            let connection = self.left.removeValue(forKey: id)
            connection?.streams?.abandon()
            connection?.link.releaseReceiver(in: &turn)
            self.driver.perform(.finishDraining(id), in: &turn)
        }
    }

    private func connectionWasLost(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        defer { self.left[id] = nil }
        if id == self.hot.connectionID { self.hot.link = nil }
        let streams = self.connection(id)?.streams
        // Complete items are delivered before the error.
        streams?.connectionLost(in: &turn)
        for lost in self.hot.table.linkWasLost(id) {
            var error = error
            error.serial = lost.serial
            error.delivery = lost.phase == .sent ? .sentUnknown : .notSent
            self.ended(lost, error, in: &turn)
        }
        self.connection(id)?.link.releaseReceiver(in: &turn)
        if streams != nil, id == self.hot.connectionID { self.endStreamLine(in: &turn) }
        self.armTimer()
    }

    private func fail(_ waiting: [Attempt], _ error: SocketError, in turn: inout Turn) {
        for waiting in waiting {
            var error = error
            error.delivery = .notSent
            self.ended(waiting, error, in: &turn)
        }
    }

    private func happened(_ event: SocketEvent, in turn: inout Turn) {
        switch event {
        // No reconnect follows, so no call need wait for one.
        case .closed: self.fail(self.hot.table.linkIsOffline(isForGood: true), Driver.closedByUser, in: &turn)
        case .gaveUp(let error): self.fail(self.hot.table.linkIsOffline(isForGood: true), error, in: &turn)
        default: break
        }
        self.streams.yield(event)
        self.followers.happened(event)
        if let callback = self.audience.callback(for: event) { turn.callBack(callback) }
    }

    // MARK: Origins

    /// The connection with this identifier, if it is the current one or draining.
    func connection(_ id: ConnectionID) -> ClientConnection? {
        id == self.hot.connectionID ? self.connection : self.left[id]
    }

    /// The origin of a connection; that of the latest one if this connection has ended.
    func origin(of id: ConnectionID) -> SocketResponse.Origin {
        self.connection(id)?.origin ?? self.connection?.origin
            ?? SocketResponse.Origin(endpoint: Endpoint(host: "", port: 0))
    }

    func endpoint(of id: ConnectionID) -> Endpoint { self.origin(of: id).endpoint }

    /// The origin of an answer.
    func origin(
        of frame: Frame,
        _ metadata: [String: String],
        on connection: ClientConnection
    ) -> SocketResponse.Origin {
        guard frame.customFields != nil || !metadata.isEmpty else { return connection.origin }
        return SocketResponse.Origin(
            header: self.format.header(of: frame),
            endpoint: connection.endpoint,
            metadata: metadata
        )
    }

    // MARK: Error rates

    /// Judges the server by the end of an attempt; nil stands for the expected answer.
    func judge(_ error: SocketError?, on id: ConnectionID, in turn: inout Turn) {
        // The answers of a draining connection do not concern its successor.
        guard self.hot.errorRate != nil, id == self.hot.connectionID, self.hot.table.link == .ready,
            let isWrong = ErrorRateWindow.judge(error), !isWrong || self.driver.isNetworkReachable,
            let verdict = self.hot.errorRate?.ended(isWrong: isWrong, now: turn.now)
        else { return }
        let endpoint = self.endpoint(of: id)
        self.driver.perform(.serverFails(endpoint, wrong: verdict.wrong, calls: verdict.calls), in: &turn)
    }
}
