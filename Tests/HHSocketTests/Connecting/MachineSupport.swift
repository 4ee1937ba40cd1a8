import NIOCore
import TestSupport

@testable import HHSocket

typealias Machine = ConnectionMachine<SeededGenerator>

let serverA = Endpoint(host: "a", port: 1)
let serverB = Endpoint(host: "b", port: 2)
let serverC = Endpoint(host: "c", port: 3)

func refused(_ endpoint: Endpoint) -> SocketError {
    SocketError(.connectionRefused, message: "\(endpoint) refused", endpoint: endpoint)
}

let lostError = SocketError(.connectionLost, message: "lost")

extension Machine.Action {
    /// What a test compares.
    var text: String {
        switch self {
        case .resolve(let id): "resolve \(id)"
        case .open(let id, let endpoint): "open \(id) \(endpoint)"
        case .shakeHands(let id, let endpoint, let attempt): "shake hands \(id) \(endpoint), attempt \(attempt)"
        case .close(let id): "close \(id)"
        case .ready(let id, let endpoint): "ready \(id) \(endpoint)"
        case .part(let id, let error): "part \(id) \(error.code)"
        case .drain(let id): "drain \(id)"
        case .leave(let id): "leave \(id)"
        case .putOff: "put off"
        case .lost(let id, let error): "lost \(id) \(error.code)"
        case .beingMade: "being made"
        case .offline(let error): "offline \(error.code)"
        case .probe(let id): "probe \(id)"
        case .pauseHeartbeat(let id): "pause \(id)"
        case .resumeHeartbeat(let id): "resume \(id)"
        case .applicationIsActive(let isActive): isActive ? "active" : "inactive"
        case .report(let event): "report \(event.text)"
        }
    }

    var isReport: Bool { if case .report = self { true } else { false } }
}

extension SocketEvent {
    var text: String {
        switch self {
        case .connectFailed(let error): "connect failed \(error.code)"
        case .disconnected(let error): "disconnected \(error.code)"
        case .switchFailed(let error): "switch failed \(error.code)"
        case .waiting: "waiting"
        case .gaveUp(let error): "gave up \(error.code)"
        default: "\(self)"
        }
    }
}

extension [Machine.Action] {
    var texts: [String] { self.map(\.text) }
    /// Without what is only told.
    var deeds: [String] { self.filter { !$0.isReport }.map(\.text) }
}

extension Machine {
    /// Fails every attempt until the machine waits for nothing any more, or has waited `limit` times.
    mutating func waitsUntilItGivesUp(from start: NIODeadline, atMost limit: Int = 500) -> [Duration] {
        var now = start
        var waits: [Duration] = []
        while waits.count < limit {
            if let endpoint = self.endpointBeingTried {
                _ = self.connectFailed(ConnectionID(number: self.nextID - 1), refused(endpoint), now: now)
            } else if let timer = self.nextDeadline {
                waits.append(Duration(timer - now))
                now = timer
                _ = self.timerFired(now: now)
            } else {
                break
            }
        }
        return waits
    }
}
