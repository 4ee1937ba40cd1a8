// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The completions of functions that do not wait.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct STOMPCompletionTests {
    /// A caller may hold a lock that its completion takes.
    @Test(arguments: [true, false]) func completionRunsAfterItsFunctionHasReturned(
        isOnTheSocketsThread: Bool
    ) async throws {
        let broker = try await MockBroker()
        var configuration = STOMPClient.Configuration(servers: [broker.endpoint])
        configuration.socket.callbackQueue = .socketThread
        let client = STOMPClient(configuration: configuration)
        client.connect()
        let subscription = try client.subscribe(to: "/queue/a", ack: .clientIndividual)
        try await broker.publish("m", to: "/queue/a")
        let message = try await first(of: subscription, "the message")
        let completions = Completions()
        let callAll: @Sendable () -> Void = {
            let body = ByteBuffer(string: "x")
            completions.of("sent") { client.send(body, to: "/topic/a", completion: $0) }
            completions.of("confirmed") { client.send(body, to: "/topic/a", receipt: true, completion: $0) }
            completions.of("refused") {
                client.send(body, to: "/topic/a", headers: ["receipt": "mine"], completion: $0)
            }
            completions.of("acknowledged") { message.ack(completion: $0) }
            completions.of("settled before") { message.nack(completion: $0) }
        }
        if isOnTheSocketsThread {
            await Task(executorPreference: client.executor) { callAll() }.value
        } else {
            callAll()
        }
        #expect(
            try await completions.wait(for: 5) == [
                "sent": [.sent], "confirmed": [.sent], "refused": [.refused(.invalidArgument)],
                "acknowledged": [.sent], "settled before": [.refused(.invalidArgument)],
            ]
        )
        try await client.disconnect()
    }
}
