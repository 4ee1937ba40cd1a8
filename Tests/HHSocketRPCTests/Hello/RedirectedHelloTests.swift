// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

/// A server that redirects to another origin, which must not get the session token.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct RedirectedHelloTests {
    @Test(arguments: [true, false]) func sessionTokenDoesNotCrossOrigins(hasToken: Bool) async throws {
        let target = try await MockServer(.echo, webSocket: "/rpc")
        target.acceptHello()
        let redirector = try await MockServer(webSocket: "/entry")
        redirector.onOpening(.redirect(to: "\(target.endpoint)"))
        var configuration = SocketClient.Configuration(servers: [redirector.endpoint])
        configuration.hello = HelloPolicy()
        if hasToken { configuration.hello?.sessionToken = { Array("secret".utf8) } }
        let client = SocketClient(configuration: configuration)
        let events = client.events
        client.connect()
        guard hasToken else {
            #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
            return
        }
        let error = try await failedAttempt(of: events)
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("another origin"), "\(error.message)")
        #expect(target.received.isEmpty)
    }
}
