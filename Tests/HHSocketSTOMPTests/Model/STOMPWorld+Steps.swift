// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport

@testable import HHSocket
@testable import HHSocketSTOMP

/// The steps of a history, performed for the user, the broker and the network.
extension STOMPWorld {
    /// - Returns: The promise that was broken, if one was.
    func take(_ step: STOMPStep) -> String? {
        if let client = self.client { self.perform(step, client) }
        self.settle()
        self.check()
        return self.broken
    }

    private func perform(_ step: STOMPStep, _ client: STOMPClient) {
        switch step {
        case .connect:
            self.isWanted = true
            client.connect()
        case .disconnect:
            self.isWanted = false
            self.isDisconnecting = self.agreement != nil
            self.task { world in
                guard let client = world.client else { return }
                let connection = world.liveConnection
                let isWell = connection.map { !$0.isCut && $0.isReading && world.agreement != nil } ?? false
                do {
                    try await client.disconnect()
                } catch {
                    if isWell, connection?.isCut == false, connection?.wasEnded == false {
                        world.fail("disconnect fails, though all is well: \(error)")
                    }
                }
            }
        case .send(let count, let length, let receipt, let style):
            for _ in 0..<count { self.send(client, length, receipt, style) }
        case .cancel(let choice):
            let running = self.senders.keys.sorted()
            if !running.isEmpty { self.senders[running[choice % running.count]]?.cancel() }
        case .subscribe(let destination, let mode, let window):
            self.subscribe(client, destination, mode, window)
        case .unsubscribe(let choice):
            self.unsubscribe(choice)
        case .publish(let destination, let count):
            for _ in 0..<count {
                let actions = self.broker.publish(ByteBuffer(string: "p"), to: Self.destinations[destination])
                self.perform(actions ?? [])
            }
        case .settle(let choice, let isAck, let receipt):
            if !self.held.isEmpty { self.settle(self.held[choice % self.held.count], isAck, receipt) }
        case .transaction(let sends, let settles, let commits):
            self.transact(client, sends, settles, commits)
        case .end(let end):
            switch end {
            case .fin: self.liveConnection?.finish(.fin)
            case .reset: self.liveConnection?.finish(.reset(loses: false))
            case .loss: self.liveConnection?.finish(.reset(loses: true))
            }
        case .error(let blames):
            self.answerWithError(blames)
        case .mood(let mood):
            self.mood = mood
        case .cut(let isCut):
            self.liveConnection?.isCut = isCut
        case .broker(let isReading):
            self.liveConnection?.isReading = isReading
        case .hold:
            self.isHolding = true
            self.hasHeldUp = true
        case .receive:
            self.release()
        case .network(let isReachable):
            client.networkDidChange(isReachable: isReachable)
        case .background:
            self.isInBackground = true
            self.isDisconnecting = self.agreement != nil
            client.applicationDidEnterBackground()
        case .foreground:
            self.isInBackground = false
            client.applicationWillEnterForeground()
        case .switchServer:
            self.isDisconnecting = self.agreement != nil
            client.switchServer()
        case .time(let milliseconds):
            self.advance(.milliseconds(Int64(milliseconds)))
        }
    }

    private func release() {
        self.isHolding = false
        let gates = self.gates
        self.gates = []
        for gate in gates { gate.resume() }
    }

    private func answerWithError(_ blames: Bool) {
        guard let connection = self.liveConnection, self.broker.isConnected(connection.number), !connection.isCut else {
            return
        }
        var frame = STOMPFrame(.error, ["message": "the broker is not well"])
        if blames { frame.headers["receipt-id"] = self.owed[connection.number]?.first }
        do { try connection.send(frame) } catch { self.fail("\(error)") }
        connection.finish(.fin)
    }

    // MARK: Sending

    private func send(_ client: STOMPClient, _ length: Int, _ receipt: Bool, _ style: STOMPStep.Style) {
        let number = self.sent.count
        self.sent.append(Sent(began: self.now, receipt: receipt, style: style))
        let (body, destination) = (Self.body(number, length), Self.destinations[number % Self.destinations.count])
        switch style {
        case .awaited:
            self.senders[number] = self.task { world in
                guard let client = world.client else { return }
                do throws(SocketError) {
                    try await client.send(body, to: destination, receipt: receipt)
                    world.completed(number, .success(()))
                } catch {
                    world.completed(number, .failure(error))
                }
            }
        case .completion:
            client.send(body, to: destination, receipt: receipt) { [weak self] in self?.completed(number, $0) }
        case .forgotten:
            client.send(body, to: destination, receipt: receipt, completion: nil)
        }
    }

    func completed(_ number: Int, _ result: Result<Void, SocketError>) {
        self.senders[number] = nil
        if self.sent[number].outcome != nil { self.fail("message \(number) has two outcomes") }
        self.sent[number].outcome = result
        switch result {
        case .success:
            let isReceived = self.sent[number].receivedCount == 1 && self.flaw != .noReceiptsOfSends
            if self.sent[number].receipt, !isReceived {
                self.fail("message \(number) was confirmed, and the broker has not received it")
            }
        case .failure(let error):
            if error.delivery == .notSent, self.sent[number].receivedCount > 0 {
                self.fail("message \(number) has arrived, though it was not sent: \(error)")
            }
        }
    }

    // MARK: Subscriptions

