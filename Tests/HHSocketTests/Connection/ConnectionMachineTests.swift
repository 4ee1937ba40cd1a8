import NIOCore
import TestSupport
import Testing

@testable import HHSocket

@Suite struct ConnectionMachineTests {
    typealias Machine = ConnectionMachine<SeededGenerator>

    static let a = Endpoint(host: "a", port: 1)
    static let b = Endpoint(host: "b", port: 2)
    static let c = Endpoint(host: "c", port: 3)
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func machine(_ servers: [Endpoint] = [a, b], backoff: Backoff = Backoff(), seed: UInt64 = 1) -> Machine {
        Machine(servers: servers, backoff: backoff, generator: SeededGenerator(seed: seed))
    }

    private func refused(_ endpoint: Endpoint) -> SocketError {
        SocketError(.connectionRefused, message: "refused", endpoint: endpoint)
    }

    private let lost = SocketError(.connectionLost, message: "lost")

    @Test func connectsToTheFirstServerAtOnce() {
        var machine = self.machine()
        #expect(machine.connect(now: self.start).texts == ["report connecting to a:1, attempt 1", "open 1 a:1"])
        let connected = machine.connected(ConnectionID(number: 1), now: self.start)
        #expect(connected.texts == ["ready a:1", "report connected to a:1"])
        #expect(machine.state.description == "ready, a:1")
        #expect(machine.connect(now: self.start).isEmpty)
    }

