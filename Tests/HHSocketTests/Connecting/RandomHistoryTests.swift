// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// The whole machine in virtual time, in random histories: connects, losses, path changes, the user's calls, timers,
/// lists that change.
///
/// 2,000 times `HHSOCKET_EFFORT`; `make soak` runs 100,000.
@Suite struct RandomHistoryTests {
    @Test func everyHistoryKeepsThePromises() {
        for seed in 0..<UInt64(historyCount) {
            let script = History.script(seed: seed)
            guard let broken = History.run(script, seed: seed) else { continue }
            let (short, promise) = History.shortened(script, seed: seed, broken)
            Issue.record("seed \(seed): \(promise); shortened to \(short.count) steps:\n\(short)")
            return
        }
    }

    @Test func brokenPromiseIsFoundAndShortened() {
        // Checks that the harness can fail: with a wrong bound, it must detect every wait.
        let found = (0..<50).lazy.compactMap { seed -> [History.Step]? in
            let script = History.script(seed: UInt64(seed))
            let broken = History.run(script, seed: UInt64(seed), longestWait: .milliseconds(1))
            return broken.map {
                History.shortened(script, seed: UInt64(seed), $0, longestWait: .milliseconds(1)).0
            }
        }.first
        #expect((found?.count ?? .max) <= 4, "\(found ?? [])")
    }

    @Test func thousandClientsWhoseServerDiesAndReturnsComeBackSpread() {
        // The server is dead for 90 s. Each client tries it repeatedly, and has no other server.
        var perSecond: [Int: Int] = [:]
        var attemptsPerSecond: [Int: Int] = [:]
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        let back = start + .seconds(90)
        for seed in 0..<1_000 {
            var machine = Machine(servers: [serverA], generator: SeededGenerator(seed: UInt64(seed)))
            _ = machine.connect(now: start - .seconds(60))
            _ = machine.connected(ConnectionID(number: 1), now: start - .seconds(60))
            var now = start
            _ = machine.connectionLost(ConnectionID(number: 1), because: lostError, now: now)
            while let timer = machine.nextDeadline {
                now = timer
                _ = machine.timerFired(now: now)
                attemptsPerSecond[Int((now - start).nanoseconds / 1_000_000_000), default: 0] += 1
                let id = ConnectionID(number: machine.nextID - 1)
                if now >= back {
                    _ = machine.connected(id, now: now)
                    perSecond[Int((now - back).nanoseconds / 1_000_000_000), default: 0] += 1
                } else {
                    _ = machine.connectFailed(id, because: refused(serverA), now: now)
                }
            }
        }
        // All reconnect within the cap of 60 s, so the mean is 1,000 / 60; a herd would put most of them into one
        // second.
        #expect(perSecond.values.reduce(0, +) == 1_000)
        #expect((perSecond.keys.max() ?? .max) <= 60)
        let mean = 1_000 / Double(60)
        #expect(perSecond.values.allSatisfy { Double($0) <= 4 * mean }, "\(perSecond.sorted { $0.key < $1.key })")
        // While it is dead, the load on a proxy in front of it falls from the first seconds on.
        #expect((40..<90).allSatisfy { attemptsPerSecond[$0, default: 0] <= 100 })
    }
}

/// A history, and its world.
private enum History {
    enum Step: CustomStringConvertible, Sendable {
        case connect(attempts: Int?), disconnect, switchServer(Endpoint?), setServers([Endpoint]), reconnectSooner
        case network(Bool, isFirst: Bool), background, foreground
        /// A notification from an attempt or a connection, which `choice` selects.
        case replace, proved
        case connected(choice: Int), failed(choice: Int), lost(choice: Int), shaken(HandshakeRefusal.Remedy?)
        case resolved([Endpoint]?), drained(choice: Int), alive
        case goAway(choice: Int, Duration?, [Endpoint], isAnnounced: Bool)
        case time(TimeAmount), timer