    private func subscribe(_ client: STOMPClient, _ destination: Int, _ mode: STOMPAckMode, _ window: Int?) {
        // Version 1.0 has only these modes.
        let mode = self.version == .v1_0 && mode == .clientIndividual ? .client : mode
        do throws(SocketError) {
            let subscription = try client.subscribe(to: Self.destinations[destination], ack: mode, window: window)
            let index = self.subscribed.count
            self.subscribed.append(
                Subscribed(
                    subscription: subscription,
                    destination: Self.destinations[destination],
                    mode: mode,
                    window: mode == .auto ? nil : window
                )
            )
            self.task { world in
                var messages = subscription.makeAsyncIterator()
                do throws(SocketError) {
                    while true {
                        await world.pass()
                        guard let message = try await messages.next(isolation: nil) else { break }
                        world.received(message, index)
                    }
                } catch {
                    // An ERROR of the broker concerns it.
                    if error.code != .brokerError { world.fail("a subscription fails: \(error)") }
                }
                world.subscribed[index].isLive = false
                world.subscribed[index].subscription = nil
            }
        } catch {
            self.fail("subscribing fails: \(error)")
        }
    }

    private func pass() async {
        guard self.isHolding else { return }
        await withCheckedContinuation { self.gates.append($0) }
    }

    private func unsubscribe(_ choice: Int) {
        let live = self.subscribed.indices.filter { self.subscribed[$0].isLive }
        guard !live.isEmpty else { return }
        let index = live[choice % live.count]
        self.subscribed[index].isLive = false
        let subscription = self.subscribed[index].subscription
        self.subscribed[index].subscription = nil
        // Its messages return to the broker.
        self.held.removeAll { $0.subscription == index }
        if choice % 2 == 0 {
            subscription?.unsubscribe(completion: nil)
        } else {
            self.task { _ in try? await subscription?.unsubscribe() }
        }
    }

    private func received(_ message: STOMPMessage, _ index: Int) {
        if self.settledForGood.contains(self.key(message, index)) {
            self.fail("\(message) comes again after its settlement")
        }
        let subscribed = self.subscribed[index]
        guard subscribed.mode != .auto else {
            if !self.subscribed[index].seen.insert(message.messageID).inserted { self.fail("\(message) comes twice") }
            return
        }
        guard let delivery = message.delivery else { return self.fail("\(message) has no delivery") }
        guard subscribed.isLive else { return }
        self.held.append(Held(message: message, subscription: index, connection: delivery.connection))
        guard let window = subscribed.window else { return }
        let count = self.held.count { $0.subscription == index && $0.connection == delivery.connection }
        if count > (self.flaw == .smallerWindows ? window - 1 : window) {
            self.fail("\(count) messages are not settled, with a window of \(window)")
        }
    }

    /// The name of a message; one of a topic is delivered to each subscription.
    private func key(_ message: STOMPMessage, _ index: Int) -> String {
        message.destination.hasPrefix("/topic") ? "\(index) \(message.messageID)" : message.messageID
    }

    // MARK: Settling

    /// Removes the messages that are settled with one, and returns them.
    private func take(_ held: Held) -> [Held] {
        let isCumulative = self.subscribed[held.subscription].mode == .client
        func isIt(_ other: Held) -> Bool {
            other.connection == held.connection && other.subscription == held.subscription
                && other.message.messageID == held.message.messageID
        }
        guard let position = self.held.firstIndex(where: isIt) else { return [] }
        let covered = self.held[...position].filter {
            isIt($0) || (isCumulative && $0.subscription == held.subscription && $0.connection == held.connection)
        }
        let ids = Set(covered.map(\.message.messageID))
        self.held.removeAll {
            ids.contains($0.message.messageID) && $0.connection == held.connection
                && $0.subscription == held.subscription
        }
        return Array(covered)
    }

    private func settle(_ held: Held, _ isAck: Bool, _ receipt: Bool) {
        let isAck = isAck || self.version == .v1_0
        let covered = self.take(held)
        self.task { world in
            let isOld = held.connection != world.connectionNumber
            do throws(SocketError) {
                if isAck {
                    try await held.message.ack(receipt: receipt)
                } else {
                    try await held.message.nack(receipt: receipt)
                }
                if isOld { world.fail("a message is settled on another connection than its own") }
                if receipt, isAck {
                    world.settledForGood.formUnion(covered.map { world.key($0.message, $0.subscription) })
                }
            } catch {
                let isExpected = [.connectionLost, .timeout, .brokerError, .cancelled].contains(error.code)
                if !isExpected, world.subscribed[held.subscription].isLive { world.fail("settling fails: \(error)") }
            }
        }
    }

    /// The client's number of the accepted connection.
    var connectionNumber: UInt64? {
        self.agreement == nil ? nil : self.acceptedNumber
    }

    private func transact(_ client: STOMPClient, _ sends: Int, _ settles: Int, _ commits: Bool) {
        struct Abort: Error {}
        let first = self.sent.count
        for _ in 0..<sends {
            self.sent.append(Sent(began: self.now, receipt: false, style: .forgotten, isInTransaction: true))
        }
        let settled = self.held.suffix(settles).flatMap { self.take($0) }
        self.openTransactions += 1
        self.task { world in
            defer { world.openTransactions -= 1 }
            guard let client = world.client else { return }
            let numbers = first..<(first + sends)
            func destination(_ number: Int) -> String { Self.destinations[number % Self.destinations.count] }
            do {
                try await client.transaction { transaction in
                    for number in numbers {
                        try await transaction.send(Self.body(number, 3), to: destination(number))
                    }
                    for held in settled where held.connection == world.connectionNumber {
                        try await transaction.ack(held.message)
                    }
                    if !commits { throw Abort() }
                }
                for number in numbers where world.sent[number].receivedCount != 1 {
                    world.fail("message \(number) is not there after the commit")
                }
                let current = settled.filter { $0.connection == world.connectionNumber }
                world.settledForGood.formUnion(current.map { world.key($0.message, $0.subscription) })
            } catch is Abort {
                // The user holds these messages again.
                for held in settled where held.connection == world.connectionNumber { world.held.append(held) }
            } catch {
            }
        }
    }
}
