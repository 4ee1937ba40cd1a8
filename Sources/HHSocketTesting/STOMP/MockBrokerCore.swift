// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore

/// The state that the connections of a ``MockBroker`` share.
final class MockBrokerCore: Sendable {
    typealias Reaction = MockBroker.Reaction

    struct Rules {
        var standing: [STOMPCommand: Reaction] = [:]
        var once: [STOMPCommand: Deque<Reaction>] = [:]
        var other = Reaction.handle
        var open = Reaction.drop
        var openByNumber: [Int: Reaction] = [:]
    }

    private struct LoopState {
        var sessions: [Int: MockBrokerSession] = [:]
        /// The connections whose output is held until the frame that caused it is recorded; nil if output is sent
        /// immediately.
        var delayed: Set<Int>?
    }

    struct Violation: CustomStringConvertible {
        var connection: Int
        var text: String

        var description: String { "\(self.text) on connection \(self.connection)" }
    }

    let port: MockPort
    let configuration: MockBroker.Configuration
    let webSocket: MockBroker.WebSocket?
    let openings: MockOpenings?
    let isSecure: Bool
    let broker: NIOLockedValueBox<BrokerCore>
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<MockBroker.Received>()
    let opened = EventLog<MockBroker.Connection>()
    /// The connections on which line ends arrived between frames.
    let beats = EventLog<Int>()
    let violations = EventLog<Violation>()
    private let state: NIOLoopBoundBox<LoopState>

    init(
        port: MockPort,
        configuration: MockBroker.Configuration,
        webSocket: MockBroker.WebSocket?,
        openings: MockOpenings?,
        isSecure: Bool
    ) {
        self.port = port
        self.configuration = configuration
        self.webSocket = webSocket
        self.openings = openings
        self.isSecure = isSecure
        self.broker = NIOLockedValueBox(BrokerCore(configuration))
        self.state = .makeBoxSendingValue(LoopState(), eventLoop: port.loop)
    }

    // MARK: On the loop

    /// Adds a connection, and returns the reaction to it.
    func add(_ session: MockBrokerSession) -> Reaction {
        let number = session.number
        self.state.value.sessions[number] = session
        self.broker.withLockedValue { $0.opened(number) }
        self.opened.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.openByNumber[number] ?? $0.open }
    }

    func remove(number: Int) {
        self.state.value.sessions[number] = nil
        self.perform(self.broker.withLockedValue { $0.ended(number) })
    }

    /// Reacts to a frame, and records it: after the broker's state has changed, and before others can see it.
    func received(_ frame: STOMPFrame, on session: MockBrokerSession) {
        let received = MockBroker.Received(connection: session.number, frame: frame)
        self.state.value.delayed = []
        session.proceed(self.reaction(to: frame), for: received)
        self.received.append(received)
        let delayed = self.state.value.delayed ?? []
        self.state.value.delayed = nil
        self.flush(delayed)
    }

    private func reaction(to frame: STOMPFrame) -> Reaction {
        self.rules.withLockedValue { rules in
            rules.once[frame.command]?.popFirst() ?? rules.standing[frame.command] ?? rules.other
        }
    }

    func handle(_ received: MockBroker.Received, confirms: Bool) {
        let actions = self.broker.withLockedValue {
            $0.received(received.frame, on: received.connection, confirms: confirms)
        }
        self.perform(actions, for: received.connection)
    }

    func violated(_ violation: STOMPViolation, on number: Int) {
        self.violations.append(.init(connection: number, text: violation.description))
        self.perform(self.broker.withLockedValue { $0.received(violation, on: number) }, for: number)
    }

    func missedHeartBeats(of number: Int) {
        self.perform(self.broker.withLockedValue { $0.missedHeartBeats(of: number) })
    }

    func publish(_ body: ByteBuffer, to destination: String, headers: STOMPHeaders) -> Bool {
        let actions = self.broker.withLockedValue { $0.publish(body, to: destination, headers: headers) }
        guard let actions else { return false }
        self.perform(actions)
        return true
    }

    /// - Parameter current: The connection that gathers its output itself; nil for none.
    private func perform(_ actions: [BrokerCore.Action], for current: Int? = nil) {
        var numbers: Set<Int> = []
        for action in actions {
            switch action {
            case .send(let frame, let number):
                self.state.value.sessions[number]?.send(frame)
                numbers.insert(number)
            case .agree(let version, let number):
                self.state.value.sessions[number]?.agree(on: version)
            case .beat(let number, let sends, let expects):
                if let sends { self.state.value.sessions[number]?.sendHeartBeats(every: .milliseconds(sends)) }
                if let expects { self.state.value.sessions[number]?.expectHeartBeats(every: .milliseconds(expects)) }
            case .close(let number):
                self.state.value.sessions[number]?.close()
                numbers.insert(number)
            }
        }
        if let current { numbers.remove(current) }
        if self.state.value.delayed == nil {
            self.flush(numbers)
        } else {
            self.state.value.delayed?.formUnion(numbers)
        }
    }

    private func flush(_ numbers: Set<Int>) {
        for number in numbers { self.state.value.sessions[number]?.flush() }
    }
}