        var description: String {
            switch self {
            case .shaken(let remedy): "shaken \(remedy.map { "\($0)" } ?? "well")"
            case .time(let amount): "time \(amount.nanoseconds / 1_000_000) ms"
            case .connect(let attempts): "connect \(attempts ?? 0)"
            case .switchServer(let endpoint): "switch \(endpoint?.description ?? "")"
            case .setServers(let servers): "servers \(servers)"
            case .network(let isReachable, let isFirst): "network \(isReachable)\(isFirst ? " at first" : "")"
            case .connected(let choice): "connected \(choice)"
            case .failed(let choice): "failed \(choice)"
            case .lost(let choice): "lost \(choice)"
            case .resolved(let servers): "resolved \(servers?.description ?? "not")"
            case .drained(let choice): "drained \(choice)"
            case .goAway(let choice, let time, let others, let isAnnounced):
                "go-away \(choice) for \(time.map { "\($0)" } ?? "a while"), others \(others)\(isAnnounced ? "" : ", by a 504")"
            case .disconnect: "disconnect"
            case .reconnectSooner: "pull forward"
            case .background: "background"
            case .foreground: "foreground"
            case .alive: "alive"
            case .replace: "replace"
            case .proved: "proved"
            case .timer: "timer"
            }
        }
    }

    static func script(seed: UInt64) -> [Step] {
        var generator = SeededGenerator(seed: seed)
        let length = Int.random(in: 5...80, using: &generator)
        return [.connect(attempts: nil)] + (0..<length).map { _ in self.step(&generator) }
    }

    private static func step(_ generator: inout SeededGenerator) -> Step {
        // The last server requires no network.
        let servers = [serverA, serverB, serverC, Endpoint(host: "127.0.0.1", port: 4)]
        let choice = Int.random(in: 0..<8, using: &generator)
        switch Int.random(in: 0..<114, using: &generator) {
        case 0..<6: return .connect(attempts: Bool.random(using: &generator) ? nil : choice)
        case 6..<8: return .disconnect
        case 8..<12: return .switchServer(Bool.random(using: &generator) ? nil : servers[choice % 4])
        case 12..<15: return .setServers(Array(servers.shuffled(using: &generator).prefix(choice % 5)))
        case 15..<18: return .reconnectSooner
        case 18..<22: return .network(Bool.random(using: &generator), isFirst: choice == 0)
        case 22..<25: return .background
        case 25..<28: return .foreground
        case 28..<42: return .connected(choice: choice)
        case 42..<54: return .failed(choice: choice)
        case 54..<62: return .lost(choice: choice)
        case 62..<74:
            let remedies: [HandshakeRefusal.Remedy?] = [nil, nil, nil, .trySameServer, .tryAnotherServer, .stop]
            return .shaken(remedies[choice % 6])
        case 74..<79: return .resolved(choice == 0 ? nil : Array(servers.prefix(choice % 5)))
        case 79..<82: return .drained(choice: choice)
        case 82..<84: return .alive
        case 84..<92: return .time(.milliseconds(Int64.random(in: 0...20_000, using: &generator)))
        case 92..<100: return .timer
        case 100..<104: return .replace
        case 104..<106: return .proved
        default:
            let time: Duration? = choice == 0 ? nil : .milliseconds(Int.random(in: 0...40_000, using: &generator))
            let others = (servers + [Endpoint(host: "x", port: 9), Endpoint(unixPath: "/x")]).shuffled(
                using: &generator
            )
            let isAnnounced = choice != 1
            return .goAway(choice: choice, time, Array(others.prefix(choice % 4)), isAnnounced: isAnnounced)
        }
    }

    /// - Returns: The promise that was broken, if one was.
    static func run(_ script: [Step], seed: UInt64, longestWait: Duration = .seconds(60)) -> String? {
        var world = World(seed: seed, longestWait: longestWait)
        for step in script {
            if let broken = world.take(step) { return broken }
        }
        return nil
    }

    /// Removes steps for as long as a promise is still broken.
    static func shortened(
        _ script: [Step],
        seed: UInt64,
        _ broken: String,
        longestWait: Duration = .seconds(60)
    ) -> ([Step], String) {
        TestSupport.shortened(script, broken) { self.run($0, seed: seed, longestWait: longestWait) }
    }
}

