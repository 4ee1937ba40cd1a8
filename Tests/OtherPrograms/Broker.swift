// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// A STOMP broker for the tests, on fixed ports of 127.0.0.1. `brokers.py` runs it, and kills it when the tests'
/// process ends for any reason.
final class Broker: Sendable {
    /// A service of the broker on a port.
    enum Door: String, Sendable, CaseIterable {
        case stomp
        case stompTLS
        /// On the path `/ws`.
        case webSocket
        case webSocketTLS

        /// The port follows.
        fileprivate var url: String {
            switch self {
            case .stomp: "stomp://127.0.0.1:"
            case .stompTLS: "stomps://localhost:"
            case .webSocket: "ws://127.0.0.1:"
            case .webSocketTLS: "wss://localhost:"
            }
        }
    }

    /// The broker's figures of a queue.
    struct Queue: Equatable, Sendable {
        var ready = 0
        var unacknowledged = 0
        var consumers = 0
    }

    private struct Refused: Error, CustomStringConvertible {
        var command: String
        var answer: String

        var description: String { "the broker did not \(self.command): \(self.answer)" }
    }

    /// The line that it prints when it is ready.
    private struct Ready: Decodable {
        var folder: String
        var host: String
        var ports: [String: Int]
    }

    private enum State {
        case running
        case stopped
        /// It did not start again, for this reason.
        case failed(String)
    }

    /// The folder of its data.
    let folder: String
    /// The required header `host` of CONNECT.
    let host: String
    private let ports: [String: Int]
    private let supervisor: Command
    /// The number of printed lines once all commands were answered.
    private let expectedLines = Watched(1)
    private let state = Watched(State.running)

    /// The time that the supervisor has for its answers. Its own timeouts are shorter, and their errors say more.
    private static let supervisorPatience = Duration.seconds(270)

    /// Starts a broker, and waits until it is ready.
    ///
    /// - Throws: An error with the broker's log, if it does not start.
    fileprivate init(_ name: String, python: URL?) async throws {
        guard let python else { throw Unexpected(description: "there is no Python for \(name)") }
        let script = packageFolder.appendingPathComponent("Tests/OtherPrograms/brokers.py").path
        self.supervisor = try Command(["-B", script, name], of: python, keepsInputOpen: true)
        let ready = try await self.supervisor.lines(within: Self.supervisorPatience)[0]
        let started = try JSONDecoder().decode(Ready.self, from: Data(ready.utf8))
        self.folder = started.folder
        self.host = started.host
        self.ports = started.ports
    }

    /// The port of a door.
    func port(_ door: Door = .stomp) throws -> Int {
        guard let port = self.ports[door.rawValue] else {
            throw Unexpected(description: "the broker has no door \(door)")
        }
        return port
    }

    /// The URL of a door.
    func url(_ door: Door = .stomp) throws -> String {
        let path = door == .webSocket || door == .webSocketTLS ? "/ws" : ""
        return try "\(door.url)\(self.port(door))\(path)"
    }

    /// The end of the command line of the node's name server.
    var nameServer: String { "epmd -port \(self.ports["epmd", default: 0])" }

    /// Kills the broker's supervisor, as if the tests had crashed.
    func killSupervisor() { self.supervisor.signal(SIGKILL) }

    /// Ends the broker as its operator would.
    func stop() async throws {
        self.state.withLockedValue { $0 = .stopped }
        try await self.ask("stop")
    }

    /// Kills the broker, with SIGKILL.
    func kill() async throws {
        self.state.withLockedValue { $0 = .stopped }
        try await self.ask("kill")
    }

    /// Starts the broker that was stopped or killed, with its data and on its ports, and waits until it is ready.
    func start() async throws {
        do {
            try await self.ask("start")
            self.state.withLockedValue { $0 = .running }
        } catch {
            self.state.withLockedValue { $0 = .failed("\(error)") }
            throw error
        }
    }