    @Test func refusalMovesOnAtOnceAndARoundThatFailsWaits() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        let next = machine.connectFailed(ConnectionID(number: 1), self.refused(Self.a), now: self.start)
        #expect(next.texts.suffix(1) == ["open 2 b:2"])
        let end = machine.connectFailed(ConnectionID(number: 2), self.refused(Self.b), now: self.start)
        #expect(end.texts.first == "report connect failed: connectionRefused: refused")
        #expect(end.contains { if case .offline(let error) = $0 { error.endpoint == Self.b } else { false } })
        let timer = try #require(end.timer)
        #expect(timer >= self.start && timer <= self.start + .seconds(1))
        guard case .waiting(timer, _) = machine.state else {
            Issue.record("not waiting: \(machine.state)")
            return
        }
    }

    @Test func timerStartsTheNextRoundAndNotBefore() throws {
        var machine = self.machine([Self.a])
        _ = machine.connect(now: self.start)
        let failed = machine.connectFailed(ConnectionID(number: 1), self.refused(Self.a), now: self.start)
        let timer = try #require(failed.timer)
        #expect(machine.timerFired(now: timer - .nanoseconds(1)).timer == timer)
        #expect(machine.timerFired(now: timer).texts.last == "open 2 a:1")
        #expect(machine.timerFired(now: timer).isEmpty)
    }

    @Test func lossReconnectsAfterAJitteredWaitWithTheServerThatDidNotFailFirst() throws {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        let actions = machine.connectionLost(ConnectionID(number: 1), self.lost, now: self.start + .seconds(100))
        #expect(actions.texts.prefix(2) == ["lost lost", "report disconnected: connectionLost: lost"])
        let timer = try #require(actions.timer)
        #expect(timer <= self.start + .seconds(101))
        #expect(machine.timerFired(now: timer).texts.last == "open 2 b:2")
    }

    @Test func firstReconnectsOfAThousandClientsAreSpreadOverASecond() throws {
        var perTenth = [Int](repeating: 0, count: 10)
        for seed in 0..<1_000 {
            var machine = self.machine([Self.a], seed: UInt64(seed))
            _ = machine.connect(now: self.start)
            _ = machine.connected(ConnectionID(number: 1), now: self.start)
            let lostAt = self.start + .seconds(60)
            let timer = try #require(machine.connectionLost(ConnectionID(number: 1), self.lost, now: lostAt).timer)
            perTenth[min(9, Int((timer - lostAt).nanoseconds / 100_000_000))] += 1
        }
        #expect(perTenth.allSatisfy { (50...160).contains($0) }, "\(perTenth)")
    }

    @Test func serverThatAcceptsAndClosesMeetsAGrowingWait() throws {
        var machine = self.machine([Self.a], seed: 3)
        var now = self.start
        var attempt = ConnectionID(number: 1)
        var waits: [TimeAmount] = []
        _ = machine.connect(now: now)
        for _ in 0..<40 {
            _ = machine.connected(attempt, now: now)
            let timer = try #require(machine.connectionLost(attempt, self.lost, now: now).timer)
            waits.append(timer - now)
            now = timer
            _ = machine.timerFired(now: now)
            attempt.number += 1
        }
        // By then the bound is 60 s, and the mean of 30 waits 30 s.
        #expect(waits.suffix(30).reduce(.zero, +) > .seconds(30 * 15))
        #expect(waits.allSatisfy { $0 <= .seconds(60) })
    }

    @Test func backOffStartsOverAfterAConnectionThatStayed() throws {
        var machine = self.machine([Self.a])
        var now = self.start
        _ = machine.connect(now: now)
        for number in 1...10 {
            now = try #require(machine.connectFailed(ConnectionID(number: UInt64(number)), self.lost, now: now).timer)
            _ = machine.timerFired(now: now)
        }
        _ = machine.connected(ConnectionID(number: 11), now: now)
        now = now + .seconds(10)
        let timer = try #require(machine.connectionLost(ConnectionID(number: 11), self.lost, now: now).timer)
        #expect(timer - now <= .seconds(1))
    }

    @Test func attemptsStopAfterTheAllowedRounds() {
        var machine = self.machine(backoff: Backoff(maximumRounds: 2))
        var now = self.start
        var attempt: UInt64 = 1
        var actions = machine.connect(now: now)
        while !actions.contains(where: { if case .report(.gaveUp) = $0 { true } else { false } }), attempt < 100 {
            if let timer = actions.timer {
                now = timer
                actions = machine.timerFired(now: now)
            } else {
                actions = machine.connectFailed(ConnectionID(number: attempt), self.refused(Self.a), now: now)
                attempt += 1
            }
        }
        #expect(attempt == 5)
        #expect(machine.state.description == "closed")
        #expect(machine.timerFired(now: now + .hours(1)).isEmpty)
        #expect(machine.connect(now: now).texts.last == "open 5 a:1")
    }

    @Test func disconnectStaysClosed() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        let actions = machine.disconnect(now: self.start).texts
        #expect(actions.contains("close 1"))
        #expect(actions.last == "report closed")
        #expect(machine.connectionLost(ConnectionID(number: 1), self.lost, now: self.start).isEmpty)
        #expect(machine.timerFired(now: self.start + .hours(1)).isEmpty)
        #expect(machine.disconnect(now: self.start).isEmpty)
    }

    @Test func attemptThatSucceedsAfterDisconnectIsClosed() {
        var machine = self.machine()
        _ = machine.connect(now: self.start)
        #expect(machine.disconnect(now: self.start).texts.first == "close 1")
        #expect(machine.connected(ConnectionID(number: 1), now: self.start).texts == ["close 1"])
        #expect(machine.connectFailed(ConnectionID(number: 1), self.lost, now: self.start).isEmpty)
    }

    @Test func switchLeavesTheServerForTheNext() {
        var machine = self.machine([Self.a, Self.b, Self.c])
        _ = machine.connect(now: self.start)
        _ = machine.connected(ConnectionID(number: 1), now: self.start)
        let actions = machine.switchServer(to: nil, now: self.start).texts
        #expect(actions.contains("close 1"))
        #expect(actions.last == "open 2 b:2")
        _ = machine.connected(ConnectionID(number: 2), now: self.start)
        #expect(machine.switchServer(to: Self.c, now: self.start).texts.last == "open 3 c:3")
        _ = machine.connected(ConnectionID(number: 3), now: self.start)
        #expect(machine.switchServer(to: Self.c, now: self.start).isEmpty)
        let new = Endpoint(host: "new", port: 9)
        #expect(machine.switchServer(to: new, now: self.start).texts.last == "open 4 new:9")
    }

    @Test func firstCallInAWaitPullsTheAttemptForwardAndLaterOnesChangeNothing() throws {
        var machine = self.machine([Self.a], seed: 5)
        var now = self.start
        _ = machine.connect(now: now)
        for number in 1...12 {
            now = try #require(machine.connectFailed(ConnectionID(number: UInt64(number)), self.lost, now: now).timer)
            _ = machine.timerFired(now: now)
        }
        _ = machine.connectFailed(ConnectionID(number: 13), self.lost, now: now)
        let sooner = try #require(machine.pullForward(now: now).timer)
        #expect(sooner <= now + .seconds(1))
        #expect(machine.pullForward(now: now).isEmpty)
        #expect(machine.timerFired(now: sooner).texts.last == "open 14 a:1")
    }

    @Test func noServersIsAnErrorAndNotALoop() {
        var machine = self.machine([])
        let actions = machine.connect(now: self.start)
        #expect(actions.contains { if case .offline(let error) = $0 { error.code == .invalidArgument } else { false } })
        #expect(actions.timer == nil)
    }

    @Test(arguments: 0..<200)
    func randomHistoriesKeepTheirPromises(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        var machine = self.machine([Self.a, Self.b, Self.c], backoff: Backoff(maximumRounds: 5), seed: UInt64(seed))
        var now = self.start
        var live: Set<UInt64> = []  // attempts opened, not yet closed, failed or lost
        var ready: UInt64?
        var timer: NIODeadline?
        var isClosedByUser = true
        for _ in 0..<300 {
            now = now + .milliseconds(Int64.random(in: 0...2_000, using: &generator))
            var actions: [Machine.Action] = []
            switch Int.random(in: 0..<10, using: &generator) {
            case 0:
                isClosedByUser = false
                actions = machine.connect(now: now)
            case 1 where Int.random(in: 0..<4, using: &generator) == 0:
                isClosedByUser = true
                actions = machine.disconnect(now: now)
            case 2:
                actions = machine.switchServer(to: Bool.random(using: &generator) ? nil : Self.b, now: now)
            case 3:
                actions = machine.pullForward(now: now)
            case 4, 5:
                guard let attempt = live.subtracting([ready].compactMap { $0 }).min() else { continue }
                actions = machine.connected(ConnectionID(number: attempt), now: now)
                if actions.contains(where: { if case .ready = $0 { true } else { false } }) { ready = attempt }
            case 6, 7:
                guard let attempt = live.subtracting([ready].compactMap { $0 }).min() else { continue }
                live.remove(attempt)
                actions = machine.connectFailed(ConnectionID(number: attempt), self.lost, now: now)
            case 8:
                guard let attempt = ready else { continue }
                live.remove(attempt)
                ready = nil
                actions = machine.connectionLost(ConnectionID(number: attempt), self.lost, now: now)
            default:
                guard let deadline = timer else { continue }
                now = max(now, deadline)
                timer = nil
                actions = machine.timerFired(now: now)
            }
            for action in actions {
                switch action {
                case .open(let attempt, _):
                    #expect(!isClosedByUser, "an attempt while closed by the user")
                    #expect(live.isEmpty, "two connections at once")
                    live.insert(attempt.number)
                case .close(let attempt):
                    live.remove(attempt.number)
                    if ready == attempt.number { ready = nil }
                case .setTimer(let deadline):
                    #expect(deadline <= now + .seconds(60))
                    timer = deadline
                case .cancelTimer:
                    timer = nil
                case .report, .ready, .lost, .offline:
                    break
                }
            }
            if isClosedByUser { #expect(live.isEmpty && timer == nil) }
        }
    }
}

extension [ConnectionMachine<SeededGenerator>.Action] {
    fileprivate var texts: [String] {
        self.map { action in
            switch action {
            case .open(let attempt, let endpoint): "open \(attempt.number) \(endpoint)"
            case .close(let attempt): "close \(attempt.number)"
            case .setTimer: "timer"
            case .cancelTimer: "cancel timer"
            case .report(let event): "report \(event)"
            case .ready(let endpoint): "ready \(endpoint)"
            case .lost(let error): "lost \(error.message)"
            case .offline(let error): "offline \(error.message)"
            }
        }
    }

    fileprivate var timer: NIODeadline? {
        self.compactMap { if case .setTimer(let deadline) = $0 { deadline } else { nil } }.last
    }
}