/// The state of a shell, and the promises.
private struct World {
    private var machine: Machine
    private let longestWait: Duration
    private var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private var attempts: [ConnectionID] = []
    private var handshaking: ConnectionID?
    private var ready: ConnectionID?
    private var draining: [ConnectionID] = []
    private var search: ConnectionID?
    private var isReachable = true
    /// Whether the user has requested a connection that was not tried yet.
    private var insists = false
    private var isInBackground = false
    private var wantsConnection = false
    /// The last report to the layer above.
    private var isOffline = true
    private let policy: BackgroundPolicy
    private let acceptsOthers: Bool
    /// The times until which servers must not be tried, unless an earlier attempt was requested.
    private var away: [Endpoint: NIODeadline] = [:]
    private var left: Set<ConnectionID> = []
    private var isStopped = false
    private let linksMayOverlap: Bool

    init(seed: UInt64, longestWait: Duration) {
        self.longestWait = longestWait
        var settings = Machine.Settings()
        settings.backoff = Backoff(maximumRounds: seed % 3 == 0 ? 4 : nil)
        settings.racing = seed % 2 == 0 ? RacingPolicy() : nil
        settings.handshake = seed % 5 < 3 ? LinkHandshake(timeout: .seconds(10), failure: "late") : nil
        settings.resolverTimeout = seed % 7 == 0 ? .seconds(10) : nil
        settings.background = [.finishTasks, .failTasks, .keepConnected][Int(seed % 11 % 3)]
        settings.linksMayOverlap = seed % 4 != 3
        self.linksMayOverlap = settings.linksMayOverlap
        self.policy = settings.background
        self.acceptsOthers = seed % 13 == 0
        self.machine = Machine(
            servers: [serverA, serverB, serverC],
            policy: ServerPolicy(acceptsOtherEndpoints: self.acceptsOthers),
            settings: settings,
            generator: SeededGenerator(seed: seed)
        )
    }

    private var mayAttempt: Bool {
        self.wantsConnection && (self.isNetworkEnough || self.insists)
            && !(self.isInBackground && self.policy != .keepConnected)
    }

    private var isNetworkEnough: Bool {
        self.isReachable || self.machine.servers.endpoints.contains { $0.host == "127.0.0.1" }
    }

