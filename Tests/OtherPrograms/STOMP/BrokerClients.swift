// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketSTOMP
import NIOCore
import TestSupport
import Testing

extension Broker {
    /// The settings of a client of this broker at one of its doors, with timeouts that do not matter by default.
    func configuration(_ door: Door = .stomp, _ version: STOMPVersion? = nil) throws -> STOMPClient.Configuration {
        var configuration = try STOMPClient.Configuration(url: self.url(door))
        configuration.host = self.host
        configuration.credentials = { STOMPCredentials(login: "guest", passcode: "guest") }
        if let version { configuration.versions = [version] }
        // Under load RabbitMQ 3.10 ends WebSockets that have heart-beats: its process for them does not handle being
        // resumed.
        if door == .webSocket || door == .webSocketTLS { configuration.heartbeats = .off }
        configuration.timeout = patience
        configuration.connectTimeout = patience
        configuration.disconnectTimeout = patience
        configuration.socket.connectTimeout = patience
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(200))
        if door == .stompTLS || door == .webSocketTLS {
            var tls = ClientTLS()
            tls.trust = try TestAuthority().trust
            configuration.socket.tls = tls
        }
        return configuration
    }

    /// A client that is connecting.
    func client(
        _ door: Door = .stomp,
        _ version: STOMPVersion? = nil,
        _ change: (inout STOMPClient.Configuration) -> Void = { _ in }
    ) throws -> STOMPClient {
        try self.clientWithEvents(door, version, change).client
    }

    /// A connecting client, and all of its events.
    func clientWithEvents(
        _ door: Door = .stomp,
        _ version: STOMPVersion? = nil,
        _ change: (inout STOMPClient.Configuration) -> Void = { _ in }
    ) throws -> (client: STOMPClient, events: ClientEvents) {
        var configuration = try self.configuration(door, version)
        change(&configuration)
        let client = STOMPClient(configuration: configuration)
        let events = ClientEvents(client)
        client.connect()
        return (client, events)
    }

    /// Waits until a queue has these figures.
    func waitUntil(
        _ queue: TestQueue,
        _ what: String,
        fileID: String = #fileID,
        line: Int = #line,
        _ isSo: @escaping @Sendable (Queue) -> Bool
    ) async throws {
        try await eventually("\(queue.name): \(what)", fileID: fileID, line: line) {
            try await isSo(self.queues()[queue.name] ?? Queue())
        }
    }

    /// The subscriptions that RabbitMQ has for a queue, by its command.
    func consumers(of queue: TestQueue) async throws -> [String] {
        let lines = try await self.control("list_consumers", "--silent", "queue_name", "consumer_tag", "active")
        return lines.split(separator: "\n").map(String.init).filter { $0.hasPrefix("\(queue.name)\t") }
    }
}

/// A queue that no other test uses.
struct TestQueue: Sendable {
    let name: String

    init(_ name: String = "test") {
        self.name = "\(name)-\(UUID())"
    }

    var destination: String { "/queue/\(self.name)" }
}

/// The events of a client, from the beginning.
final class ClientEvents: Sendable {
    struct Seen: Sendable {
        var agreements: [STOMPAgreement] = []
        /// The ends of accepted connections.
        var ends: [SocketError?] = []
        /// Attempts that failed.
        var failures: [SocketError] = []
        var attempts = 0
        var gaveUp: SocketError?
        var unclaimed: [STOMPMessage] = []
    }

    private let seen = Watched(Seen())

    init(_ client: STOMPClient) {
        let events = client.events
        Task { [seen] in
            for await event in events { seen.withLockedValue { $0.add(event) } }
        }
    }

    var current: Seen { self.seen.current }

    func wait(
        _ what: String,
        fileID: String = #fileID,
        line: Int = #line,
        until condition: @escaping @Sendable (Seen) -> Bool
    ) async throws {
        try await self.seen.wait(what, fileID: fileID, line: line, until: condition)
    }