    /// Starts the broker if a failed test has left it stopped.
    ///
    /// - Throws: The error of its last start, immediately.
    fileprivate func becomeReady() async throws {
        switch self.state.current {
        case .running: return
        case .stopped: try await self.start()
        case .failed(let reason): throw Unexpected(description: reason)
        }
    }

    func restart() async throws {
        try await self.stop()
        try await self.start()
    }

    /// The queues of RabbitMQ, by name, as they are now.
    func queues() async throws -> [String: Queue] {
        let answer = try await self.ask("queues")
        return try JSONDecoder().decode([String: [Int]].self, from: Data(answer.utf8)).mapValues {
            Queue(ready: $0[0], unacknowledged: $0[1], consumers: $0[2])
        }
    }

    /// Runs `rabbitmqctl`, which takes a second, and returns its output.
    @discardableResult
    func control(_ arguments: String...) async throws -> String {
        let json = String(decoding: try JSONEncoder().encode(arguments), as: UTF8.self)
        return try await JSONDecoder().decode(String.self, from: Data(self.ask("run \(json)").utf8))
    }

    /// Sends the supervisor a command, and returns what follows "ok".
    @discardableResult
    private func ask(_ command: String) async throws -> String {
        let count = try self.expectedLines.withLockedValue { count in
            try self.supervisor.type(command)
            count += 1
            return count
        }
        let answer = try await self.supervisor.lines(count, within: Self.supervisorPatience)[count - 1]
        guard answer.hasPrefix("ok") else { throw Refused(command: command, answer: answer) }
        return String(answer.dropFirst("ok: ".count))
    }
}

/// RabbitMQ with its plugins for STOMP and Web-STOMP. The user is `guest` with the passcode `guest`, and the virtual
/// host `/`.
enum RabbitMQ {
    static let isInstalled =
        Python.isInstalled
        && Command.installed("rabbitmq-server", or: ["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin"]) != nil

    static let howToGetIt: Comment =
        "There is no rabbitmq-server: STOMP is NOT TESTED against it here. Install the package rabbitmq-server."

    private static let started = Task { try await Self.start() }
    private static let isReported = Watched(false)

    /// The node of this process, which starts when the first test uses it. Tests that stop it start it again.
    ///
    /// - Throws: An error with the node's log, once, if it is not ready. All later tests fail immediately.
    static var shared: Broker {
        get async throws {
            do {
                let node = try await self.started.value
                try await node.becomeReady()
                return node
            } catch {
                let isReported = self.isReported.withLockedValue { isReported in
                    defer { isReported = true }
                    return isReported
                }
                throw isReported ? Unexpected(description: "RabbitMQ is not ready: see the first failure") : error
            }
        }
    }

    /// Starts another node, which takes some seconds.
    static func start() async throws -> Broker { try await Broker("rabbitmq", python: Python.executable) }
}

/// PyPI's coilmq. Its queues are empty after a restart; every user may connect.
enum CoilMQ {
    private static let python = TestSupport.python(having: "coilmq")

    static var isInstalled: Bool { self.python != nil }

    static let howToGetIt: Comment =
        "No Python with coilmq: STOMP is NOT TESTED against it here. Set HHSOCKET_PYTHON to one (pip install coilmq)."

    static func start() async throws -> Broker { try await Broker("coilmq", python: Self.python) }
}

/// The ActiveMQ that `make test-activemq` runs around the tests.
enum ActiveMQ {
    private static let environment = ProcessInfo.processInfo.environment

    static var isRunning: Bool { self.url != nil }

    static let howToGetIt: Comment = "STOMP is NOT TESTED against ActiveMQ here: make test-activemq does that."

    static let url = Self.environment["HHSOCKET_ACTIVEMQ"].map { "stomp://\($0)" }
    static let urlWithTLS = Self.environment["HHSOCKET_ACTIVEMQ_TLS"].map { "stomps://\($0)" }

    /// Starts another one, which may be stopped.
    static func start() async throws -> Broker { try await Broker("activemq", python: Python.executable) }
}
