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

extension ConnectionMachine.Action {
    var text: String {
        switch self {
        case .resolve(let id): "resolve \(id)"
        case .open(let id, let endpoint): "open \(id) \(endpoint)"
        case .handshake(let id, let attempt): "shake hands \(id), attempt \(attempt)"
        case .close(let id): "close \(id)"
        case .ready(let id, let endpoint): "ready \(id) \(endpoint)"
        case .part(let id, let error): "part \(id) \(error.code)"
        case .drain(let id): "drain \(id)"
        case .goAway(let id): "go-away \(id)"
        case .reconnectDeferred: "put off"
        case .lost(let id, let error): "lost \(id) \(error.code)"
        case .beingMade: "being made"
        case .offline(let error): "offline \(error.code)"
        case .probe(let id): "probe \(id)"
        case .paceHeartbeat(let id, let isPaused): "\(isPaused ? "pause" : "resume") \(id)"
        case .application(let isActive): isActive ? "active" : "inactive"
        case .report(let event): "report \(event.text)"
        }
    }
}

extension [Machine.Action] {
    var texts: [String] { self.map(\.text) }
    /// The texts of the actions without reports.
    var deeds: [String] { self.filter { if case .report = $0 { false } else { true } }.map(\.text) }
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
                _ = self.connectFailed(ConnectionID(number: self.nextID - 1), because: refused(endpoint), now: now)
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
