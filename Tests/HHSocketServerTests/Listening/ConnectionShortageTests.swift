// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

private let echo: UInt32 = 100
private let hang: UInt32 = 101

private func makeRouter() -> Router {
    var router = Router()
    router.handleSynchronously(echo) { request, _ in request.body }
    router.handle(hang) { _, _ in
        try await untilCancelled()
        return ByteBuffer()
    }
    return router
}

extension HostileClient {
    /// Whether the client is served; false if it received a go-away.
    fileprivate func isServed(serial: UInt32 = 50) async throws -> Bool {
        await self.perform(.request(echo, serial: serial, "x"))
        let answer = try await self.response()
        return (answer.type, answer.serial, answer.status) == (echo, serial, .ok)
    }

    /// Keeps a request in flight from now on.
    fileprivate func isBusy(on server: SocketServer, with count: Int) async throws {
        await self.perform(.request(hang, serial: 60))
        try await eventually("\(count) requests in flight") { server.requestsInFlight == count }
    }
}

/// Connects a client that is served, after a time in which others have been silent for long enough.
private func newcomer(
    of server: SocketServer,
    after time: ManualTime,
    tls: ClientTLS? = nil,
    from origin: String? = nil
) async throws -> HostileClient {
    await time.advance(by: .seconds(20))
    let client = try await HostileClient.connect(to: server.address, tls: tls, from: origin)
    #expect(try await client.isServed())
    return client
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectionShortageTests {
    private let time = ManualTime()

    private func short(_ maximum: Int) -> SocketServer.Configuration {
        var configuration = SocketServer.Configuration.limited {
            $0.maximumConnections = maximum
            $0.maximumConnectionsPerAddress = .max
            $0.connectionRatePerAddress = nil
            $0.minimumSilence = .seconds(10)
        }
        configuration.time = SocketTime(self.time)
        return configuration
    }

    /// Waits for the end of a client that was closed, and need not hear why.
    private func end(of client: HostileClient) async throws {
        await self.time.advance(by: .seconds(1))
        try await client.ended()
    }

    @Test func theSilentOneGoesForANewcomerAndTheBusyOneStays() async throws {
        try await withServer(self.short(2), makeRouter()) { server in
            let silent = try await HostileClient.connect(to: server.address)
            #expect(try await silent.isServed())
            let busy = try await HostileClient.connect(to: server.address)
            try await busy.isBusy(on: server, with: 1)
            let newcomer = try await newcomer(of: server, after: self.time)
            let notice = try await silent.response()
            #expect(notice.type == FrameType.goAway)
            try await self.end(of: silent)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
            #expect(try await busy.isServed())
            // If all are busy, the newcomer is rejected.
            try await newcomer.isBusy(on: server, with: 2)
            let late = try await HostileClient.connect(to: server.address)
            #expect(try await late.isServed() == false)
            try await self.end(of: late)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
        }
    }

    /// A handler that waits for its client is not work for it: whoever gives no credit, or sends no items, would have a
    /// place for ever.
    @Test(arguments: [StreamKind.clientStreaming, .serverStreaming, .bidirectional])
    func aStreamThatWaitsForItsClientSparesNobody(kind: StreamKind) async throws {
        let type: UInt32 = 300
        var router = makeRouter()
        router.stream(type, kind: kind) { stream, _ in
            if kind.clientStreams { for try await _ in stream.items {} }
            for _ in 0..<10 where kind.serverStreams { try await stream.send(ByteBuffer(repeating: 0, count: 1_000)) }
            return ByteBuffer()
        }
        try await withServer(self.short(1), router) { server in
            let waiting = try await StreamClient(server, window: 1, connectionWindow: 1)
            try await waiting.open(type)
            try await eventually("the handler") { server.requestsInFlight == 1 }
            let newcomer = try await newcomer(of: server, after: self.time)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
            withExtendedLifetime((waiting, newcomer)) {}
        }
    }

    @Test func aLongPollSparesNobodyForEver() async throws {
        try await withServer(self.short(1), makeRouter()) { server in
            let polling = try await HostileClient.connect(to: server.address)
            try await polling.isBusy(on: server, with: 1)
            await self.time.advance(by: .seconds(30))
            let early = try await HostileClient.connect(to: server.address)
            #expect(try await early.isServed() == false)
            await early.perform(.close)
            await self.time.advance(by: .seconds(50))
            let newcomer = try await newcomer(of: server, after: self.time)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
            withExtendedLifetime((polling, newcomer)) {}
        }
    }

    /// Its connection went through two stages, and is registered only in the last.
    @Test func aBusyWebSocketOverTLSStays() async throws {
        var tls = ClientTLS()
        tls.trust = try TestAuthority().trust
        var configuration = self.short(2)
        let identity = try TestCertificate(.server).identity
        configuration.listeners = [try ServerListener(url: "wss://127.0.0.1:0/rpc", tls: ServerTLS(identity: identity))]
        try await withServer(configuration, makeRouter()) { [tls] server in
            let busy = try await HostileClient.connect(to: server.address, tls: tls)
            try await busy.isBusy(on: server, with: 1)
            let silent = try await HostileClient.connect(to: server.address, tls: tls)
            #expect(try await silent.isServed())
            let newcomer = try await newcomer(of: server, after: self.time, tls: tls)
            try await self.end(of: silent)
            #expect(try await busy.isServed())
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
            withExtendedLifetime(newcomer) {}
        }
    }

    @Test func oneThatWasActiveJustNowStays() async throws {
        var configuration = self.short(1)
        configuration.limits.minimumSilence = .seconds(600)
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            #expect(try await first.isServed())
            let second = try await HostileClient.connect(to: server.address)
            #expect(try await second.isServed() == false)
            #expect(try await first.isServed(serial: 51))
            #expect(server.statistics[.silentEvictions] == 0 && server.statistics[.connectionsRefused] == 1)
        }
    }

    @Test func noConnectionIsClosedIfDisabled() async throws {
        var configuration = self.short(1)
        configuration.limits.minimumSilence = nil
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            #expect(try await first.isServed())
            await self.time.advance(by: .seconds(60))
            let second = try await HostileClient.connect(to: server.address)
            #expect(try await second.isServed() == false)
            #expect(try await first.isServed(serial: 51))
        }
    }

    /// With several event loops, the client that has been silent longest on any of them is disconnected.
    @Test func theOldestOfAllEventLoopsGoes() async throws {
        var configuration = self.short(4)
        configuration.eventLoops = 2
        try await withServer(configuration, makeRouter()) { server in
            var clients: [HostileClient] = []
            for number in 0..<4 {
                let client = try await HostileClient.connect(to: server.address)
                #expect(try await client.isServed())
                clients.append(client)
                // Longer than the resolution of the check.
                if number < 3 { await self.time.advance(by: .seconds(5)) }
            }
            for (number, client) in clients.prefix(2).enumerated() {
                let newcomer = try await newcomer(of: server, after: self.time)
                try await newcomer.isBusy(on: server, with: number + 1)
                #expect(try await client.response().type == FrameType.goAway)
                try await eventually("the count") { server.statistics[.silentEvictions] == number + 1 }
                // This client must not be disconnected.
                clients.append(newcomer)
            }
            #expect(try await clients[2].isServed(serial: 51))
            #expect(try await clients[3].isServed(serial: 51))
        }
    }

    #if os(Linux)
    @Test func aClientBeyondTheShareOfItsAddressClosesNoOtherConnection() async throws {
        var configuration = self.short(1)
        configuration.limits.maximumConnectionsPerAddress = 1
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address)
            #expect(try await first.isServed())
            await self.time.advance(by: .seconds(60))
            let second = try await HostileClient.connect(to: server.address)
            #expect(try await second.isServed() == false)
            #expect(try await first.isServed(serial: 51))
            #expect(server.statistics[.connectionsRefusedByAddress] == 1 && server.statistics[.silentEvictions] == 0)
            // Each address of 127.0.0.0/8 counts separately.
            let other = try await newcomer(of: server, after: self.time, from: "127.0.0.2")
            try await self.end(of: first)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
            withExtendedLifetime(other) {}
        }
    }

    @Test func newConnectionsOfAnAddressHaveARate() async throws {
        var configuration = SocketServer.Configuration()
        configuration.limits.connectionRatePerAddress = RequestRate(perSecond: 0.001, burst: 2)
        try await withServer(configuration, makeRouter()) { server in
            for _ in 0..<2 {
                let client = try await HostileClient.connect(to: server.address)
                #expect(try await client.isServed())
                await client.perform(.close)
            }
            let third = try await HostileClient.connect(to: server.address)
            #expect(try await third.isServed() == false)
            #expect(server.statistics[.connectionsRefusedByRate] == 1)
            let other = try await HostileClient.connect(to: server.address, from: "127.0.0.2")
            #expect(try await other.isServed())
        }
    }
    #endif

    @Test func aSilentWebSocketGoesAsWell() async throws {
        var configuration = self.short(1)
        configuration.listeners[0].webSocket = WebSocketListening(path: nil)
        let prepare: (SocketServer) throws -> Void = {
            try $0.webSocket("/chat") { message, peer in peer.post(message) }
        }
        try await withServer(configuration, makeRouter(), prepare) { server in
            let address = try #require(server.address)
            let target = try Endpoint(url: "ws://\(address.host):\(address.port)/chat")
            let silent = try await HostileClient(to: target)
            await silent.perform(.text("hello"))
            #expect(try await silent.message().text == "hello")
            await self.time.advance(by: .seconds(20))
            let second = try await HostileClient(to: target)
            await second.perform(.text("hello"))
            #expect(try await second.message().text == "hello")
            #expect(try await silent.message().closeCode == 1_001)
            try await eventually("the count") { server.statistics[.silentEvictions] == 1 }
        }
    }

    @Test func aTLSHandshakeThatDoesNotGetOnGoesAsWell() async throws {
        var configuration = self.short(1)
        configuration.listeners[0].tls = ServerTLS(identity: try TestCertificate(.server).identity)
        configuration.listeners[0].tls?.handshakeTimeout = .seconds(600)
        // Each event loop accepts separately: with two, the newcomer may be accepted first.
        configuration.eventLoops = 1
        try await withServer(configuration, makeRouter()) { server in
            let silent = try await HostileClient.connect(to: server.address)
            try await eventually("the silent one is accepted") { server.parts?.books.quota.total == 1 }
            var tls = ClientTLS()
            tls.trust = try TestAuthority().trust
            _ = try await newcomer(of: server, after: self.time, tls: tls)
            try await self.end(of: silent)
        }
    }
}
