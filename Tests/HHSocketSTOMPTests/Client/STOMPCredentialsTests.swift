// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import HHSocketTesting
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The user's credentials: the closure that supplies them, and the brokers that get them.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct STOMPCredentialsTests {
    enum Way: CaseIterable { case timeout, disconnecting, release }

    private enum Progress { case none, begun, cancelled }

    /// The link itself ends later: after up to `disconnectTimeout`, if the broker does not close it.
    @Test(arguments: Way.allCases) func closureIsCancelledWithTheAttempt(way: Way) async throws {
        // The kernel accepts connections for it, and nothing ever closes them.
        let port = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.autoRead, value: false)
            .bind(host: "127.0.0.1", port: 0)
            .get()
        let progress = Watched(Progress.none)
        var configuration = STOMPClient.Configuration(
            servers: [Endpoint(host: "127.0.0.1", port: port.localAddress?.port ?? 0)]
        )
        if way == .timeout { configuration.connectTimeout = .milliseconds(50) }
        configuration.disconnectTimeout = .seconds(3_600)
        configuration.credentials = {
            progress.withLockedValue { if $0 == .none { $0 = .begun } }
            do {
                try await untilCancelled()
            } catch {
                progress.withLockedValue { $0 = .cancelled }
                throw error
            }
            return STOMPCredentials(login: "ann", passcode: "secret")
        }
        var client: STOMPClient? = STOMPClient(configuration: configuration)
        client?.connect()
        try await progress.wait("the closure begins") { $0 != .none }
        var closing: Task<Void, any Error>?
        switch way {
        case .timeout: break
        case .disconnecting: closing = Task { [client] in try await client?.disconnect() }
        case .release: client = nil
        }
        try await progress.wait("the closure is cancelled") { $0 == .cancelled }
        try await port.close()
        _ = await closing?.result
        withExtendedLifetime(client) {}
    }

    enum Secrets: CaseIterable { case none, credentials, headers }

    @Test(arguments: Secrets.allCases) func secretsDoNotCrossOrigins(secrets: Secrets) async throws {
        let target = try await MockBroker(webSocket: "/other")
        let redirector = try await MockBroker(webSocket: "/ws")
        redirector.onOpening(.redirect(to: target.url))
        var configuration = try STOMPClient.Configuration(url: redirector.url)
        let isAsked = Watched(false)
        switch secrets {
        case .none: break
        case .credentials:
            configuration.credentials = {
                isAsked.withLockedValue { $0 = true }
                return STOMPCredentials(login: "ann", passcode: "secret")
            }
        case .headers: configuration.connectHeaders = ["Authorization": "Bearer secret"]
        }
        let client = STOMPClient(configuration: configuration)
        let events = client.events
        client.connect()
        guard secrets != .none else {
            try await client.send("hello", to: "/queue/a", receipt: true)
            #expect(target.received.map(\.command) == [.connect, .send])
            return
        }
        let event = try await first(of: events, "a failed attempt") {
            if case .connection(.connectFailed) = $0 { true } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { return }
        #expect(error.code == .handshakeRefused)
        #expect(error.message.contains("another origin"), "\(error.message)")
        #expect(!isAsked.current)
        // The connection is closed before the attempt is over, and nothing was sent on it.
        try await target.ended(connection: 0)
        #expect(target.received.isEmpty && redirector.received.isEmpty)
    }

    @Test func secretsStayWithinARedirectOfOneOrigin() async throws {
        let broker = try await MockBroker(webSocket: "/ws")
        broker.onOpening(number: 0, .redirect(to: "/ws?again"))
        var configuration = try STOMPClient.Configuration(url: broker.url)
        configuration.credentials = { STOMPCredentials(login: "ann", passcode: "secret") }
        configuration.connectHeaders = ["client-id": "1"]
        let client = STOMPClient(configuration: configuration)
        client.connect()
        let connect = try await broker.received(1)[0]
        #expect(connect.headers["passcode"] == "secret" && connect.headers["client-id"] == "1")
    }
}