    mutating func take(_ step: History.Step) -> String? {
        let actions: [Machine.Action]
        switch step {
        case .connect(let attempts):
            self.wantsConnection = true
            switch self.machine.phase {
            case .idle, .closed, .waiting, .held:
                self.away = [:]
                self.insists = true
            default: break
            }
            actions = self.machine.connect(attempts: attempts, now: self.now)
        case .disconnect:
            self.insists = false
            self.wantsConnection = false
            actions = self.machine.disconnect(now: self.now)
        case .switchServer(let endpoint):
            if let endpoint { self.away[endpoint] = nil }
            actions = self.machine.switchServer(to: endpoint, now: self.now)
        case .setServers(let servers):
            self.away = self.away.filter { servers.contains($0.key) }
            actions = self.machine.replaceServers(with: servers, now: self.now)
        case .reconnectSooner:
            // Then they may be tried sooner.
            self.away = [:]
            actions = self.machine.reconnectSooner(now: self.now)
        case .network(let isReachable, isFirst: false):
            if isReachable || self.isReachable { self.insists = false }
            self.isReachable = isReachable
            actions = self.machine.networkChanged(isReachable: isReachable, now: self.now)
        case .network(let isReachable, isFirst: true):
            if !isReachable { self.isReachable = false }
            actions = self.machine.networkIsKnown(isReachable: isReachable, now: self.now)
            if isReachable, !actions.isEmpty { return "a network that is there at first has changed something" }
        case .background:
            self.isInBackground = true
            actions = self.machine.didEnterBackground(now: self.now)
        case .foreground:
            self.isInBackground = false
            actions = self.machine.willEnterForeground(now: self.now)
        case .connected(let choice):
            guard let id = self.attempts.element(choice) else { return nil }
            self.attempts.removeAll { $0 == id }
            self.handshaking = id  // made, and nothing else yet
            actions = self.machine.connected(id, now: self.now)
        case .failed(let choice):
            guard let id = self.attempts.element(choice) else { return nil }
            self.attempts.removeAll { $0 == id }
            actions = self.machine.connectFailed(id, because: lostError, now: self.now)
        case .lost(let choice):
            let live = ([self.ready, self.handshaking].compactMap { $0 }) + self.draining
            guard let id = live.element(choice) else { return nil }
            actions = self.machine.connectionLost(id, because: lostError, now: self.now)
            if id == self.ready, !actions.contains(where: { $0.text == "lost \(id) connectionLost" }) {
                return "a connection was lost and nobody was told"
            }
            self.forget(id)
        case .shaken(let remedy):
            guard let id = self.handshaking else { return nil }
            if remedy == .stop { self.isStopped = true }
            let error = SocketError(.handshakeRefused, message: "refused")
            actions =
                if let remedy {
                    self.machine.handshakeFailed(id, because: error, remedy: remedy, now: self.now)
                } else {
                    self.machine.handshakeSucceeded(id, now: self.now)
                }
        case .resolved(let servers):
            guard let id = self.search else { return nil }
            self.search = nil
            if let servers, !servers.isEmpty { self.away = self.away.filter { servers.contains($0.key) } }
            let result: Result<[Endpoint], SocketError> = servers.map { .success($0) } ?? .failure(lostError)
            actions = self.machine.resolved(id, result, now: self.now)
        case .drained(let choice):
            guard let id = self.draining.element(choice) else { return nil }
            self.forget(id)
            self.machine.drained(id)
            actions = []
        case .goAway(let choice, let time, let others, let isAnnounced):
            guard let id = [self.ready, self.handshaking].compactMap({ $0 }).element(choice) else { return nil }
            let isNew = !self.left.contains(id)
            let news = GoAway(reason: "restart", retryAfter: time, endpoints: others)
            actions = self.machine.goAway(id, news, isAnnounced: isAnnounced, now: self.now)
            if id == self.ready, isNew != actions.contains(where: { $0.text == "go-away \(id)" }) {
                return "a connection is left, and those above are told \(isNew ? "nothing" : "again")"
            }
        case .alive:
            if let ready = self.ready { self.machine.connectionIsAlive(ready) }
            actions = []
        case .replace:
            guard let id = self.ready else { return nil }
            // A server that is about to end is left as for a call.
            self.away = [:]
            actions = self.machine.replace(id, now: self.now)
        case .proved:
            guard let id = self.ready ?? self.machine.lastLost else { return nil }
            actions = self.machine.connectionIsProved(id, now: self.now)
        case .time(let amount):
            // The timer is late by at most the history's delay.
            self.now = self.now + amount
            actions = []
        case .timer:
            guard let deadline = self.machine.nextDeadline else { return nil }
            self.now = max(self.now, deadline)
            actions = self.machine.timerFired(now: self.now)
            if self.machine.nextDeadline.map({ $0 <= deadline }) == true { return "the timer spins" }
        }
        return self.perform(actions) ?? self.check()
    }

    private mutating func forget(_ id: ConnectionID) {
        if self.ready == id { self.ready = nil }
        if self.handshaking == id { self.handshaking = nil }
        self.draining.removeAll { $0 == id }
        self.attempts.removeAll { $0 == id }
    }

