// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The start and the end of the brokers that other tests use, on raw sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct RealBrokerSupportTests {
    private static func connect(_ version: String, _ host: String) -> [String] {
        let headers = "accept-version:\(version)\\nhost:\(host)\\nlogin:guest\\npasscode:guest"
        return ["send:CONNECT\\n\(headers)\\n\\n", "expect:CONNECTED"]
    }

    private static func subscribe(_ destination: String, _ headers: String = "") -> [String] {
        ["send:SUBSCRIBE\\nid:0\\ndestination:\(destination)\\n\(headers)\\n"]
    }

    private static func send(_ body: String, _ destination: String, _ headers: String = "") -> [String] {
        ["send:SEND\\ndestination:\(destination)\\nreceipt:1\\n\(headers)\\n\(body)"]
    }

    /// Exchanges frames with a broker, and returns those that were expected.
    private static func exchange(
        _ url: String,
        version: String = "1.2",
        host: String = "/",
        _ steps: [String]
    ) async throws -> [String] {
        let outcome = try await Python.rawSTOMP(url, self.connect(version, host) + steps)
        guard outcome.exitCode == 0 else { throw Unexpected(description: "\(outcome.errors); \(outcome.text)") }
        return try outcome.lines.map { try JSONDecoder().decode(String.self, from: Data($0.utf8)) }
    }

    /// Sends a message through a door, and receives it there.
    static func sendToOurselves(
        _ url: String,
        version: String = "1.2",
        host: String = "/"
    ) async throws {
        let destination = "/queue/ourselves"
        let steps = Self.subscribe(destination) + Self.send("hello", destination) + ["expect:MESSAGE"]
        let frames = try await Self.exchange(url, version: version, host: host, steps)
        #expect(frames.first?.contains("version:\(version)\n") == true || version == "1.0", "\(frames)")
        let message = try #require(frames.dropFirst().first)
        #expect(message.contains("\ndestination:\(destination)\n") && message.hasSuffix("\n\nhello"), "\(message)")
    }

    /// The command lines of the processes on this machine.
    private static func processes() async throws -> [String] {
        try await Command.run(["-A", "-o", "args"], of: URL(fileURLWithPath: "/bin/ps")).lines
    }

    // MARK: RabbitMQ

    @Suite(.tags(.io), .enabled(if: RabbitMQ.isInstalled, RabbitMQ.howToGetIt)) struct RabbitMQNode {
        @Test(arguments: Broker.Door.allCases)
        func everyDoorDelivers(door: Broker.Door) async throws {
            try await RealBrokerSupportTests.sendToOurselves(RabbitMQ.shared.url(door))
        }

        @Test(arguments: [false, true])
        func aPersistentMessageIsThereAfterARestart(killed: Bool) async throws {
            let node = try await RabbitMQ.shared
            let name = "restart-\(UUID())"
            let send = RealBrokerSupportTests.send("hello", "/queue/\(name)", "persistent:true\\n")
            _ = try await RealBrokerSupportTests.exchange(node.url(), send + ["expect:RECEIPT"])
            // RabbitMQ writes the log with the queue's declaration at an arbitrary time.
            if killed { _ = try await node.control("eval", "mnesia:sync_log().") }
            if killed { try await node.kill() } else { try await node.stop() }
            await #expect(throws: (any Error).self) { try await RealBrokerSupportTests.exchange(node.url(), []) }
            try await node.start()
            #expect(try await node.queues()[name] == Broker.Queue(ready: 1))
            let subscribe = RealBrokerSupportTests.subscribe("/queue/\(name)") + ["expect:MESSAGE"]
            let frames = try await RealBrokerSupportTests.exchange(node.url(), subscribe)
            #expect(frames.last?.hasSuffix("\n\nhello") == true, "\(frames)")
        }

        @Test func queuesAreCounted() async throws {
            let node = try await RabbitMQ.shared
            let name = "counted \(UUID())"
            let destination = "/queue/\(name)"
            let two = (0..<2).flatMap { _ in RealBrokerSupportTests.send("hello", destination) + ["expect:RECEIPT"] }
            _ = try await RealBrokerSupportTests.exchange(node.url(), two)
            #expect(try await node.queues()[name] == Broker.Queue(ready: 2))
            let subscriber = try Python.rawSTOMPClient(
                node.url(),
                RealBrokerSupportTests.connect("1.2", node.host)
                    + RealBrokerSupportTests.subscribe(destination, "ack:client-individual\\nprefetch-count:1\\n")
                    + ["expect:MESSAGE", "expect:nothing more"]
            )
            _ = try await subscriber.lines(2)
            #expect(try await node.queues()[name] == Broker.Queue(ready: 1, unacknowledged: 1, consumers: 1))
            subscriber.signal(SIGKILL)
            try await eventually("its message is there again") {
                try await node.queues()[name] == Broker.Queue(ready: 2)
            }
            #expect(try await node.control("purge_queue", name).contains("Purging"))
            #expect(try await node.queues()[name] == Broker.Queue())
        }

        /// The broker ends even when its supervisor is killed.
        @Test func nothingOutlivesTheTests() async throws {
            let node = try await RabbitMQ.start()
            let isItsOwn: @Sendable (String) -> Bool = { $0.contains(node.folder) || $0.contains(node.nameServer) }
            // The virtual machine and the name server.
            #expect(try await RealBrokerSupportTests.processes().count(where: isItsOwn) >= 2)
            node.killSupervisor()
            try await eventually("every process and the folder are gone") {
                try await !RealBrokerSupportTests.processes().contains(where: isItsOwn)
                    && !FileManager.default.fileExists(atPath: node.folder)
            }
        }
    }

    // MARK: CoilMQ

    @Suite(.tags(.io), .enabled(if: CoilMQ.isInstalled, CoilMQ.howToGetIt)) struct CoilMQServer {
        @Test func itDeliversInEachVersionAndStartsAgain() async throws {
            let server = try await CoilMQ.start()
            for version in ["1.0", "1.1", "1.2"] {
                try await RealBrokerSupportTests.sendToOurselves(server.url(), version: version, host: server.host)
            }
            try await server.restart()
            try await RealBrokerSupportTests.sendToOurselves(server.url(), host: server.host)
            try await server.kill()
            await #expect(throws: (any Error).self) {
                try await RealBrokerSupportTests.sendToOurselves(server.url(), host: server.host)
            }
        }
    }
}
