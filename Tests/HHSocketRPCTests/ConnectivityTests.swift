// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Calls that wait for a connection, over real TCP.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectivityTests {
    private func client(
        _ server: Endpoint,
        _ change: (inout SocketClient.Configuration) -> Void = { _ in }
    ) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: [server])
        configuration.timeout = patience
        configuration.waitsForConnectivity = true
        configuration.socket.backoff = Backoff(base: .milliseconds(10), cap: .milliseconds(100))
        change(&configuration)
        return SocketClient(configuration: configuration)
    }

    private func error(_ client: SocketClient, _ request: SocketRequest = SocketRequest(type: 101)) async
        -> SocketError?
    {
        do throws(SocketError) {
            _ = try await client.data(for: request)
            return nil
        } catch {
            return error
        }
    }

    @Test func callMadeBeforeConnectIsSentOnceThereIsAConnection() async throws {
        let server = try await MockServer(.echo)
        let client = self.client(server.endpoint)
        let call = client.dataTask(with: SocketRequest(type: 101, body: "early"))
        call.resume()
        // Submitted later and rejected immediately: by then the call waits.
        #expect(await self.error(client, SocketRequest(type: 1))?.code == .invalidArgument)
        #expect(call.state == .running)
        client.connect()
        try await eventually("the answer") { call.state == .completed }
        #expect(call.response?.string == "early")
    }

    @Test func callMadeWhileTheServerIsAwayIsSentWhenItReturns() async throws {
        let server = try await MockServer(.echo)
        try await server.refuseConnections()
        let client = self.client(server.endpoint)
        let events = client.events
        client.connect()
        _ = try await first(of: events, "a wait") { if case .waiting = $0 { true } else { false } }
        var impatient = SocketRequest(type: 101)
        impatient.waitsForConnectivity = false
        let call = client.dataTask(with: SocketRequest(type: 101, body: "patient"))
        call.resume()
        // It fails between attempts, or with the attempt that it waited for.
        let code = await self.error(client, impatient)?.code
        #expect([.notConnected, .connectionRefused].contains(code), "\(String(describing: code))")
        for _ in 0..<3 {
            _ = try await first(of: events, "an attempt") { if case .connectFailed = $0 { true } else { false } }
        }
        #expect(call.state == .running)
        try await server.acceptConnections()
        try await eventually("the answer") { call.state == .completed }
        #expect(call.response?.string == "patient")
    }

    @Test func waitEndsWithTheTimeoutWhichCarriesTheLastConnectError() async throws {
        let client = self.client(try await MockServer.closedEndpoint())
        let events = client.events
        client.connect()
        _ = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        let error = await self.error(client, SocketRequest(type: 101, timeout: .milliseconds(300)))
        #expect(error?.code == .timeout)
        #expect(error?.delivery == .notSent)
        #expect((error?.underlying as? SocketError)?.code == .connectionRefused)
    }

    @Test func waitEndsWhenReconnectingHasStopped() async throws {
        let endpoint = try await MockServer.closedEndpoint()
        let closing = self.client(endpoint)
        let events = closing.events
        closing.connect()
        _ = try await first(of: events, "a wait") { if case .waiting = $0 { true } else { false } }
        let call = closing.dataTask(with: SocketRequest(type: 101))
        call.resume()
        closing.disconnect()
        try await eventually("the end") { call.state == .completed }
        #expect(call.error?.code == .cancelled)
        // A later call does not wait for a connection that is never made.
        #expect(await self.error(closing)?.code == .notConnected)

        let givingUp = self.client(endpoint) { $0.socket.backoff.maximumRounds = 2 }
        let last = givingUp.dataTask(with: SocketRequest(type: 101))
        last.resume()
        givingUp.connect()
        try await eventually("the end") { last.state == .completed }
        #expect([.noServerReachable, .notConnected].contains(last.error?.code), "\(String(describing: last.error))")
    }

    @Test func waitingCallsAreBoundedInNumberAndBytes() async throws {
        let server = try await MockServer(.echo)
        let few = self.client(server.endpoint) { $0.maximumWaiting = 2 }
        for _ in 0..<2 { few.dispatch(SocketRequest(type: 101)) }
        #expect(await self.error(few)?.code == .queueFull)
        let light = self.client(server.endpoint) { $0.maximumWaitingBytes = 100 }
        // A single call may always wait.
        light.dispatch(SocketRequest(type: 101, body: ByteBuffer(repeating: 1, count: 1_000)))
        let error = await self.error(light, SocketRequest(type: 101, body: "x"))
        #expect(error?.code == .queueFull)
        #expect(error?.message.contains("maximumWaitingBytes") == true)
        light.cancelAllTasks()
        let heavy = light.dataTask(with: SocketRequest(type: 101, body: ByteBuffer(repeating: 1, count: 60)))
        heavy.resume()
        light.connect()
        try await eventually("the answer") { heavy.state == .completed }
        #expect(heavy.error == nil)
    }
}