    private mutating func perform(_ actions: [Machine.Action]) -> String? {
        for action in actions {
            switch action {
            case .resolve(let id):
                guard self.mayAttempt else { return "servers are looked for while offline or closed" }
                self.search = id
            case .open(let id, let endpoint):
                guard self.mayAttempt else { return "an attempt while offline or closed" }
                if let until = self.away[endpoint], self.now < until { return "\(endpoint) is not left alone" }
                if endpoint.unixPath != nil || endpoint.host == "x", !self.acceptsOthers || endpoint.unixPath != nil {
                    return "a stranger's server is used"
                }
                if !self.linksMayOverlap, self.ready != nil {
                    return "a connection is made while another may not overlap with it"
                }
                self.attempts.append(id)
                if self.attempts.count > 3 { return "more attempts at once than the race allows" }
            case .handshake(let id, _):
                if self.handshaking != id { return "a handshake on a connection that is not made" }
            case .close(let id):
                self.forget(id)
            case .ready(let id, _):
                guard self.handshaking == id else { return "ready without a connection" }
                self.handshaking = nil
                if let ready = self.ready {
                    guard self.linksMayOverlap else { return "two connections are ready that may not overlap" }
                    self.draining.append(ready)
                }
                self.ready = id
                self.insists = false
                self.isOffline = false
            case .goAway(let id):
                guard self.ready == id, self.left.insert(id).inserted else { return "a connection is left twice" }
            case .part(let id, _):
                guard !self.linksMayOverlap, self.ready == id else {
                    return "a connection is closed for another that need not be"
                }
                self.forget(id)
            case .reconnectDeferred:
                if action.text != actions.last?.text { return "something comes after a wait" }
            case .report(.goAway(let endpoint, _, let retryAfter)):
                if retryAfter < .zero || retryAfter > .seconds(300) { return "away for \(retryAfter)" }
                if self.machine.servers.contains(endpoint) { self.away[endpoint] = self.now + TimeAmount(retryAfter) }
            case .drain(let id):
                guard self.draining.contains(id) else { return "a connection drains without a successor" }
            case .lost(let id, let error):
                if error.message.isEmpty { return "a loss without a cause" }
                self.forget(id)
            case .beingMade:
                if self.ready != nil { return "told that a connection is being made while one is ready" }
                self.isOffline = false
            case .offline(let error):
                if error.message.isEmpty { return "offline without a cause" }
                if self.ready != nil || !self.attempts.isEmpty { return "told to be offline while it is not" }
                self.isOffline = true
                self.insists = false
            case .report(.disconnected(let error)):
                if error.message.isEmpty { return "a disconnect without a cause" }
            case .report(.waiting(let delay, _)):
                if delay < .zero || delay > self.longestWait { return "a wait of \(delay)" }
            case .report(.gaveUp):
                self.wantsConnection = false
            case .probe, .paceHeartbeat, .application, .report:
                break
            }
        }
        return nil
    }

    /// Checks the invariants between events.
    private func check() -> String? {
        let isMaking = !self.attempts.isEmpty || self.handshaking != nil
        switch self.machine.state {
        case .ready:
            guard let ready = self.ready else { return "ready without a connection" }
            if self.left.contains(ready), !isMaking, self.search == nil, self.mayAttempt, !self.isStopped,
                !self.machine.servers.isEmpty, self.machine.nextDeadline == nil
            {
                return "a connection is left, and no successor will be made"
            }
        case .connecting:
            if self.attempts.isEmpty { return "connecting without an attempt" }
            if self.ready != nil { return "connecting while a connection is ready" }
        case .handshaking:
            if self.handshaking == nil { return "handshaking without a connection" }
        case .waiting(let until, _):
            if isMaking || self.ready != nil { return "waiting while something is in progress" }
            if until == .distantFuture, self.mayAttempt { return "waiting for ever although nothing is in the way" }
            if until < .distantFuture, self.machine.nextDeadline != until { return "a wait without a timer" }
        case .idle, .closed:
            if isMaking || self.ready != nil { return "closed, and still \(isMaking ? "making" : "ready")" }
            if self.machine.nextDeadline != nil { return "closed, and still a timer" }
        case .resolving:
            break
        }
        if !self.mayAttempt, isMaking { return "an attempt goes on while offline or closed" }
        if !self.wantsConnection, self.ready != nil { return "a connection that nobody wants" }
        return nil
    }
}

extension Array {
    fileprivate func element(_ choice: Int) -> Element? { self.isEmpty ? nil : self[choice % self.count] }
}
