// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketSTOMP
import NIOConcurrencyHelpers
import NIOCore

/// The wire of a ``MockBroker``: STOMP, over TCP or over WebSocket.
public final class STOMPWire: WebSocketWire {
    /// The command of a frame.
    public typealias Key = STOMPCommand

    /// A frame received from a client.
    public struct Received: Sendable, Hashable, SummarizedEvent {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public package(set) var connection: Int
        public package(set) var frame: STOMPFrame

        /// The command of the frame.
        package var command: STOMPCommand { self.frame.command }

        /// The headers of the frame.
        package var headers: STOMPHeaders { self.frame.headers }

        /// The body as text; bytes that are not UTF-8 are repaired.
        public var text: String { String(buffer: self.frame.body) }

        var summary: String { "\(self.frame) on connection \(self.connection)" }
    }

    private struct LoopState {
        var sessions: [Int: MockSTOMPSession] = [:]
        /// The connections whose output is held until the frame that caused it is recorded; nil if output is sent
        /// immediately.
        var delayed: Set<Int>?
    }

    struct Violation: CustomStringConvertible {
        var connection: Int
        var text: String

        var description: String { "\(self.text) on connection \(self.connection)" }
    }

    let limits: STOMPLimits
    /// The length of a WebSocket's messages; nil for a message for each frame.
    let messageLength: Int?
    /// The connections on which line ends arrived between frames.
    let beats = EventLog<Int>()
    let violations = EventLog<Violation>()
    private let broker: NIOLockedValueBox<BrokerMachine>
    private let state: NIOLoopBoundBox<LoopState>

    init(_ configuration: MockBroker.Configuration, _ webSocket: MockBroker.WebSocket?, on loop: any EventLoop) {
        self.limits = configuration.limits
        self.messageLength = webSocket?.messageLength
        self.broker = NIOLockedValueBox(BrokerMachine(configuration))
        self.state = .makeBoxSendingValue(LoopState(), eventLoop: loop)
    }

    func read<Value>(_ body: (BrokerMachine) -> Value) -> Value { self.broker.withLockedValue { body($0) } }

    // MARK: On the loop

    func add(_ session: MockSTOMPSession) {
        self.state.value.sessions[session.number] = session
        self.broker.withLockedValue { $0.opened(session.number) }
    }

    func remove(number: Int) {
        self.state.value.sessions[number] = nil
        self.perform(self.broker.withLockedValue { $0.ended(number) })
    }

    /// Reacts to a frame, and records it: after the broker's state has changed, and before others can see it.
    func received(_ frame: STOMPFrame, on session: MockSTOMPSession) {
        guard let parts = session.parts else { return }
        let received = Received(connection: session.number, frame: frame)
        self.state.value.delayed = []
        session.proceed(parts.reaction(to: frame.command).steps[...], for: received)
        parts.received.append(received)
        let delayed = self.state.value.delayed ?? []
        self.state.value.delayed = nil
        self.flush(delayed)
    }

    func handle(_ received: Received, confirms: Bool) {
        let actions = self.broker.withLockedValue {
            $0.receivedFrame(received.frame, on: received.connection, confirms: confirms)
        }
        self.perform(actions, for: received.connection)
    }

    func violated(_ violation: STOMPViolation, on number: Int) {
        self.violations.append(.init(connection: number, text: violation.description))
        self.perform(self.broker.withLockedValue { $0.receivedViolation(violation, on: number) }, for: number)
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
    private func perform(_ actions: [BrokerMachine.Action], for current: Int? = nil) {
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
