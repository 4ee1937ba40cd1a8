// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Performing the machine's actions.
extension Driver {
    func perform(_ action: Machine.Action, in turn: inout Turn) {
        switch action {
        case .resolve(let id): self.resolve(id)
        case .open(let id, let endpoint): self.open(id, endpoint, in: &turn)
        case .handshake(let id, let attempt): self.links.made(id)?.shakeHands(attempt: attempt, in: &turn)
        case .ready(let id, let endpoint): self.becomeReady(id, endpoint, in: &turn)
        case .drain(let id): self.notifyHost(.draining(id), in: &turn)
        case .close(let id): self.close(id, in: &turn)
        case .goAway(let id): self.notifyHost(.goingAway(id), in: &turn)
        case .part(let id, let error): self.part(id, error, in: &turn)
        case .lost(let id, let error): self.notifyHost(.lost(id, error), in: &turn)
        case .beingMade: self.notifyHost(.beingMade, in: &turn)
        case .reconnectDeferred: self.notifyHost(.reconnectDeferred, in: &turn)
        case .offline(let error): self.notifyHost(.offline(error), in: &turn)
        case .probe(let id): self.links.ready(id)?.probe(isUrgent: true, in: &turn)
        case .paceHeartbeat(let id, let isPaused):
            self.links.ready(id)?.changeBeats(isPaused ? .pause : .resume, in: &turn)
        case .application(let isActive): self.applicationChanged(isActive: isActive, in: &turn)
        case .report(let event): self.report(event, in: &turn)
        }
    }

    func notifyHost(_ change: ConnectionChange, in turn: inout Turn) {
        self.host?.connectionChanged(change, in: &turn)
    }

    private func report(_ event: SocketEvent, in turn: inout Turn) {
        self.record(event, now: turn.now)
        self.log?.happened(event)
        self.metrics?.happened(event, now: turn.now)
        self.notifyHost(.happened(event), in: &turn)
    }

    private func applicationChanged(isActive: Bool, in turn: inout Turn) {
        self.tuner?.applicationChanged(isActive: isActive)
        self.updateHeartbeatInterval(in: &turn)
    }

    func updateHeartbeatInterval(in turn: inout Turn) {
        if let interval = self.tuner?.interval { self.links.ready?.link.changeBeats(.interval(interval), in: &turn) }
    }

    // MARK: Attempts

    private func resolve(_ id: ConnectionID) {
        guard let resolver = self.configuration.resolver else { return }
        let families = self.configuration.serverAddressFamilies
        self.network.search?.cancel()
        self.network.search = Task { [weak self] in
            let result: Result<[Endpoint], SocketError>
            do {
                result = .success(try await resolver.resolve(families))
            } catch {
                result = .failure(
                    error as? SocketError
                        ?? SocketError(.hostNotFound, message: "the resolver failed: \(error)", underlying: error)
                )
            }
            guard let self else { return }
            self.submit { turn in self.apply(in: &turn) { $0.resolved(id, result, now: $1) } }
        }
    }

    private func open(_ id: ConnectionID, _ endpoint: Endpoint, in turn: inout Turn) {
        guard !self.maker.linksMayOverlap else { return self.dial(id, endpoint) }
        self.links.waiting.append((id, endpoint))
        // A link that has just ended closes its channel when this has returned.
        turn.after { _ in self.dialWaiting() }
    }

    private func dialWaiting() {
        guard self.links.closing.isEmpty else { return }
        let waiting = self.links.waiting
        self.links.waiting = []
        for attempt in waiting { self.dial(attempt.id, attempt.endpoint) }
    }

    /// Records that a link that was closing by choice has closed.
    func linkIsGone(_ id: ConnectionID, in turn: inout Turn) {
        if let closed = self.links.closing.removeValue(forKey: id) { self.measure(closed.link) }
        if let error = self.links.parting.removeValue(forKey: id) { self.notifyHost(.lost(id, error), in: &turn) }
        self.dialWaiting()
    }

