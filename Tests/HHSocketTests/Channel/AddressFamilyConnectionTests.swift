// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

/// Address families, over real sockets; their rules are tested in virtual time.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AddressFamilyConnectionTests {
    private func configuration(_ servers: [Endpoint], _ families: AddressFamilies) -> SocketConfiguration {
        var configuration = SocketConfiguration(servers: servers)
        configuration.addressFamilies = families
        configuration.backoff.base = .milliseconds(10)
        configuration.networkMonitor = nil
        return configuration
    }

    /// Returns the server of the first connection.
    private func connected(_ configuration: SocketConfiguration) async throws -> Endpoint {
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        let event = try await first(of: events, "a connection") { if case .connected = $0 { true } else { false } }
        socket.disconnect()
        guard case .connected(let endpoint) = event else { throw Unexpected(description: "\(event)") }
        return endpoint
    }

    /// Returns the error of the first attempt.
    private func failure(_ configuration: SocketConfiguration) async throws -> SocketError {
        let socket = Socket(configuration: configuration)
        let events = socket.events
        socket.connect()
        let event = try await first(of: events, "a failure") { if case .connectFailed = $0 { true } else { false } }
        socket.disconnect()
        guard case .connectFailed(let error) = event else { throw Unexpected(description: "\(event)") }
        return error
    }

    /// Uses a spelling that only the system's resolver reads, with no other address.
    @Test(arguments: [AddressFamilies.any, .preferIPv4, .preferIPv6, .onlyIPv4])
    func nameIsReachedByTheFamilyThatItHas(families: AddressFamilies) async throws {
        let port = try await SilentPort(host: "127.0.0.1")
        let name = port.endpoint.asIfElsewhere
        #expect(try await self.connected(self.configuration([name], families)) == name)
        withExtendedLifetime(port) {}
    }

    @Test func nameWithoutAnAddressOfTheOnlyFamilySaysSo() async throws {
        let port = try await SilentPort(host: "127.0.0.1")
        let error = try await self.failure(self.configuration([port.endpoint.asIfElsewhere], .onlyIPv6))
        #expect(error.code == .hostNotFound)
        #expect(error.message.contains("127.1 has no IPv6 address ("), "\(error.message)")
        #expect(error.message.contains("SocketConfiguration.addressFamilies is onlyIPv6"), "\(error.message)")
        withExtendedLifetime(port) {}
    }

    @Test(
        .enabled(if: IPv6Loopback.whyNot == nil, Comment(rawValue: IPv6Loopback.whyNot ?? "")),
        arguments: [
            (AddressFamilies.preferIPv4, "127.0.0.1"), (.onlyIPv4, "127.0.0.1"), (.preferIPv6, "::1"),
            (.onlyIPv6, "::1"),
        ],
        [false, true]
    )
    func serversThatAreListedOrFoundAreTriedByFamily(families: (AddressFamilies, String), isFound: Bool) async throws {
        let (four, six) = (try await SilentPort(host: "127.0.0.1"), try await SilentPort(host: IPv6Loopback.host))
        // The unwanted one comes first.
        let ports = families.1 == four.endpoint.host ? [six.endpoint, four.endpoint] : [four.endpoint, six.endpoint]
        var configuration = self.configuration(isFound ? [] : ports, families.0)
        if isFound { configuration.resolver = ServerResolver { ports } }
        #expect(try await self.connected(configuration) == ports[1])
        withExtendedLifetime((four, six)) {}
    }

    @Test(.enabled(if: IPv6Loopback.whyNot == nil, Comment(rawValue: IPv6Loopback.whyNot ?? "")))
    func addressOfIPv6IsReachedUnlessItIsOff() async throws {
        let port = try await SilentPort(host: IPv6Loopback.host)
        for families in [AddressFamilies.any, .preferIPv4, .preferIPv6, .onlyIPv6] {
            #expect(try await self.connected(self.configuration([port.endpoint], families)) == port.endpoint)
        }
        let error = try await self.failure(self.configuration([port.endpoint], .onlyIPv4))
        #expect(error.code == .invalidArgument)
        #expect(error.endpoint == port.endpoint)
        withExtendedLifetime(port) {}
    }

    @Test func redirectToAnAddressOfAFamilyThatIsOffIsNotFollowed() async throws {
        let server = try await MockWebSocketServer()
        server.onOpening(.redirect(to: "ws://[::1]:7000/elsewhere", status: 307))
        let error = try await self.failure(self.configuration([server.endpoint], .onlyIPv4))
        #expect(error.code == .invalidArgument)
        #expect(error.message.hasPrefix("cannot connect to [::1]:7000: this is an IPv6 address"), "\(error.message)")
        #expect(error.endpoint == server.endpoint)
    }

    @Test func redirectToANameIsFollowedByTheOnlyFamily() async throws {
        let target = try await MockWebSocketServer()
        let server = try await MockWebSocketServer()
        server.onOpening(.redirect(to: "ws://127.1:\(target.endpoint.port)/", status: 307))
        var configuration = WebSocketLink.Configuration(socket: self.configuration([server.endpoint], .onlyIPv4))
        configuration.compression = nil
        let link = WebSocketLink(configuration: configuration)
        link.connect()
        #expect(try await target.opening(0).header("Host") == "127.1:\(target.endpoint.port)")
        link.disconnect()
    }
}
