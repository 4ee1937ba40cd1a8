// SPDX-License-Identifier: Apache-2.0
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

/// The work that an action requests, in one vocabulary for all events, which tests compare and random histories
/// perform.
enum Deed {
    case resolve(ConnectionID)
    case open(ConnectionID, Endpoint)
    case handshake(ConnectionID, Endpoint, attempt: Int)
    case close(ConnectionID)
    case ready(ConnectionID, Endpoint)
    case part(ConnectionID, SocketError)
    case drain(ConnectionID)
    case goAway(ConnectionID)
    case reconnectDeferred
    case lost(ConnectionID, SocketError)
    case beingMade
    case offline(SocketError)
    case probe(ConnectionID)
    case pauseHeartbeat(ConnectionID)
    case resumeHeartbeat(ConnectionID)
    case applicationIsActive(Bool)
    case report(SocketEvent)

    var text: String {
        switch self {
        case .resolve(let id): "resolve \(id)"
        case .open(let id, let endpoint): "open \(id) \(endpoint)"
        case .handshake(let id, let endpoint, let attempt): "shake hands \(id) \(endpoint), attempt \(attempt)"
        case .close(let id): "close \(id)"
        case .ready(let id, let endpoint): "ready \(id) \(endpoint)"
        case .part(let id, let error): "part \(id) \(error.code)"
        case .drain(let id): "drain \(id)"
        case .goAway(let id): "leave \(id)"
        case .reconnectDeferred: "put off"
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

/// An action of the machine, of whichever event.
protocol MachineAction {
    var all: [Deed] { get }
}

extension MachineAction {
    var texts: [String] { self.all.map(\.text) }
    /// The texts of the actions without reports.
    var deeds: [String] { self.all.filter { !$0.isReport }.map(\.text) }
}

extension Array: MachineAction where Element: MachineAction {
    var all: [Deed] { self.flatMap(\.all) }
}

extension Optional: MachineAction where Wrapped: MachineAction {
    var all: [Deed] { self.map(\.all) ?? [] }
}

extension ConnectionMachine.ConnectAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .resolve(let id): [.resolve(id)]
        case .open(let id, let endpoint): [.open(id, endpoint)]
        case .close(let id): [.close(id)]
        case .goAway(let id): [.goAway(id)]
        case .part(let id, let error): [.part(id, error)]
        case .beingMade: [.beingMade]
        case .reconnectDeferred: [.reconnectDeferred]
        case .offline(let error): [.offline(error)]
        case .report(let event): [.report(event)]
        }
    }
}

extension ConnectionMachine.DisconnectAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .close(let id): [.close(id)]
        case .lost(let id, let error): [.lost(id, error)]
        case .offline(let error): [.offline(error)]
        case .report(let event): [.report(event)]
        }
    }
}

extension ConnectionMachine.ConnectedAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .close(let id): [.close(id)]
        case .handshake(let id, let endpoint, let attempt, let losers):
            losers.map { .close($0) } + [.report(.handshaking(endpoint)), .handshake(id, endpoint, attempt: attempt)]
        case .ready(let readiness, let losers): losers.map { .close($0) } + readiness.all
        }
    }
}

extension ConnectionMachine.Readiness: MachineAction {
    var all: [Deed] {
        guard let predecessor = self.predecessor else {
            return [.ready(self.id, self.endpoint), .report(.connected(self.endpoint))]
        }
        let report = SocketEvent.switched(from: predecessor.endpoint, to: self.endpoint)
        return [.ready(self.id, self.endpoint), .drain(predecessor.id), .report(report)]
    }
}

extension ConnectionMachine.LossAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .lost(let id, let error): [.lost(id, error)]
        case .connect(let action): action.all
        }
    }
}

extension ConnectionMachine.NetworkAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .probe(let id): [.probe(id)]
        case .connect(let action): action.all
        }
    }
}

extension ConnectionMachine.BackgroundAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .applicationIsInactive: [.applicationIsActive(false)]
        case .pauseHeartbeat(let id): [.pauseHeartbeat(id)]
        case .lose(let id, let error): [.lost(id, error), .close(id)]
        case .connect(let action): action.all
        }
    }
}

extension ConnectionMachine.ForegroundAction: MachineAction {
    var all: [Deed] {
        switch self {
        case .applicationIsActive: [.applicationIsActive(true)]
        case .resumeHeartbeat(let id): [.resumeHeartbeat(id)]
        case .probe(let id): [.probe(id)]
        case .connect(let action): action.all
        }
    }
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

extension Machine {
    /// Fails every attempt until the machine stops waiting, or has waited `limit` times.
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
