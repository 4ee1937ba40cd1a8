// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketSTOMP
import HHSocketTesting
import TestSupport
import Testing

/// Operations before `connect()` and after `disconnect()`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct STOMPUnconnectedTests {
    enum Operation: CaseIterable {
        case send, transaction

        func perform(_ client: STOMPClient) async throws {
            switch self {
            case .send: try await client.send("hello", to: "/queue/a")
            case .transaction: try await client.transaction { try await $0.send("hello", to: "/queue/a") }
            }
        }
    }

    /// It waits for the connection that the next `connect()` makes.
    @Test(arguments: Operation.allCases) func timeoutCountsBeforeConnect(operation: Operation) async throws {
        let time = ManualTime()
        var configuration = STOMPClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 1)])
        configuration.socket.networkMonitor = nil
        configuration.socket.time = SocketTime(time)
        let client = STOMPClient(configuration: configuration)
        let waiting = Task { try await operation.perform(client) }
        try await eventually("its time") { time.untilNextAlarm == .seconds(30) }
        await time.advance(by: .seconds(29))
        #expect(time.untilNextAlarm == .seconds(1))
        await time.advance(by: .seconds(1))
        let error = await #expect(throws: SocketError.self) { try await waitForValue(of: waiting, "its end") }
        #expect(error?.code == .timeout && error?.delivery == .notSent)
        #expect(error?.message.contains("no connection") == true, "\(String(describing: error))")
    }

    @Test func nothingWaitsAfterDisconnect() async throws {
        let broker = try await MockBroker()
        let client = STOMPClient(configuration: .init(servers: [broker.endpoint]))
        client.connect()
        try await client.send("hello", to: "/queue/a", receipt: true)
        try await client.disconnect()
        for operation in Operation.allCases {
            let error = await #expect(throws: SocketError.self) { try await operation.perform(client) }
            #expect(error?.code == .notConnected && error?.delivery == .notSent)
        }
        client.connect()
        for operation in Operation.allCases { try await operation.perform(client) }
        try await client.disconnect()
        #expect(broker.received.count { $0.command == .send } == 3)
    }
}
