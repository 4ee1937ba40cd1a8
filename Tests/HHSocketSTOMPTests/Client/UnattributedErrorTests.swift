// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import TestSupport
import Testing

/// ERROR frames that name no receipt, like RabbitMQ's.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct UnattributedErrorTests {
    @Test func anOperationThatWasNotConfirmedHasItAsItsCause() async throws {
        let broker = try await MockBroker()
        broker.once(.send, .frame(STOMPFrame(.error, ["message": "access refused"])))
        let client = STOMPClient(configuration: try .init(url: broker.url))
        client.connect()
        let error = await #expect(throws: SocketError.self) {
            try await client.send("hello", to: "/queue/a", receipt: true)
        }
        #expect(error?.code == .connectionLost)
        #expect(error?.delivery == .sentUnknown)
        #expect((error?.underlying as? STOMPServerError)?.message == "access refused")
        #expect(error?.message.contains("access refused") == true)
        #expect(error?.endpoint == broker.endpoint)
        // The next connection is not affected.
        broker.once(.send, .reset)
        let next = await #expect(throws: SocketError.self) {
            try await client.send("hello", to: "/queue/a", receipt: true)
        }
        #expect(next?.code == .connectionLost && next?.underlying == nil)
    }

    /// On the first connection another frame may have caused the ERROR; on the second no other was sent.
    @Test func aSubscriptionThatIsRefusedAgainEndsAndTheOthersContinue() async throws {
        let broker = try await MockBroker()
        broker.on(
            .subscribe,
            .respond { received in
                received.frame.headers["destination"] == "/queue/secret"
                    ? .frame(STOMPFrame(.error, ["message": "access refused"])) : .handle
            }
        )
        var configuration = try STOMPClient.Configuration(url: broker.url)
        configuration.socket.backoff = .immediate
        let client = STOMPClient(configuration: configuration)
        client.connect()
        let open = try client.subscribe(to: "/queue/open")
        try await open.waitUntilConfirmed()
        let secret = try client.subscribe(to: "/queue/secret")
        let error = await #expect(throws: SocketError.self) { for try await _ in secret {} }
        #expect(error?.code == .brokerError)
        #expect((error?.underlying as? STOMPServerError)?.message == "access refused")
        // A message to the connection that ends would be lost.
        try await broker.ended(connection: 1)
        try await broker.received(5, .subscribe)
        try await broker.publish("hello", to: "/queue/open")
        #expect(try await first(of: open, "the message").text == "hello")
        let made = broker.received.filter { $0.frame.command == .subscribe }
        #expect(made.count { $0.frame.headers["destination"] == "/queue/secret" } == 2)
        #expect(made.filter { $0.frame.headers["destination"] == "/queue/open" }.map(\.connection) == [0, 1, 2])
        #expect(Set(made.map { $0.frame.headers["id"] }).count == 2)
    }
}
