// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket
import HHSocketMessage
import HHSocketServer
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketCLI

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

extension HostileClient {
    /// Connects a client to a server at this address, and waits until the server has accepted it.
    fileprivate static func accepted(by address: String) async throws -> HostileClient {
        let client = try await HostileClient(to: try #require(Endpoint(address)))
        await client.perform(.ping())
        #expect(try await client.response().type == FrameType.heartbeat)
        return client
    }

    /// Reads the go-away that the server sends as its first frame.
    fileprivate func goAway() async throws -> WireGoAway {
        let frame = try await self.response()
        #expect((frame.type, frame.serial) == (FrameType.goAway, FrameSerial.goAway))
        return try frame.payload.message()
    }
}

/// The options of `serve` for its limits, its listeners and its end.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ServeOptionTests {
    /// Runs `body` with a client that the server has accepted.
    private func withClient(
        _ arguments: [String],
        _ body: (HostileClient, String, Command) async throws -> Void
    ) async throws {
        try await withServe(arguments) { address, server in
            let client = try await HostileClient.accepted(by: address)
            try await body(client, address, server)
            // The server waits for a client that has received a go-away.
            await client.perform(.close)
        }
    }

    // MARK: Listeners

    @Test func furtherListenersAreServedAndAnnouncedInOrder() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("socket")
        let server = try Command([
            "serve", "--port", "0", "--listen", "127.0.0.1:0", "--listen", "unix:\(path)", "--listen", "[::1]:0",
        ])
        let lines = try await server.lines(4)
        let addresses = lines.compactMap { $0.split(separator: " ").last.map(String.init) }
        #expect(lines.allSatisfy { $0.hasPrefix("listening on ") })
        #expect(Set(addresses).count == 4)
        #expect(addresses[2] == "unix:\(path)")
        #expect(addresses[3].hasPrefix("[::1]:"))
        for address in addresses {
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "hello"])
            #expect(outcome.text == "hello", "\(address): \(outcome.errors)")
        }
        server.signal(SIGTERM)
        let outcome = try await server.outcome()
        #expect(outcome.exitCode == 0)
        #expect(outcome.lines == lines)
    }

    @Test func announceFormatIsForEachListener() async throws {
        let server = try Command([
            "serve", "--port", "0", "--listen", "127.0.0.1:0", "--announce", "READY %h", "--until-eof",
        ])
        #expect(try await server.outcome().lines == ["READY 127.0.0.1", "READY 127.0.0.1"])
    }

    @Test func aFurtherListenerThatIsTakenIsAnErrorThatNamesIt() async throws {
        try await withServe { address, _ in
            let outcome = try await Command.run(["serve", "--port", "0", "--listen", address])
            #expect(outcome.exitCode == 1)
            #expect(outcome.output.isEmpty)
            #expect(outcome.errors.hasPrefix("error: bindFailed: "))
            #expect(outcome.errors.contains(address))
        }
    }

    @Test(arguments: [
        ("127.0.0.1:7000", "127.0.0.1", 7000), ("[::1]:0", "::1", 0), ("localhost:0", "localhost", 0),
        ("[::]:10", "::", 10),
    ])
    func listenAddresses(argument: String, host: String, port: Int) throws {
        let listener = try #require(ListenAddress(argument: argument)).listener
        #expect((listener.host, listener.port, listener.unixPath) == (host, port, nil))
    }

    @Test func aSocketsPathMayEndLikeAPort() throws {
        #expect(try #require(ListenAddress(argument: "unix:/tmp/a:0")).listener.unixPath == "/tmp/a:0")
    }

    // MARK: Monitoring

    @Test func metricsAndProbesAreAnswered() async throws {
        try await withServe(["--monitoring", "127.0.0.1:0"]) { address, server in
            let port = try await eventually("the address of the endpoint") {
                server.errors.firstMatch(of: /monitoring on 127\.0\.0\.1:([0-9]+)\n/).map { String($0.output.1) }
            }
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "hello"])
            #expect(outcome.text == "hello")
            func get(_ path: String) async throws -> String {
                let client = try await HostileClient(to: try #require(Endpoint("127.0.0.1:\(port)")))
                await client.perform(.raw(Array("GET \(path) HTTP/1.1\r\nHost: here\r\n\r\n".utf8)))
                try? await client.ended()
                return String(decoding: try await client.receivedBytes, as: UTF8.self)
            }
            #expect(try await get("/readyz").hasSuffix("\r\n\r\nready\n"))
            let answer = #"hhsocket_server_answers_total{status="200",type="1000"} 1"#
            #expect(try await get("/metrics").contains("\n\(answer)\n"))
        }
    }

    @Test(arguments: ["7000", "unix:/tmp/a", "ws://127.0.0.1:1/", "fd:3"])
    func monitoringNeedsAnAddressOfTCP(address: String) async throws {
        let outcome = try await Command.run(["serve", "--port", "0", "--monitoring", address])
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains("HOST:PORT"))
    }

    // MARK: Sockets that listen already

    @Test func descriptorThatDoesNotListenIsAnError() async throws {
        let outcome = try await Command.run(["serve", "--host", "fd:0"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("cannot listen on descriptor 0: it is not a listening socket"))
    }

    @Test(arguments: ["fd:", "fd:x", "fd:-1"])
    func descriptorIsANumber(host: String) async throws {
        let outcome = try await Command.run(["serve", "--host", host])
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.contains("--host fd:NUMBER needs a number"))
    }

    // MARK: Limits

    @Test(arguments: ["--max-connections", "--max-connections-per-address"])
    func oneConnectionTooManyIsAskedToGoAway(option: String) async throws {
        try await self.withClient([option, "1"]) { first, address, _ in
            let second = try await HostileClient(to: try #require(Endpoint(address)))
            #expect(try await second.goAway().reason.contains("too many connections"))
            try await second.ended()
            await first.perform(.request(1000, serial: 50, "still here"))
            #expect(try await first.response().payload == ByteBuffer(string: "still here"))
        }
    }

    @Test func theRateOfNewConnectionsIsBounded() async throws {
        try await withServe(["--connection-rate", "0.001"]) { address, _ in
            let first = try await HostileClient.accepted(by: address)
            let second = try await HostileClient(to: try #require(Endpoint(address)))
            #expect(try await second.goAway().reason.contains("too many new connections"))
            await first.perform(.request(1000, serial: 51, "still here"))
            #expect(try await first.response().payload == ByteBuffer(string: "still here"))
        }
    }

    @Test(arguments: [("--max-in-flight", Status.overloaded), ("--max-in-flight-per-connection", .ok)])
    func oneRequestInFlightTooManyIsRefused(option: String, elsewhere: Status) async throws {
        try await self.withClient([option, "1"]) { client, address, _ in
            await client.perform(.glued(.request(1001, serial: 50, "60000"), .request(1001, serial: 51, "60000")))
            let refused = try await client.response()
            #expect((refused.serial, refused.status) == (51, .overloaded))
            let other = try await HostileClient.accepted(by: address)
            await other.perform(.request(1001, serial: 50, "1"))
            #expect(try await other.response().status == elsewhere)
            await other.perform(.close)
        }
    }

    @Test func requestsBeyondTheRateAreRefused() async throws {
        // One request immediately, the next in a quarter of an hour.
        try await self.withClient(["--rate", "0.001"]) { client, _, _ in
            await client.perform(.requests(1000, serials: 50..<52))
            let answers = try await client.responses(2)
            #expect(answers.map(\.status) == [.ok, .overloaded])
        }
    }

    @Test func requestsOfOneAddressBeyondItsRateAreRefused() async throws {
        try await self.withClient(["--rate-per-address", "0.001"]) { client, address, _ in
            await client.perform(.request(1000, serial: 50, "first"))
            #expect(try await client.response().status == .ok)
            let other = try await HostileClient.accepted(by: address)
            await other.perform(.request(1000, serial: 50, "second"))
            #expect(try await other.response().status == .overloaded)
            await other.perform(.close)
        }
    }

    @Test func handlersThatTakeTooLongAreCancelled() async throws {
        try await self.withClient(["--handler-timeout", "0.2"]) { client, _, _ in
            await client.perform(.request(1001, serial: 50, "60000"))
            let answer = try await client.response()
            #expect((answer.serial, answer.status) == (50, .deadlineExceeded))
        }
    }

    @Test func memoryBoundsPayloads() throws {
        #expect(try LimitOptions.parse([]).limits.maximumBufferedBytes == 1 << 30)
        var limits = try LimitOptions.parse(["--max-memory", "1M"]).limits
        #expect(limits.maximumBufferedBytes == 1 << 20)
        #expect(limits.maximumBufferedBytesPerConnection == 1 << 20)
        #expect(limits.maximumPayloadLength == 256 << 10)
        limits = try LimitOptions.parse(["--max-memory", "8G", "--max-payload", "1G"]).limits
        #expect(limits.maximumBufferedBytes == 8 << 30)
        #expect(limits.maximumBufferedBytesPerConnection == 4 << 30)
        #expect(limits.maximumPayloadLength == 1 << 30)
        limits = try LimitOptions.parse(["--max-payload", "1G"]).limits
        #expect(limits.maximumBufferedBytes == 4 << 30)
    }

    @Test func adaptiveConcurrencyBeginsWithAHundred() async throws {
        let sleep = ByteBuffer(string: "60000")
        try await self.withClient(["--adaptive-concurrency"]) { client, _, _ in
            await client.perform(.requests(1001, serials: 50..<151, sleep))
            let refused = try await client.response()
            #expect((refused.serial, refused.status) == (150, .overloaded))
        }
    }

    @Test func silentClientsAreAskedToGoAwayAndThatIsLoggedOnlyIfAskedFor() async throws {
        for log in [[], ["--log", "info"]] {
            try await self.withClient(["--idle-timeout", "0.2"] + log) { client, _, server in
                #expect(try await client.goAway().reason.contains("nothing has happened"))
                try await client.ended()
                if log.isEmpty {
                    #expect(server.errors == "")
                } else {
                    try await server.complains("a client is closed")
                    #expect(!server.errors.contains("a client has connected"), "that is less than info")
                }
            }
        }
    }

    @Test func payloadsBeyondTheLargestAreRefused() async throws {
        try await self.withClient(["--max-payload", "10"]) { client, _, _ in
            await client.perform(.request(1000, serial: 50, "ten bytes."))
            #expect(try await client.response().status == .ok)
            await client.perform(.request(1000, serial: 51, "ten bytes.+"))
            #expect(try await client.response().status == .illegalLength)
            try await client.ended()
        }
    }

    @Test func theLargestPayloadThatCanBeAskedForFindsRoom() async throws {
        try await withServe(["--max-payload", "1073741824"]) { address, _ in
            let outcome = try await Command.run(["call", address, "--type", "1000", "--body", "x"])
            #expect(outcome.text == "x", "\(outcome.errors)")
        }
    }

    @Test func omittedOptionsHaveTheirDefaults() throws {
        let limits = try LimitOptions.parse([]).limits
        #expect(limits.maximumConnections == nil && limits.maximumConnectionsPerAddress == nil)
        #expect(limits.maximumInFlight == 1 << 20 && limits.maximumInFlightPerConnection == 1_024)
        #expect(limits.requestRate == nil && limits.concurrency == nil)
        #expect(limits.connectionRatePerAddress == ServerLimits().connectionRatePerAddress)
        #expect(try LimitOptions.parse(["--connection-rate", "0"]).limits.connectionRatePerAddress == nil)
        #expect(limits.idleTimeout == .seconds(600))
        #expect(limits.maximumPayloadLength == 16 << 20 && limits.maximumBufferedBytesPerConnection == 64 << 20)
        #expect(try LimitOptions.parse(["--idle-timeout", "0"]).limits.idleTimeout == nil)
        #expect(try ShutdownOptions.parse([]).policy.gracePeriod == .seconds(5))
        #expect(try ShutdownOptions.parse(["--grace", "0"]).policy.gracePeriod == .zero)
    }

    // MARK: Proxies

    @Test func aListedProxyNamesTheClient() async throws {
        let server = try Command([
            "serve", "--port", "0", "--proxy-protocol", "192.0.2.0/24", "--proxy-protocol", "127.0.0.1", "--log",
            "debug",
        ])
        try await withServer(server) { address, server in
            let client = try await HostileClient(to: try #require(Endpoint(address)))
            await client.perform(.raw(Array("PROXY TCP4 198.51.100.3 192.0.2.1 4711 7000\r\n".utf8)))
            await client.perform(.ping())
            #expect(try await client.response().type == FrameType.heartbeat)
            try await server.complains("198.51.100.3")
            await client.perform(.close)
        }
    }

    @Test func aListedProxyOfHTTPNamesTheClient() async throws {
        let arguments = ["--forwarded-for", "127.0.0.0/8", "--listen", "ws://127.0.0.1:0/rpc", "--log", "debug"]
        let server = try Command(["serve", "--port", "0"] + arguments)
        let addresses = try await server.lines(2).compactMap { $0.split(separator: " ").last.map(String.init) }
        let client = try await HostileClient(to: try Endpoint(url: addresses[1]), opensWebSocket: false)
        await client.perform(.opening(headers: ["X-Forwarded-For": "203.0.113.9, 198.51.100.3"]))
        #expect(try await client.opening().status == 101)
        try await server.complains("198.51.100.3")
        await client.perform(.close)
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
    }

    // MARK: Answers and hello

    @Test(arguments: [([], [51, 50]), (["--answers-in-order"], [50, 51])] as [([String], [UInt32])])
    func answersAreSentInOrderIfAskedTo(arguments: [String], serials: [UInt32]) async throws {
        try await self.withClient(arguments) { client, _, _ in
            await client.perform(.glued(.request(1001, serial: 50, "300"), .request(1000, serial: 51)))
            let answers = try await client.responses(2)
            #expect(answers.map(\.serial) == serials)
        }
    }

    @Test func clientsWithoutARequiredHelloAreNotServed() async throws {
        try await withServe(["--require-hello", "--push", "2001:news", "--push-every", "0.05"]) { address, _ in
            let rude = try await Command.run(["call", address, "--type", "1000", "--body", "x", "--repeat", "3"])
            #expect(rude.exitCode == 1)
            #expect(rude.output.isEmpty)
            #expect(rude.errorLines.count == 3)
            #expect(rude.errorLines.allSatisfy { $0.hasPrefix("error: illegalFormat: ") })
            let polite = try await Command.run(["call", address, "--type", "1000", "--body", "x", "--hello"])
            #expect(polite.text == "x", "\(polite.errors)")
            let listener = try await Command.run(["listen", address, "--hello", "--count", "1"])
            #expect(listener.text == "2001 news\n", "\(listener.errors)")
        }
    }

    @Test func logsToStandardErrorIfAskedTo() async throws {
        try await self.withClient(["--log", "debug"]) { _, _, server in
            try await server.complains("a client has connected")
        }
    }

    // MARK: The end

    @Test func clientsAreInformedWhereToGo() async throws {
        let server = try Command([
            "serve", "--port", "0", "--go-away-to", "im2.example.com:7000", "--go-away-to", "[::1]:7001",
        ])
        let address = try #require(try await server.lines().first?.split(separator: " ").last)
        let client = try await HostileClient.accepted(by: String(address))
        server.signal(SIGTERM)
        let notice = try await client.goAway()
        #expect(notice.endpoints == ["im2.example.com:7000", "[::1]:7001"])
        #expect(notice.retryAfter <= 2_000)
        await client.perform(.close)
        #expect(try await server.outcome().exitCode == 0)
    }

    @Test func graceIsAsLongAsAskedFor() async throws {
        // By default it takes five seconds each time. With a shorter grace period it may take that long only on a slow
        // machine.
        for _ in 0..<5 {
            let server = try Command(["serve", "--port", "0", "--grace", "0.5"])
            let address = try #require(try await server.lines().first?.split(separator: " ").last)
            let client = try await HostileClient.accepted(by: String(address))
            await client.perform(.glued(.request(1001, serial: 50, "60000"), .ping()))
            #expect(try await client.response().type == FrameType.heartbeat)
            let start = ContinuousClock.now
            server.signal(SIGTERM)
            #expect(try await server.outcome().exitCode == 0)
            let duration = ContinuousClock.now - start
            #expect(duration >= .seconds(0.45))
            await client.perform(.close)
            if duration < .seconds(4.5) { return }
        }
        Issue.record("the grace is not as short as asked for")
    }

    // MARK: Wrong usage

    @Test(arguments: [
        ["--listen", "nowhere"], ["--listen", "127.0.0.1:65536"], ["--listen", "unix:"], ["--listen", ":0"],
        ["--listen", "::1:0"], ["--max-connections", "0"], ["--max-connections-per-address", "-1"],
        ["--event-loops", "0"], ["--connection-rate", "-1"], ["--connection-rate", "nan"], ["--max-in-flight", "0"],
        ["--max-in-flight-per-connection", "x"], ["--rate", "0"], ["--rate", "nan"],
        ["--rate", "-1"], ["--rate", "1e10"], ["--rate-per-address", "0"], ["--handler-timeout", "0"],
        ["--max-memory", "1023K"], ["--max-memory", "63M", "--max-payload", "16M"], ["--idle-timeout", "-1"],
        ["--idle-timeout", "0.0001"],
        ["--max-payload", "0"], ["--max-payload", "1073741825"], ["--grace", "-1"], ["--grace", "soon"],
        ["--go-away-to", "nowhere"], ["--go-away-to", "unix:/tmp/socket"], ["--go-away-to", "127.0.0.1:0"],
        ["--proxy-protocol", "10.0.0.1/8"], ["--proxy-protocol", "balancer"], ["--forwarded-for", "::/129"],
        ["--log", "loud"], ["--require-hello", "--format", "mars"],
    ])
    func wrongUsageIs64(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: ["serve", "--port", "0"] + arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        // The error names the option.
        #expect(outcome.errors.contains(arguments.contains("mars") ? "mars" : arguments[0]), "\(outcome.errors)")
    }
}