    func value<Found: Sendable>(
        _ what: String,
        fileID: String = #fileID,
        line: Int = #line,
        find: @escaping @Sendable (Seen) -> Found?
    ) async throws -> Found {
        try await self.seen.value(what, fileID: fileID, line: line, find: find)
    }

    /// Waits for the connection with this number, from 1.
    @discardableResult
    func opened(_ number: Int = 1, fileID: String = #fileID, line: Int = #line) async throws -> STOMPAgreement {
        try await self.value("connection \(number)", fileID: fileID, line: line) { seen in
            seen.agreements.count >= number ? seen.agreements[number - 1] : nil
        }
    }

    /// Waits for the event of the current connection, since events may be seen later than their effects.
    func waitUntilOpen(fileID: String = #fileID, line: Int = #line) async throws {
        try await self.wait("one opening more than ends", fileID: fileID, line: line) { seen in
            seen.agreements.count == seen.ends.count + 1
        }
    }
}

extension ClientEvents.Seen {
    fileprivate mutating func add(_ event: STOMPEvent) {
        switch event {
        case .opened(let agreement): self.agreements.append(agreement)
        case .closed(let error): self.ends.append(error)
        case .unclaimed(let message): self.unclaimed.append(message)
        case .connection(.connecting): self.attempts += 1
        case .connection(.connectFailed(let error)): self.failures.append(error)
        case .connection(.gaveUp(let error)): self.gaveUp = error
        case .connection: break
        }
    }
}

extension STOMPSubscription {
    /// The next messages.
    func next(_ count: Int, fileID: String = #fileID, line: Int = #line) async throws -> [STOMPMessage] {
        try await withDeadline("\(count) messages of \(self.destination)", fileID: fileID, line: line) {
            var messages: [STOMPMessage] = []
            var iterator = self.makeAsyncIterator()
            while messages.count < count {
                guard let message = try await iterator.next() else {
                    throw Unexpected(description: "the subscription ended after \(messages.count) of \(count) messages")
                }
                messages.append(message)
            }
            return messages
        }
    }

    /// The next message.
    func next(fileID: String = #fileID, line: Int = #line) async throws -> STOMPMessage {
        try await self.next(1, fileID: fileID, line: line)[0]
    }

    /// Waits for the error with which the subscription ends.
    func failure(fileID: String = #fileID, line: Int = #line) async throws -> SocketError {
        try await withDeadline("the failure of \(self.destination)", fileID: fileID, line: line) {
            do {
                for try await _ in self {}
            } catch let error as SocketError {
                return error
            }
            throw Unexpected(description: "the subscription ended without an error")
        }
    }
}

extension STOMPClient {
    /// Sends texts in order, all but the last without waiting, and returns when the broker has confirmed them.
    func sendAll(_ texts: [String], to destination: String, headers: STOMPHeaders = [:]) async throws {
        for text in texts.dropLast() {
            self.send(ByteBuffer(string: text), to: destination, headers: headers, completion: nil)
        }
        if let last = texts.last { try await self.send(last, to: destination, headers: headers, receipt: true) }
    }
}

extension STOMPClient {
    /// Aborts a transaction, commits another one, and expects only the latter's messages; disconnects.
    func commitsAndAborts(_ queue: TestQueue) async throws {
        struct Regret: Error {}
        let subscription = try self.subscribe(to: queue.destination)
        await #expect(throws: Regret.self) {
            try await self.transaction { transaction in
                try await transaction.send("never", to: queue.destination)
                throw Regret()
            }
        }
        try await self.transaction { transaction in
            for text in ["2", "3"] { try await transaction.send(text, to: queue.destination) }
            try await self.send("1", to: queue.destination, receipt: true)
        }
        #expect(try await subscription.next(3).map(\.text) == ["1", "2", "3"])
        try await self.disconnect()
    }
}

extension SocketError {
    /// The broker's ERROR.
    var brokersWord: STOMPServerError? { self.underlying as? STOMPServerError }
}
