// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import HHSocket

/// The dialer with the addresses of a name, in virtual time.
@Suite struct DialerAddressTests {
    private static let both = ["2001:db8::1", "192.0.2.1"]

    /// A network whose events the test determines.
    private final class Network: @unchecked Sendable {
        // Proof of Sendable: a test runs on one thread.
        final class Connection: SimulatedRemote {
            let host: String
            let promise: EventLoopPromise<any Channel>
            private(set) var channel: SimulatedChannel!

            init(_ host: String, _ loop: EmbeddedEventLoop) {
                self.host = host
                self.promise = loop.makePromise()
                self.channel = SimulatedChannel(loop, self)
            }

            var room: Int { 0 }
            var breaksOnWrite: Bool { false }
            func clientWrote(_ bytes: ByteBuffer) {}
            func kernelTook(_ bytes: ByteBuffer) {}
            func clientEndedOutput() {}
            func clientClosed() { self.promise.fail(ChannelError.alreadyClosed) }
            func takeRest() -> ByteBuffer? { nil }
        }

        let loop = EmbeddedEventLoop()
        let answer: EventLoopPromise<[String]>
        /// The names that were looked up.
        private(set) var lookedUp: [String] = []
        private(set) var connections: [Connection] = []
        private var dialer: Dialer!
        private(set) var results: [Result<any MadeLink, AttemptFailure>] = []
        /// The hosts whose channels were open when one of them became the link's.
        private(set) var openAtTheEnd: [String]?

        init(
            _ addresses: [String]? = nil,
            _ change: (inout SocketConfiguration) -> Void
        ) {
            let loop = self.loop
            self.answer = loop.makePromise()
            if let addresses { self.answer.succeed(addresses) }
            var configuration = SocketConfiguration(servers: [])
            change(&configuration)
            let world = DriverWorld(
                thread: LoopThread(isCurrent: { true }, wake: { loop.execute($0) }, now: { loop.now }),
                makeBootstrap: { [unowned self] in
                    SimulatedBootstrap { host, _, initializer in self.connect(host, initializer) }
                },
                lookUp: { [unowned self] host, families in
                    self.lookedUp.append("\(host), \(families)")
                    return self.answer.futureResult
                },
                random: { 0 }
            )
            self.dialer = Dialer(
                eventLoop: loop,
                configuration: configuration,
                refusal: nil,
                maker: NoLinks(),
                world: world
            )
        }

        // The loop retains scheduled work, which retains the loop.
        deinit { self.loop.advanceTime(by: .hours(48)) }

        private func connect(
            _ host: String,
            _ initialize: SimulatedBootstrap.Initializer
        ) -> EventLoopFuture<any Channel> {
            let connection = Connection(host, self.loop)
            self.connections.append(connection)
            let promise = connection.promise
            initialize(connection.channel).whenFailure { promise.fail($0) }
            return connection.promise.futureResult
        }

        var hosts: [String] { self.connections.map(\.host) }
        /// The hosts whose channels are open.
        var openHosts: [String] { self.connections.filter { $0.channel.isOpen }.map(\.host) }

        func dial(_ endpoint: Endpoint = Endpoint(host: "im.example", port: 7_000)) {
            self.dialer.dial(
                ConnectionID(number: 1),
                endpoint,
                makeLink: { (_: OpeningAgreement?) throws(SocketError) -> any MadeLink in
                    self.openAtTheEnd = self.openHosts
                    // A link would begin here, which this test does not have.
                    throw SocketError(.noData, message: "won")
                },
                completion: { self.results.append($0) }
            )
            self.loop.run()
        }

        func abandon() {
            _ = self.dialer.abandon(ConnectionID(number: 1))
            self.loop.run()
        }

        func isFinished() -> Bool {
            var isFinished = false
            self.dialer.whenFinished().assumeIsolated().whenSuccess { isFinished = true }
            self.loop.run()
            return isFinished
        }

        func accept(_ index: Int) {
            let connection = self.connections[index]
            connection.promise.succeed(connection.channel)
            self.loop.run()
        }

        func fail(_ index: Int, _ code: CInt) {
            self.connections[index].promise.fail(IOError(errnoCode: code, reason: "connect"))
            self.loop.run()
        }

        func pass(_ milliseconds: Int64) {
            self.loop.advanceTime(by: .milliseconds(milliseconds))
        }

        /// The error of an attempt that has ended once.
        func error() throws -> SocketError {
            try #require(self.results.count == 1)
            guard case .failure(let failure) = self.results[0] else { throw Unexpected(description: "no failure") }
            return failure.error
        }
    }

