// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport

@testable import HHSocket
@testable import HHSocketSTOMP

/// The promises of a client, which are checked after each step.
extension STOMPWorld {
    func check() {
        let open = self.connections.filter { $0.channel.isOpen }
        if open.count > 1 { self.fail("there are \(open.count) connections") }
        self.checkSubscriptions()
    }

    /// The connection without pending work.
    private var quietConnection: SimulatedBrokerConnection? {
        guard self.agreement != nil, let connection = self.liveConnection, !connection.isCut, connection.isReading,
            self.broker.isConnected(connection.number), !connection.wasEnded
        else { return nil }
        return connection
    }

    private func checkSubscriptions() {
        guard let connection = self.quietConnection, self.openTransactions == 0 else { return }
        let there = self.broker.subscriptions(of: connection.number)
        let live = self.subscribed.filter(\.isLive)
        var expected = live.compactMap { $0.subscription?.id }.sorted()
        if self.flaw == .noSubscriptionsAfterTheFirst { expected = Array(expected.prefix(1)) }
        let ids = there.compactMap(\.id).sorted()
        guard ids == expected else { return self.fail("the broker has the subscriptions \(ids), not \(expected)") }
        guard !self.isHolding, self.gates.isEmpty else { return }
        for (index, subscribed) in self.subscribed.enumerated() where subscribed.isLive && subscribed.mode != .auto {
            guard let id = subscribed.subscription?.id, let broker = there.first(where: { $0.id == id }) else {
                continue
            }
            let held = self.held.count { $0.subscription == index && $0.connection == self.acceptedNumber }
            if broker.unacknowledged != held {
                self.fail("\(held) messages of \(id) are not settled, and \(broker.unacknowledged) for the broker")
            }
        }
    }

    /// The client's number of the connection, since both sides count connections.
    var acceptedNumber: UInt64 { self.client?.connectionNumber ?? 0 }

    /// Checks that waits are bounded, and that heart-beats arrive.
    func checkTimes() {
        for (number, sent) in self.sent.enumerated() where sent.outcome == nil && sent.style != .forgotten {
            let limit = self.flaw == .soonerOutcomes ? .seconds(5) : TimeAmount(Self.timeout) + .seconds(1)
            if self.now - sent.began > limit {
                return self.fail("message \(number) has no outcome after \(self.now - sent.began)")
            }
        }
        guard let connection = self.liveConnection, self.agreement != nil, connection.channel.isActive else { return }
        let silence = self.now - connection.lastWritten
        if let expected = connection.expectedInterval, !self.isDisconnecting, self.client != nil,
            silence > .milliseconds(Int64(expected)) + .milliseconds(300), !connection.wasEnded,
            connection.channel.bufferedBytes == 0
        {
            self.fail("the client is silent for \(silence)")
        }
        guard connection.beatInterval != nil, !self.hasHeldUp, !self.isDisconnecting else { return }
        let dead = self.now - max(connection.lastDelivered, connection.acceptedAt ?? self.now)
        // The time to close is added if the connection is closing already.
        if dead > TimeAmount(Self.interval * 2) + .seconds(6) {
            self.fail("a broker that is silent for \(dead) is not left")
        }
    }

    // MARK: The end

    /// - Returns: The promise that was broken, if one was.
    func end(heals: Bool) -> String? {
        if heals { self.heal() }
        self.finish()
        return self.broken
    }

    /// Ends all faults.
    private func heal() {
        self.mood = .accepts
        for connection in self.connections where !connection.isOver {
            connection.isCut = false
            connection.isReading = true
        }
        let steps: [STOMPStep] = [
            .network(isReachable: true), .foreground, .receive, .connect, .time(milliseconds: 100_000),
        ]
        for step in steps where self.take(step) != nil { return }
        guard self.quietConnection != nil else { return self.fail("there is no connection, though all is well") }
        for (number, sent) in self.sent.enumerated() where sent.outcome == nil && sent.style != .forgotten {
            return self.fail("message \(number) has no outcome at the end")
        }
        for index in self.subscribed.indices where self.subscribed[index].isLive {
            guard self.subscribed[index].destination.hasPrefix("/topic"), self.subscribed[index].mode == .auto else {
                continue
            }
            let before = self.subscribed[index].seen.count
            let position = Self.destinations.firstIndex(of: self.subscribed[index].destination) ?? 0
            if self.take(.publish(destination: position, count: 1)) != nil { return }
            if self.subscribed[index].seen.count != before + 1 {
                return self.fail("subscription \(index) gets no message, though all is well")
            }
        }
        if self.take(.disconnect) != nil { return }
        if self.take(.time(milliseconds: 6_000)) != nil { return }
        if let connection = self.liveConnection { self.fail("connection \(connection.number) is there after the end") }
    }

    /// Releases the client, which ends everything.
    private func finish() {
        self.client = nil
        for connection in self.connections where !connection.isOver { connection.isCut = false }
        self.isHolding = false
        let gates = self.gates
        self.gates = []
        for gate in gates { gate.resume() }
        for index in self.subscribed.indices { self.subscribed[index].subscription = nil }
        self.held = []
        for _ in 0..<200 where self.trace != nil || self.connections.contains(where: { $0.channel.isOpen }) {
            self.loop.advanceTime(by: .milliseconds(500))
            self.settle()
        }
        self.loop.advanceTime(by: .seconds(1))
        self.settle()
        if self.trace != nil { self.fail("somebody keeps the client") }
        if self.connections.contains(where: { $0.channel.isOpen }) {
            self.fail("a connection is there without a client")
        }
        for (number, sent) in self.sent.enumerated() where sent.outcome == nil && sent.style != .forgotten {
            self.fail("message \(number) has no outcome when the client is gone")
        }
    }

    /// Runs a script.
    ///
    /// - Returns: The promise that was broken, if one was.
    static func run(_ script: [STOMPStep], seed: UInt64, flaw: Flaw? = nil) -> String? {
        do {
            let world = try STOMPWorld(seed: seed, flaw: flaw)
            for (number, step) in script.enumerated() {
                guard let broken = world.take(step) else { continue }
                _ = world.end(heals: false)
                return "step \(number), \(step): \(broken)"
            }
            return world.end(heals: seed % 3 != 0).map { "at the end: \($0)" }
        } catch {
            return "no world: \(error)"
        }
    }
}
