// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

private let echo: UInt32 = 100

private func makeRouter() -> Router {
    var router = Router()
    router.handleSynchronously(echo) { request, _ in request.body }
    return router
}

extension HostileClient {
    fileprivate func expectEcho() async throws {
        await self.perform(.request(echo, serial: 50, "x"))
        #expect(try await self.response().payload == ByteBuffer(string: "x"))
    }
}

private func trusting() throws -> ClientTLS {
    var tls = ClientTLS()
    tls.trust = try TestAuthority().trust
    return tls
}

private func withTLS(_ change: (inout SocketServer.Configuration) -> Void = { _ in }) throws
    -> SocketServer.Configuration
{
    var configuration = SocketServer.Configuration()
    configuration.listeners[0].tls = ServerTLS(identity: try TestCertificate(.server).identity)
    configuration.limits.maximumConnectionsPerAddress = .max
    configuration.limits.connectionRatePerAddress = nil
    change(&configuration)
    return configuration
}

/// Connects `count` clients at about the same time, and returns them once each is served.
private func connect(_ count: Int, to server: SocketServer, tls: ClientTLS? = nil) async throws -> [HostileClient] {
    try await withThrowingTaskGroup(of: HostileClient.self) { group in
        for _ in 0..<count {
            group.addTask {
                let client = try await HostileClient.connect(to: server.address, tls: tls)
                try await client.expectEcho()
                return client
            }
        }
        return try await group.reduce(into: []) { $0.append($1) }
    }
}

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AcceptingTests {
    @Test(arguments: [1, 3])
    func connectionsAreSpreadEvenlyOverEventLoops(listeningSockets: Int) async throws {
        var configuration = SocketServer.Configuration()
        configuration.eventLoops = 2
        configuration.listeners[0].listeningSockets = listeningSockets
        configuration.limits.maximumConnectionsPerAddress = .max
        configuration.limits.connectionRatePerAddress = nil
        try await withServer(configuration, makeRouter()) { server in
            var clients: [HostileClient] = []
            for _ in 0..<10 { clients += try await connect(100, to: server) }
            let counts = server.connectionsByLoop
            #expect(counts.count == 2 && counts.reduce(0, +) == 1_000 && server.connectionCount == 1_000)
            // The listening socket takes an event loop of the group, too.
            #expect(abs(counts[0] - counts[1]) <= 2, "\(counts)")
            withExtendedLifetime(clients) {}
        }
    }

    @Test func severalSocketsMayListenAtAPortThatTheSystemChooses() async throws {
        var configuration = SocketServer.Configuration()
        configuration.listeners[0].listeningSockets = 4
        configuration.listeners[0].backlog = 16
        try await withServer(configuration, makeRouter()) { server in
            #expect(server.addresses.count == 1)
            let port = try #require(server.address).port
            for _ in 0..<50 { try await HostileClient.connect(to: server.address).expectEcho() }
            #expect(server.statistics[.connectionsAccepted] == 50)
            // A single socket still finds the port in use.
            let other = SocketServer(configuration: .init(port: port), router: makeRouter())
            let error = await #expect(throws: SocketError.self) { try await other.start() }
            #expect(error?.code == .bindFailed)
        }
    }

    @Test(arguments: [(0, 1), (1, 0)])
    func aListenerNeedsSocketsAndABacklog(sockets: Int, backlog: Int) async throws {
        var configuration = SocketServer.Configuration()
        configuration.listeners[0].listeningSockets = sockets
        configuration.listeners[0].backlog = backlog
        let server = SocketServer(configuration: configuration, router: makeRouter())
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
    }

    // MARK: TLS

    @Test func aStormOfTLSClientsIsServedWithoutWastedHandshakes() async throws {
        // Time stands still: no client is late, however many share the processor.
        try await withServer(try withTLS { $0.time = SocketTime(ManualTime()) }, makeRouter()) { server in
            let begun = ContinuousClock.now
            // Under a sanitizer, with less effort, a handshake takes ten times as long.
            let count = effort < 1 ? 100 : 400
            let clients = try await connect(count, to: server, tls: try trusting())
            print("\(count) TLS clients: \(ContinuousClock.now - begun)")
            #expect(server.statistics[.connectionsAccepted] == count)
            #expect(server.statistics[.tlsFailures] == 0)
            withExtendedLifetime(clients) {}
        }
    }

    @Test func silentClientsDoNotDelayOtherHandshakes() async throws {
        try await withServer(try withTLS { $0.limits.maximumHandshakes = 1 }, makeRouter()) { server in
            var silent: [HostileClient] = []
            for _ in 0..<8 { silent.append(try await HostileClient.connect(to: server.address)) }
            for _ in 0..<4 { try await HostileClient.connect(to: server.address, tls: try trusting()).expectEcho() }
            #expect(server.statistics[.tlsFailures] == 0)
            for client in silent { await client.perform(.reset) }
        }
    }

    /// A waiting client has not been read, and a client that has gone is skipped.
    @Test func aClientThatGivesUpInLineCostsNoHandshake() async throws {
        let configuration = try withTLS {
            $0.limits.maximumHandshakes = 1
            $0.eventLoops = 1
        }
        try await withServer(configuration, makeRouter()) { server in
            // If no client left, each turn would take ten seconds. On a slow machine a turn may take that long, but not
            // every turn.
            for _ in 0..<5 {
                var clients: [HostileClient] = []
                for _ in 0..<41 { clients.append(try await HostileClient.connect(to: server.address)) }
                // Those whose turn comes before the server sees that they have left fail, which takes no time.
                for client in clients.dropFirst() { await client.perform(.close) }
                let begun = ContinuousClock.now
                try await HostileClient.connect(to: server.address, tls: try trusting()).expectEcho()
                await clients[0].perform(.reset)
                if ContinuousClock.now - begun < .seconds(9) { return }
            }
            Issue.record("clients that have left are waited for")
        }
    }

    @Test func beyondALimitFewAreNotifiedOverTLSAndTheOthersAreClosedBefore() async throws {
        let configuration = try withTLS {
            $0.limits.maximumConnections = 1
            $0.limits.minimumSilence = nil
            $0.listeners[0].tls?.handshakeTimeout = .seconds(600)
        }
        try await withServer(configuration, makeRouter()) { server in
            let first = try await HostileClient.connect(to: server.address, tls: try trusting())
            try await first.expectEcho()
            let notified = try await HostileClient.connect(to: server.address, tls: try trusting())
            #expect(try await notified.response().type == FrameType.goAway)
            await notified.perform(.reset)
            // None of them begins a handshake.
            let ended = Watched(0)
            let few = ConnectionQuota.maximumRefusalsOverTLS
            var clients: [HostileClient] = []
            for _ in 0..<(few + 20) { clients.append(try await HostileClient.connect(to: server.address)) }
            try await eventually("the refusals") { server.statistics[.connectionsRefused] == few + 21 }
            let waiting = clients.map { client in
                Task {
                    if (try? await client.ended()) != nil { ended.withLockedValue { $0 += 1 } }
                }
            }
            try await eventually("the end of most") { ended.withLockedValue { $0 } >= 20 }
            try await first.expectEchoAgain()
            for client in clients { await client.perform(.reset) }
            for task in waiting { task.cancel() }
        }
    }

    // MARK: Descriptors

    #if os(Linux)
    @Test func theSoftLimitOfDescriptorsIsRaised() async throws {
        await #expect(processExitsWith: .success) {
            var limits = rlimit()
            setDescriptors(&limits, soft: 512, hard: 2_048)
            let server = SocketServer(configuration: .init(), router: makeRouter())
            try await server.start()
            #expect(DescriptorLimit.raise(wanted: 0) == 2_048)
            await server.shutdown(gracePeriod: .zero)
        }
    }

    /// Other code of the process needs some, and Dispatch ends it if there is none: so accepting stops before.
    @Test func whenFewFileDescriptorsAreLeftTheMostSilentGo() async throws {
        await #expect(processExitsWith: .success) {
            var limits = rlimit()
            setDescriptors(&limits, soft: 2_048, hard: 2_048)
            let server = SocketServer(
                configuration: .limited {
                    $0.maximumConnections = .max
                    $0.minimumSilence = .milliseconds(200)
                },
                router: makeRouter()
            )
            try await server.start()
            try whileThereAreFewDescriptors(server)
            await server.shutdown(gracePeriod: .zero)
        }
    }
    #endif
}