    private final class NoLinks: LinkMaker {
        var linksMayOverlap: Bool { true }
        private let error = SocketError(.invalidArgument, message: "there are no links")

        func makeLink(
            _ id: ConnectionID,
            to endpoint: Endpoint,
            agreement: OpeningAgreement?,
            on loop: SocketLoop,
            for host: any LinkHost
        ) throws(SocketError) -> any MadeLink { throw self.error }
    }

    @Test func systemsOrderBeginsWithItsFirstFamilyAndTheNameIsLookedUpHere() throws {
        let network = Network(["192.0.2.1", "192.0.2.2", "2001:db8::1"]) { _ in }
        network.dial()
        #expect(network.lookedUp == ["im.example, any"])
        network.pass(500)
        #expect(network.hosts == ["192.0.2.1", "2001:db8::1", "192.0.2.2"])
        network.accept(0)
        #expect(try network.error().message == "won")
    }

    @Test func nameThatIsNotResolvedInTimeSaysSoAndIsNoFaultOfTheServer() throws {
        let network = Network { $0.connectTimeout = .seconds(10) }
        network.dial()
        network.pass(9_999)
        #expect(network.results.isEmpty)
        network.pass(1)
        let error = try network.error()
        guard case .failure(let failure) = network.results[0] else { return #expect(Bool(false)) }
        #expect(failure.blame == .network)
        #expect(error.code == .hostNotFound)
        #expect(
            error.message == """
                cannot connect to im.example:7000: the name im.example could not be resolved within 10.0 seconds; \
                check the DNS and the network
                """
        )
        // The lookup cannot be interrupted, and the thread does not wait for its end.
        #expect(network.isFinished())
        network.answer.succeed(Self.both)
        network.loop.run()
        #expect(network.hosts == [])

        var servers = Machine(servers: [serverA, serverB], generator: SeededGenerator(seed: 1))
        let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        #expect(servers.connect(now: start).deeds == ["being made", "open 1 a:1"])
        #expect(
            servers.connectFailed(ConnectionID(number: 1), because: error, blame: .network, now: start).deeds
                == ["open 2 b:2"]
        )
        _ = servers.connected(ConnectionID(number: 2), now: start)
        // It stays the first of the list.
        #expect(servers.servers.round(now: start, using: &servers.generator) == [serverA, serverB])
    }

    @Test(arguments: [
        (AddressFamilies.preferIPv4, ["192.0.2.1", "2001:db8::1"]), (.preferIPv6, ["2001:db8::1", "192.0.2.1"]),
    ])
    func preferredFamilyStartsAndTheOtherFollowsAfterTheDelay(families: AddressFamilies, order: [String]) throws {
        let network = Network(Self.both) { $0.addressFamilies = families }
        network.dial()
        #expect(network.lookedUp == ["im.example, \(families)"])
        #expect(network.hosts == [order[0]])
        network.pass(249)
        #expect(network.hosts == [order[0]])
        network.pass(1)
        #expect(network.hosts == order)
        // The second one is quicker, so the first is no longer needed.
        network.accept(1)
        #expect(network.openAtTheEnd == [order[1]])
        #expect(try network.error().message == "won")
        #expect(network.isFinished())
    }

    @Test func connectionsThatComeTooLateAreClosed() throws {
        let network = Network(Self.both) { $0.addressFamilies = .preferIPv4 }
        network.dial()
        network.pass(250)
        // Both succeed before the loop has run.
        for connection in network.connections { connection.promise.succeed(connection.channel) }
        network.loop.run()
        #expect(network.openAtTheEnd == ["192.0.2.1"])
        #expect(network.openHosts == [])
        #expect(try network.error().message == "won")
    }

    @Test func familyThatFailsHandsOverAtOnceAndTheMostInformativeErrorIsReported() throws {
        let network = Network(Self.both) { $0.addressFamilies = .preferIPv6 }
        network.dial()
        network.fail(0, ECONNREFUSED)
        #expect(network.hosts == ["2001:db8::1", "192.0.2.1"])
        network.fail(1, ENETUNREACH)
        let error = try network.error()
        #expect(error.code == .connectionRefused)
        #expect(error.message.hasPrefix("cannot connect to im.example:7000: connection refused"), "\(error.message)")
        #expect(network.isFinished())
    }

    @Test(
        arguments: [
            ("wss://a.example/elsewhere", true), ("wss://b.example/", false), ("wss://a.example:444/", false),
        ]
    )
    func certificateIsShownToOneOriginOnly(location: String, isShown: Bool) throws {
        let server = try Endpoint(url: "wss://a.example/")
        var configuration = SocketConfiguration(servers: [server])
        var tls = ClientTLS()
        tls.identity = TLSIdentity(certificatePEM: "", keyPEM: "")
        configuration.tls = tls
        let dialer = Dialer(
            eventLoop: EmbeddedEventLoop(),
            configuration: configuration,
            refusal: nil,
            maker: NoLinks()
        )
        var redirects = RedirectRules(from: try #require(server.webSocketTarget))
        #expect(try dialer.plan(server, to: server, redirects: redirects).tls?.identity != nil)
        let target = try Endpoint(url: location)
        try redirects.follow(to: try #require(target.webSocketTarget))
        #expect(try (dialer.plan(server, to: target, redirects: redirects).tls?.identity != nil) == isShown)
        // Not even when it comes back: the other server has chosen the path.
        try redirects.follow(to: try #require(server.webSocketTarget))
        #expect(try (dialer.plan(server, to: server, redirects: redirects).tls?.identity != nil) == isShown)
    }

    @Test(arguments: [AddressFamilies.onlyIPv4, .onlyIPv6]) func familyThatIsOffIsNeverTried(families: AddressFamilies)
        throws
    {
        let network = Network(Self.both) { $0.addressFamilies = families }
        network.dial()
        network.pass(5_000)
        #expect(network.hosts == [families == .onlyIPv4 ? "192.0.2.1" : "2001:db8::1"])
        network.fail(0, EHOSTUNREACH)
        #expect(network.connections.count == 1)
        #expect(try network.error().code == .networkUnreachable)
    }

    @Test func nameWithoutAnAddressOfTheOnlyFamilySaysSo() throws {
        let network = Network(["192.0.2.1"]) { $0.addressFamilies = .onlyIPv6 }
        network.dial()
        #expect(network.hosts == [])
        let error = try network.error()
        #expect(error.code == .hostNotFound)
        #expect(
            error.message == """
                cannot connect to im.example:7000: im.example has no IPv6 address (no address found), and \
                SocketConfiguration.addressFamilies is onlyIPv6; check its spelling and the DNS, or allow IPv4 there
                """
        )
    }

    @Test func addressOfAFamilyThatIsOffFailsBeforeAnythingIsDialed() throws {
        let network = Network { $0.addressFamilies = .onlyIPv4 }
        network.dial(Endpoint(host: "2001:db8::1", port: 7_000))
        #expect(network.hosts == [] && network.lookedUp == [])
        let error = try network.error()
        #expect(error.code == .invalidArgument)
        #expect(error.endpoint == Endpoint(host: "2001:db8::1", port: 7_000))
        network.answer.succeed([])
    }

    @Test func behindAProxyTheFamiliesAreThoseOfItsName() throws {
        let network = Network(Self.both) {
            $0.addressFamilies = .preferIPv4
            $0.proxy = .http(host: "proxy.example")
        }
        network.dial(Endpoint(host: "2001:db8::7", port: 7_000))
        #expect(network.lookedUp == ["proxy.example, preferIPv4"])
        network.fail(0, ECONNREFUSED)
        network.fail(1, ECONNREFUSED)
        #expect(network.hosts == ["192.0.2.1", "2001:db8::1"])
        #expect(
            try network.error().message.hasPrefix(
                "cannot connect to [2001:db8::7]:7000 through http://proxy.example:1080: the proxy: connection refused"
            )
        )
    }

    @Test func timeOfTheAttemptIsThatOfTheWholeRace() throws {
        let network = Network(Self.both) {
            $0.addressFamilies = .preferIPv4
            $0.connectTimeout = .seconds(1)
        }
        network.dial()
        network.pass(999)
        #expect(network.openHosts == ["192.0.2.1", "2001:db8::1"])
        network.pass(1)
        #expect(try network.error().code == .connectTimeout)
        #expect(network.openHosts == [])
        #expect(network.isFinished())
    }

    @Test func attemptThatIsGivenUpTriesNoFurtherAddress() throws {
        let network = Network(Self.both) { $0.addressFamilies = .preferIPv4 }
        network.dial()
        network.abandon()
        network.pass(5_000)
        #expect(network.hosts == ["192.0.2.1"])
        #expect(network.openHosts == [])
        #expect(network.results.isEmpty)
        #expect(network.isFinished())
    }

    @Test func attemptThatIsGivenUpDuringTheLookupTriesNone() throws {
        let network = Network { $0.addressFamilies = .onlyIPv4 }
        network.dial()
        network.abandon()
        #expect(network.isFinished())
        network.answer.succeed(Self.both)
        network.loop.run()
        #expect(network.hosts == [])
        #expect(network.results.isEmpty)
    }
}