    private func dial(_ id: ConnectionID, _ endpoint: Endpoint) {
        self.dialer.dial(id, endpoint) { (agreement) throws(SocketError) in
            try self.maker.makeLink(id, to: endpoint, agreement: agreement, on: self.loop, for: self)
        } completion: { result in
            self.loop.enter { turn in
                switch result {
                case .success(let made):
                    self.links.pending = DriverLinks.Entry(link: made.link, endpoint: endpoint, made: made)
                    self.apply(in: &turn) { $0.connected(id, now: $1) }
                case .failure(let failure):
                    self.apply(in: &turn) {
                        $0.connectFailed(id, because: failure.error, blame: failure.blame, now: $1)
                    }
                }
            }
        }
    }

    // MARK: Ready connections

    private func becomeReady(_ id: ConnectionID, _ endpoint: Endpoint, in turn: inout Turn) {
        guard let made = self.links.made(id) else { return }
        let link: any DrivenLink = made.link
        self.links.pending = nil
        if let predecessor = self.links.ready { self.limitDraining(predecessor, in: &turn) }
        self.links.ready = DriverLinks.Entry(link: link, endpoint: endpoint)
        // The first beat may be the first unit that is sent.
        link.startBeats(interval: self.tuner?.interval, in: &turn)
        made.isReady(in: &turn)
        if self.isReadingSuspended { link.setReading(isSuspended: true, in: &turn) }
    }

    /// Limits the time for which the connection that has just been replaced drains.
    private func limitDraining(_ entry: DriverLinks.Entry, in turn: inout Turn) {
        var entry = entry
        let id = entry.link.id
        let timeout = TimeAmount(clamping: self.configuration.drainTimeout)
        entry.timer = self.loop.setTimer(turn.now.advanced(clamping: timeout)) { self.drainTimedOut(id, in: &$0) }
        self.links.draining[id] = entry
    }

    func finishDraining(_ id: ConnectionID, in turn: inout Turn) {
        guard self.links.draining[id] != nil else { return }
        self.close(id, in: &turn)
        self.machine.drained(id)
    }

    private func drainTimedOut(_ id: ConnectionID, in turn: inout Turn) {
        guard let endpoint = self.links.draining[id]?.endpoint else { return }
        let error = SocketError(
            .connectionLost,
            message: """
                the connection to \(endpoint) was left for another server, and was not answered within \
                \(self.configuration.drainTimeout) (drainTimeout)
                """,
            endpoint: endpoint
        )
        self.notifyHost(.lost(id, error), in: &turn)
        self.finishDraining(id, in: &turn)
    }

    // MARK: Ends

    func close(_ id: ConnectionID, in turn: inout Turn) {
        if self.dialer.abandon(id) { return }
        self.links.waiting.removeAll { $0.id == id }
        guard let entry = self.take(id) else { return }
        entry.made?.ended(self.reasonToEnd(entry.endpoint), in: &turn)
        if entry.made != nil, self.maker.linksMayOverlap {
            entry.link.close(.done, in: &turn)
        } else {
            // If links must not overlap, the next one waits until this one is closed.
            self.close(entry.link, in: &turn)
        }
    }

    /// Removes a link that is not closing yet, with its timer.
    func take(_ id: ConnectionID) -> DriverLinks.Entry? {
        let entry = self.links.take(id)
        if let timer = entry?.timer { self.loop.removeTimer(timer) }
        return entry
    }

    /// Closes a departing connection, and reports its loss when it is closed.
    private func part(_ id: ConnectionID, _ error: SocketError, in turn: inout Turn) {
        self.links.parting[id] = error
        self.close(id, in: &turn)
        // It may be closed already.
        if self.links.closing[id] == nil { self.linkIsGone(id, in: &turn) }
    }

    /// The error of a gate whose connection is closed before it has returned.
    private func reasonToEnd(_ endpoint: Endpoint) -> SocketError {
        // The machine has recorded the reason for closing a connection that timed out.
        if let last = self.machine.lastError, last.code == .handshakeTimeout, last.endpoint == endpoint { return last }
        return SocketError(
            .cancelled,
            message: "the handshake with \(endpoint) is over: the connection was closed",
            endpoint: endpoint
        )
    }

    /// Closes a link, or notes that it closes.
    func close(_ link: any DrivenLink, in turn: inout Turn) {
        guard let gone = link.close(.done, in: &turn) else { return }
        self.links.closing[link.id] = (link, gone)
    }
}
