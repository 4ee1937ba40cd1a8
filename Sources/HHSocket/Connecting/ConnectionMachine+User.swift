// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Requests of the application, and of its calls.
extension ConnectionMachine {
    /// - Parameter attempts: The number of rounds without a ready connection after which attempts stop; nil for the
    ///   back-off's.
    mutating func connect(attempts: Int? = nil, now: NIODeadline) -> [Action] {
        switch self.phase {
        case .making, .ready:
            return []
        case .idle, .closed:
            self.failures = 0
            self.lastErrors = [:]
        case .waiting, .held:
            break
        }
        self.allowedRounds = attempts.map { max(1, $0) }
        self.failedRounds = 0
        self.hasRunOut = false
        self.servers.callBack()
        // Monitors can be wrong, so a user who requests a connection gets one round of attempts.
        self.insists = true
        guard let reason = self.reasonToHold else { return self.startMaking(now: now) }
        if case .held = self.phase { return [] }
        return self.hold(reason)
    }

    /// Starts again, with an immediate first attempt and the same number of rounds, if attempts stopped because all
    /// rounds failed.
    mutating func connectAgain(now: NIODeadline) -> [Action] {
        self.hasRunOut ? self.connect(attempts: self.allowedRounds, now: now) : []
    }

    mutating func disconnect(now: NIODeadline) -> [Action] {
        self.alternates = []
        self.insists = false
        self.hasRunOut = false
        var actions: [Action] = self.making?.attempts.map { .close($0.id) } ?? []
        switch self.phase {
        case .closed:
            return self.closeDraining()
        case .idle, .waiting, .held:
            break
        case .making:
            actions.append(.offline(Self.closedByUser(self.endpointBeingTried)))
        case .ready(let ready):
            let id = ready.connection.id
            let error = Self.closedByUser(ready.connection.endpoint)
            self.judge(ready.connection, now: now)
            actions += [.lost(id, error), .close(id), .offline(error)]
        }
        self.phase = .closed
        return actions + self.closeDraining() + [.report(.closed)]
    }

    private mutating func closeDraining() -> [Action] {
        let ids = self.draining.sorted { $0.number < $1.number }
        self.draining = []
        return ids.flatMap { id -> [Action] in [.lost(id, Self.closedByUser(nil)), .close(id)] }
    }

    /// Fails over to `endpoint`, or to the next best server, once the new connection is ready.
    mutating func switchServer(to endpoint: Endpoint?, now: NIODeadline) -> [Action] {
        if let endpoint { self.servers.prefer(endpoint) }
        switch self.phase {
        case .idle, .closed:
            return []
        case .held:
            // The server that was added to the list may be on this machine, and need no network.
            return self.reasonToHold == nil ? self.startMaking(target: endpoint, now: now) : []
        case .waiting:
            return self.startMaking(target: endpoint, now: now)
        case .making:
            let tried = self.endpointBeingTried
            if let endpoint, endpoint == tried { return [] }
            if endpoint == nil, let tried { self.servers.passOver(tried) }
            return self.startMaking(target: endpoint, avoiding: endpoint == nil ? tried : nil, now: now)
        case .ready(let ready):
            let present = ready.connection.endpoint
            guard endpoint != present || ready.departure != nil else { return self.abandonMaking() }
            guard self.reasonToHold == nil else { return [] }
            if endpoint == nil { self.servers.passOver(present) }
            return self.startMaking(target: endpoint, avoiding: present, now: now)
        }
    }

    /// Too many calls to the current server fail: like ``switchServer(to:now:)``, but never to the same server.
    mutating func failOver(now: NIODeadline) -> [Action] {
        guard let ready = self.ready, ready.successor == nil,
            self.servers.hasPresent(besides: ready.connection.endpoint, now: now)
        else { return [] }
        return self.switchServer(to: nil, now: now)
    }

    /// There is no progress on this connection, although it is alive: replaces it once a new one is ready. The current
    /// server is tried too, as the last one, since the path may be at fault.
    mutating func replace(_ id: ConnectionID, now: NIODeadline) -> [Action] {
        guard let ready = self.ready, ready.connection.id == id, ready.successor == nil, self.reasonToHold == nil
        else { return [] }
        guard ready.departure == nil else { return self.departSooner(now: now) }
        self.servers.passOver(ready.connection.endpoint)
        return self.startMaking(now: now)
    }

    /// Replaces the list. Scores of servers that stay are kept; a connection to a removed server is replaced.
    mutating func replaceServers(with endpoints: [Endpoint], now: NIODeadline) -> [Action] {
        self.setServers(endpoints)
        // Without a network, whether to try depends on the list.
        if let reason = self.reasonToHold { return self.stopAttempts(reason) }
        switch self.phase {
        case .idle, .closed:
            return []
        case .held:
            return self.startMaking(now: now)
        case .waiting:
            return self.reconnectSooner(isCall: false, now: now)
        case .making(let making):
            return self.adjust(making, now: now)
        case .ready(let ready):
            if let successor = ready.successor { return self.adjust(successor, now: now) }
            if ready.departure != nil { return self.departNow(now: now) }
            let present = ready.connection.endpoint
            guard !self.servers.isEmpty, !self.servers.contains(present) else { return [] }
            return self.startMaking(avoiding: present, now: now)
        }
    }

    mutating func setServers(_ endpoints: [Endpoint], keepsStart: Bool = false) {
        self.servers.replace(with: endpoints, keepsStart: keepsStart)
        self.lastErrors = self.lastErrors.filter { self.servers.contains($0.key) }
    }

    /// A call requests a connection: the first one during a wait moves the next round to a random time within the next
    /// second, later ones have no effect. If the server is shutting down, the client fails over at once; if only the
    /// network has changed, it connects at once.
    ///
    /// - Parameter isCall: False if there is no call: then servers that went away are not tried sooner.
    mutating func reconnectSooner(isCall: Bool = true, now: NIODeadline) -> [Action] {
        if self.isReady { return self.departSooner(now: now) }
        guard case .waiting(var wait) = self.phase, !wait.isPulledForward else { return [] }
        if isCall, wait.isSpread { return self.startMaking(now: now) }
        // In a long outage calls do not shorten the back-off.
        if isCall, !wait.isForReturn, self.isBackedOff { return [] }
        wait.until = min(wait.until, self.soonest(isCall: isCall, now: now))
        wait.isPulledForward = true
        self.phase = .waiting(wait)
        return []
    }

    /// Whether the wait's bound has reached a quarter of the cap.
    var isBackedOff: Bool {
        let backoff = self.settings.backoff
        let bound = backoff.bound(afterFailures: max(0, self.failures - 1))
        return bound > Backoff.minimumRepeatedWait && bound >= backoff.cap / 4
    }
}
