// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A number of bytes that are sent at a time, in separate writes.
struct Dribble: Sendable {
    var bytes: Int
    var interval: Duration
}

/// The order in which held requests are answered, which are given in the order in which they arrived.
protocol MockGateOrder: Sendable {
    func arrange<Element>(_ held: inout [Element], using generator: inout SplitMix)
}

/// A gate at which held requests wait for each other.
final class MockGate: Sendable {
    let count: Int
    let order: any MockGateOrder

    init(count: Int, order: any MockGateOrder) {
        self.count = count
        self.order = order
    }
}

/// A step of a reaction of a mock, which sends a `Sending` in answer to a `Received`.
enum MockStep<Sending: Sendable, Received: Sendable>: Sendable {
    case send(Sending)
    case wait(Duration)
    case waitForCancel
    case hold(MockGate)
    case decide(@Sendable (Received) -> [MockStep])
    case choose([[MockStep]])
    case goSilent
    case stopReading
    case wakeUp
    case halfClose
    case close
    case reset

    func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> MockStep {
        switch self {
        case .send(var sending):
            change(&sending)
            return .send(sending)
        case .decide(let decide):
            return .decide { decide($0).map { $0.changingSends(change) } }
        case .choose(let reactions):
            return .choose(reactions.map { $0.map { $0.changingSends(change) } })
        default:
            return self
        }
    }
}

/// Performs the steps of one kind of reactions on a connection.
final class MockScript<Sending: Sendable, Received: Sendable> {
    typealias Steps = ArraySlice<MockStep<Sending, Received>>

    private unowned let line: MockLine
    private let send: (Sending, Received?) -> Void
    private let waitForCancel: (Received, Steps) -> Void

    /// - Parameters:
    ///   - send: Adds output to the line's outbox.
    ///   - waitForCancel: Holds the following steps until the request is cancelled.
    init(
        _ line: MockLine,
        send: @escaping (Sending, Received?) -> Void,
        waitForCancel: @escaping (Received, Steps) -> Void = { _, _ in }
    ) {
        self.line = line
        self.send = send
        self.waitForCancel = waitForCancel
    }

    func perform(_ steps: [MockStep<Sending, Received>], for received: Received?) {
        self.proceed(steps[...], for: received)
        self.line.flush()
    }

    /// Performs the steps up to one that waits. Output is gathered for ``MockLine/flush()``.
    func proceed(_ steps: Steps, for received: Received?) {
        guard let port = self.line.port, let eventLoop = self.line.context?.eventLoop else { return }
        let line = self.line
        var rest = steps
        while let step = rest.popFirst() {
            switch step {
            case .send(let sending):
                self.send(sending, received)
            case .wait(let duration):
                // The line too, which is all that keeps it for a script.
                let bound = NIOLoopBound((self, line), eventLoop: eventLoop)
                port.after(duration) { [rest] in
                    bound.value.0.proceed(rest, for: received)
                    bound.value.1.flush()
                }
                return
            case .waitForCancel:
                if let received { self.waitForCancel(received, rest) }
                return
            case .hold(let gate):
                return port.hold(.init(line: line) { [rest] in self.proceed(rest, for: received) }, at: gate)
            case .decide(let decide):
                if let received { rest = (decide(received) + rest)[...] }
            case .choose(let reactions):
                if let choice = port.choose(from: reactions) { rest = (choice + rest)[...] }
            case .goSilent:
                line.setSilent(true)
            case .stopReading:
                line.setReading(false)
            case .wakeUp:
                line.setSilent(false)
            case .halfClose:
                line.append(.halfClose)
            case .close:
                line.append(.close)
            case .reset:
                line.append(.reset)
            }
        }
    }
}
