import NIOCore

/// Performs what ``ConnectionMachine`` decides.
extension Driver {
    func perform(_ action: Machine.Action, in turn: inout Turn) {
        switch action {
        case .resolve(let id):
            self.resolve(id)
        case .open(let id, let endpoint):
            self.open(id, endpoint)
        case .shakeHands(let id, _, let attempt):
            self.maker.shakeHands(id, attempt: attempt, in: &turn)
        case .close(let id):
            self.close(id, in: &turn)
        case .ready(let id, let endpoint):
            self.becomeReady(id, endpoint, in: &turn)
        case .leave(let id):
            self.tellHost(.leaving(id), in: &turn)
        case .putOff:
            self.tellHost(.putOff, in: &turn)
        case .part(let id, let error):
            self.links.parting[id] = error
            self.close(id, in: &turn)
            // It may be gone already.
            if self.links.closing[id] == nil { self.linkIsGone(id, in: &turn) }
        case .drain(let id):
            self.tellHost(.draining(id), in: &turn)
        case .lost(let id, let error):
            self.tellHost(.lost(id, error), in: &turn)
        case .beingMade:
            self.tellHost(.beingMade, in: &turn)
        case .offline(let error):
            self.tellHost(.offline(error), in: &turn)
        case .probe(let id):
            self.links.ready(id)?.probe(isUrgent: true, in: &turn)
        case .pauseHeartbeat(let id):
            self.links.ready(id)?.changeBeats(.pause, in: &turn)
        case .resumeHeartbeat(let id):
            self.links.ready(id)?.changeBeats(.resume, in: &turn)
        case .applicationIsActive(let isActive):
            self.tuner?.applicationChanged(isActive: isActive)
            self.updateHeartbeatInterval(in: &turn)
        case .report(let event):
            self.record(event, now: turn.now)
            self.log?.happened(event)
            self.metrics?.happened(event, now: turn.now)
            self.tellHost(.happened(event), in: &turn)
        }
    }

    private func tellHost(_ change: ConnectionChange, in turn: inout Turn) {
        self.host?.connectionChanged(change, in: &turn)
    }

    func updateHeartbeatInterval(in turn: inout Turn) {
        if let interval = self.tuner?.interval { self.links.ready?.link.changeBeats(.interval(interval), in: &turn) }
    }

    // MARK: Attempts

    private func resolve(_ id: ConnectionID) {
        guard let resolver = self.configuration.resolver else { return }
        self.network.search?.cancel()
        self.network.search = Task { [weak self] in
            let result: Result<[Endpoint], SocketError>
            do {
                result = .success(try await resolver.resolve())
            } catch {
                result = .failure(
                    error as? SocketError
                        ?? SocketError(.hostNotFound, message: "the resolver failed: \(error)", underlying: error)
                )
            }
            guard let self else { return }
            self.submit(.closure { turn in self.tell(in: &turn) { $0.resolved(id, result, now: $1) } })
        }
    }

    private func open(_ id: ConnectionID, _ endpoint: Endpoint) {
        guard self.maker.linksMayOverlap || self.links.closing.isEmpty else {
            return self.links.waiting.append((id, endpoint))
        }
        self.dial(id, endpoint)
    }

    /// A link has closed that closed by choice.
    func linkIsGone(_ id: ConnectionID, in turn: inout Turn) {
        if let closed = self.links.closing.removeValue(forKey: id) { self.measure(closed.link) }
        if let error = self.links.parting.removeValue(forKey: id) { self.tellHost(.lost(id, error), in: &turn) }
        guard self.links.closing.isEmpty else { return }
        let waiting = self.links.waiting
        self.links.waiting = []
        for attempt in waiting { self.dial(attempt.id, attempt.endpoint) }
    }

    private func dial(_ id: ConnectionID, _ endpoint: Endpoint) {
        self.dialer.dial(id, endpoint) { () throws(SocketError) in
            try self.maker.makeLink(id, endpoint, self.loop, self)
        } completion: { result in
            self.loop.enter { turn in
                switch result {
                case .success(let link):
                    self.links.pending = DriverLinks.Entry(link: link, endpoint: endpoint)
                    self.tell(in: &turn) { $0.connected(id, now: $1) }
                case .failure(let error):
                    self.tell(in: &turn) { $0.connectFailed(id, error, now: $1) }
                }
            }
        }
    }

    // MARK: Ready connections

    private func becomeReady(_ id: ConnectionID, _ endpoint: Endpoint, in turn: inout Turn) {
        guard let entry = self.links.pending, entry.link.id == id else { return }
        self.links.pending = nil
        if let predecessor = self.links.ready { self.limitDraining(predecessor, in: &turn) }
        self.links.ready = entry
        self.tellHost(.ready(id, endpoint), in: &turn)
        entry.link.startBeats(interval: self.tuner?.interval, in: &turn)
        if self.isReadingSuspended { entry.link.setReading(isSuspended: true, in: &turn) }
    }

    /// Lets the connection that has just got a successor finish what is in flight, for a limited time.
    private func limitDraining(_ entry: DriverLinks.Entry, in turn: inout Turn) {
        let id = entry.link.id
        let timeout = TimeAmount(clamping: self.configuration.drainTimeout)
        let timer = self.loop.setTimer(turn.now.advanced(clamping: timeout)) { self.drainTimedOut(id, in: &$0) }
        self.links.draining[id] = DriverLinks.Draining(entry: entry, timer: timer)
    }

    func finishDraining(_ id: ConnectionID, in turn: inout Turn) {
        guard self.links.draining[id] != nil else { return }
        self.close(id, in: &turn)
        self.machine.drained(id)
    }

    private func drainTimedOut(_ id: ConnectionID, in turn: inout Turn) {
        guard let endpoint = self.links.draining[id]?.entry.endpoint else { return }
        let error = SocketError(
            .connectionLost,
            message: """
                the connection to \(endpoint) was left for another server, and was not answered within \
                \(self.configuration.drainTimeout) (drainTimeout)
                """,
            endpoint: endpoint
        )
        self.tellHost(.lost(id, error), in: &turn)
        self.finishDraining(id, in: &turn)
    }

    // MARK: Ends

    private func close(_ id: ConnectionID, in turn: inout Turn) {
        if self.dialer.abandon(id) { return }
        self.links.waiting.removeAll { $0.id == id }
        if let pending = self.links.pending, pending.link.id == id {
            self.links.pending = nil
            self.maker.pendingEnded(id, self.reasonToEnd(pending.endpoint), in: &turn)
            pending.link.close(.done, in: &turn)
        } else if let ready = self.links.ready, ready.link.id == id {
            self.links.ready = nil
            self.close(ready.link, in: &turn)
        } else if let draining = self.links.draining.removeValue(forKey: id) {
            self.loop.removeTimer(draining.timer)
            self.close(draining.entry.link, in: &turn)
        }
    }

    /// The error of a gate whose connection is closed before it has returned.
    private func reasonToEnd(_ endpoint: Endpoint) -> SocketError {
        // The machine has noted why it closes a connection whose time is up.
        if let last = self.machine.lastError, last.code == .handshakeTimeout, last.endpoint == endpoint { return last }
        return SocketError(
            .cancelled,
            message: "the handshake with \(endpoint) is over: the connection was closed",
            endpoint: endpoint
        )
    }

    private func close(_ link: any DrivenLink, in turn: inout Turn) {
        guard let gone = link.close(.done, in: &turn) else { return }
        self.links.closing[link.id] = (link, gone)
    }
}
