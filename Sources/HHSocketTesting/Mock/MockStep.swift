// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A number of bytes that are sent at a time, in separate writes.
struct Dribble: Sendable {
    var bytes: Int
    var interval: Duration
}

/// The output of a step: bytes, or what its wire encodes.
struct MockSending<Output: Sendable>: Sendable {
    enum Content: Sendable {
        case raw(ByteBuffer)
        case output(Output)
    }

    var content: Content
    var copies = 1
    var flaws = Flaws()
    var dribble: Dribble?
}

/// A step of a reaction of a mock.
enum MockStep<Wire: MockWire>: Sendable {
    case send(MockSending<Wire.Output>)
    case wait(Duration)
    case waitForCancel
    case hold(MockGate)
    case decide(@Sendable (Wire.Received) -> [MockStep])
    case choose([[MockStep]])
    case goSilent
    case stopReading
    case wakeUp
    case halfClose
    case close
    case reset

    func changingSends(_ change: @escaping @Sendable (inout MockSending<Wire.Output>) -> Void) -> MockStep {
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

/// A connection, or a part of one, that performs reactions.
protocol MockPerformer<Wire>: AnyObject, SendableMetatype {
    associatedtype Wire: MockWire

    var line: MockLine { get }

    /// Adds output to the line's outbox.
    func send(_ sending: MockSending<Wire.Output>, for received: Wire.Received?)
    /// Holds the following steps until the request is cancelled.
    func waitForCancel(_ request: Wire.Received, _ rest: ArraySlice<MockStep<Wire>>)
}

extension MockPerformer {
    func perform(_ reaction: MockReaction<Wire>, for received: Wire.Received?) {
        self.proceed(reaction.steps[...], for: received)
        self.line.flush()
    }

    /// Performs the steps up to one that waits. Output is gathered for ``MockLine/flush()``.
    func proceed(_ steps: ArraySlice<MockStep<Wire>>, for received: Wire.Received?) {
        guard let port = self.line.port, let eventLoop = self.line.context?.eventLoop else { return }
        let line = self.line
        var rest = steps
        while let step = rest.popFirst() {
            switch step {
            case .send(let sending):
                self.send(sending, for: received)
            case .wait(let duration):
                // The line too, which a part of it does not keep.
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
