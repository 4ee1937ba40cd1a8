import HHSocketSTOMP
import HHSocketTesting
import TestSupport
import Testing

/// ERROR frames that name no receipt, as RabbitMQ's.
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
        // The next connection has nothing to do with it.
        broker.once(.send, .reset)
        let next = await #expect(throws: SocketError.self) {
            try await client.send("hello", to: "/queue/a", receipt: true)
        }
        #expect(next?.code == .connectionLost && next?.underlying == nil)
    }
}