extension HostileClient {
    fileprivate func expectEchoAgain() async throws {
        await self.perform(.request(echo, serial: 51, "x"))
        #expect(try await self.response().payload == ByteBuffer(string: "x"))
    }
}

#if os(Linux)
private func setDescriptors(_ limits: inout rlimit, soft: Int, hard: Int) {
    limits.rlim_cur = rlim_t(soft)
    limits.rlim_max = rlim_t(hard)
    #if canImport(Musl)
    setrlimit(RLIMIT_NOFILE, &limits)
    #else
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limits)
    #endif
}

private func whileThereAreFewDescriptors(_ server: SocketServer) throws {
    let port = try #require(server.address).port
    let request: [UInt8] = Array(Frame(type: echo, serial: 50, payload: ByteBuffer(string: "x")).bytes(.request))
    let answer = Array(Frame(type: echo, serial: 50, payload: ByteBuffer(string: "x")).bytes(.response))
    var silent: [BlockingClient] = []
    for _ in 0..<300 {
        let client = try BlockingClient(port: port)
        try client.send(request)
        #expect(try client.receive(answer.count) == answer)
        silent.append(client)
    }
    // So many that one more is beyond the margin.
    let margin = DescriptorLimit.margin(of: 2_048)
    var taken: [CInt] = []
    while let free = DescriptorLimit.free, free > margin { taken.append(dup(0)) }
    #expect(server.statistics[.acceptFailures] == 0 && !taken.contains(-1))
    let start = ContinuousClock.now
    let newcomer = try BlockingClient(port: port)
    try newcomer.send(request)
    #expect(try newcomer.receive(answer.count) == answer)
    while server.statistics[.silentEvictions] == 0, start.duration(to: .now) < patience { usleep(2_000) }
    #expect(server.statistics[.silentEvictions] > 0)
    #expect(server.statistics[.acceptFailures] > 0)
    // The spare descriptors were given back before the last was taken.
    #expect(try #require(DescriptorLimit.free) > margin)
    for descriptor in taken { close(descriptor) }
    withExtendedLifetime(silent) {}
}

extension Frame {
    fileprivate func bytes(_ direction: FrameDirection) -> ByteBufferView {
        var bytes = ByteBuffer()
        FrameEncoder(direction: direction).encode(self, into: &bytes)
        return bytes.readableBytesView
    }
}
#endif
