// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ProxyClientTests {
    @Test(arguments: [Proxy.Kind.http, .socks5])
    func callsAndPushesGoThrough(kind: Proxy.Kind) async throws {
        let server = try await MockServer(.echo)
        server.on(101, .glued(.push(2_001, "news"), .echo))
        let name = Endpoint(host: "db.invalid", port: 7_000)
        let credentials = Proxy.Credentials(user: "me", password: "open:sesame")
        let proxy = try await TestProxy(kind) {
            $0.hosts = [name.host: server.endpoint]
            $0.credentials = credentials
        }
        let client = SocketClient.connecting(to: name) { $0.socket.proxy = proxy.proxy(credentials) }
        let pushes = client.pushes(ofType: 2_001)
        #expect(try await client.data(for: SocketRequest(type: 101, body: "hi")).string == "hi")
        let push = try await first(of: pushes, "the push")
        #expect(push.string == "news")
        let large = ByteBuffer(repeating: 7, count: 1 << 20)
        #expect(try await client.data(for: SocketRequest(type: 102, body: large)).body == large)
        #expect(proxy.asked == ["\(name)"])
        await client.close()
    }

    @Test func callThatWaitsLearnsWhatTheProxySaid() async throws {
        let proxy = try await TestProxy(.http) { $0.answer = .refusal(403) }
        // The attempt may have failed before the call waits for it: then another client makes both again.
        var error: SocketError
        repeat {
            let client = SocketClient.connecting(to: Endpoint(host: "db.invalid", port: 7_000)) {
                $0.socket.proxy = proxy.proxy()
            }
            error = try await socketError { () throws(SocketError) in
                _ = try await client.data(for: SocketRequest(type: 101, body: "hi"))
            }
            await client.close()
        } while error.code == .notConnected
        #expect(error.code == .proxyFailed)
        #expect((error.underlying as? ProxyFailure)?.reason == .refused(403))
        #expect(error.notExecuted)
    }
}
