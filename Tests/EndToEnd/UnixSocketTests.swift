// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOPosix
import TestSupport
import Testing

/// Client and server over Unix domain sockets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct UnixSocketTests {
    private func server(at path: String, tls: ServerTLS? = nil) async throws -> SocketServer {
        let server = SocketServer(configuration: .init(unixPath: path, tls: tls), router: .echo)
        try await server.start()
        return server
    }

    private func echo(_ client: SocketClient) async throws {
        let body = String(repeating: "over a socket ", count: 100_000)
        #expect(try await client.data(for: SocketRequest(type: 101, body: body)).string == body)
    }

    @Test func callsAreAnsweredAndTheSocketGoesWithItsServer() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("s")
        let server = try await self.server(at: path)
        #expect(server.address == Endpoint(unixPath: path))
        let client = SocketClient.connecting(to: Endpoint(unixPath: path))
        try await self.echo(client)
        #expect("\(client.state)" == "ready, unix:\(path)")
        await client.close()
        await server.shutdown()
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    @Test func serverThatReturnsIsFound() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("s")
        let first = try await self.server(at: path)
        let client = SocketClient.connecting(to: Endpoint(unixPath: path))
        try await self.echo(client)
        await first.shutdown(gracePeriod: .zero)
        let second = try await self.server(at: path)
        try await eventually("a call to the second") {
            (try? await client.data(for: SocketRequest(type: 101, body: "again"))) != nil
        }
        await client.close()
        await second.shutdown(gracePeriod: .zero)
    }

    @Test func socketOfADeadServerIsReplacedAndThatOfALivingOneIsNot() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("s")
        let first = try await self.server(at: path)
        let error = await #expect(throws: SocketError.self) { _ = try await self.server(at: path) }
        #expect(error?.code == .bindFailed)
        #expect(error?.message.contains("unix:\(path)") == true)
        let client = SocketClient.connecting(to: Endpoint(unixPath: path))
        try await self.echo(client)
        await client.close()
        await first.shutdown(gracePeriod: .zero)

        // As a killed server leaves it: the file exists, but no process listens. NIO removes the path that it has
        // bound.
        let dead = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(unixDomainSocketPath: folder.file("other"))
            .get()
        try FileManager.default.moveItem(atPath: folder.file("other"), toPath: path)
        try await dead.close()
        #expect(FileManager.default.fileExists(atPath: path))
        let second = try await self.server(at: path)
        try await self.echo(SocketClient.connecting(to: Endpoint(unixPath: path)))
        await second.shutdown(gracePeriod: .zero)
    }

    @Test func fileThatIsNoSocketIsLeftAlone() async throws {
        let folder = try TemporaryFolder()
        let path = try folder.write("precious", to: "file")
        let error = await #expect(throws: SocketError.self) { _ = try await self.server(at: path) }
        #expect(error?.code == .bindFailed)
        #expect(try String(contentsOfFile: path, encoding: .utf8) == "precious")
    }

    /// Of a path that is as long as the system takes, and of one byte more.
    @Test func pathThatIsTooLongIsReportedWithTheLimit() async throws {
        let longest = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1
        let folder = try TemporaryFolder()
        let beginning = folder.file("")
        let path = beginning + String(repeating: "x", count: longest - beginning.utf8.count)
        let server = try await self.server(at: path)
        let client = SocketClient.connecting(to: Endpoint(unixPath: path))
        try await self.echo(client)
        await client.close()
        let (other, events) = SocketClient.connectingWithEvents(to: Endpoint(unixPath: path + "x"))
        let error = try await failedAttempt(of: events)
        #expect(error.code == .invalidArgument)
        let reason = "the path has \(longest + 1) bytes, and that of a Unix domain socket may have \(longest)"
        #expect(error.message.hasSuffix(reason), "\(error.message)")
        await other.close()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func missingSocketIsReported() async throws {
        let endpoint = Endpoint(unixPath: "/tmp/no such socket")
        let client = SocketClient.connecting(to: endpoint)
        let event = try await first(of: client.events, "the failure") {
            if case .connectFailed = $0 { true } else { false }
        }
        guard case .connectFailed(let error) = event else { return }
        #expect(error.code == .connectionRefused)
        #expect(error.endpoint == endpoint)
        #expect(error.message.contains("there is no such socket"))
    }

    @Test func tooLongPathIsReported() async throws {
        let endpoint = Endpoint(unixPath: "/tmp/" + String(repeating: "long", count: 100))
        let client = SocketClient.connecting(to: endpoint)
        _ = try await first(of: client.events, "the failure") { if case .connectFailed = $0 { true } else { false } }
        let error = await #expect(throws: SocketError.self) {
            _ = try await self.server(at: endpoint.unixPath ?? "")
        }
        #expect(error?.code == .bindFailed)
    }

    @Test func tlsNeedsANameToVerify() async throws {
        let folder = try TemporaryFolder()
        let path = folder.file("s")
        let authority = try TestAuthority()
        let server = try await self.server(at: path, tls: ServerTLS(identity: try TestCertificate(.server).identity))
        var tls = ClientTLS()
        tls.trust = authority.trust
        let nameless = SocketClient.connecting(to: Endpoint(unixPath: path)) { [tls] in $0.socket.tls = tls }
        let event = try await first(of: nameless.events, "the failure") {
            if case .connectFailed = $0 { true } else { false }
        }
        guard case .connectFailed(let error) = event else { return }
        #expect(error.code == .invalidArgument)
        #expect(error.message.contains("serverName"))
        tls.serverName = "localhost"
        try await self.echo(SocketClient.connecting(to: Endpoint(unixPath: path)) { [tls] in $0.socket.tls = tls })
        await server.shutdown(gracePeriod: .zero)
    }
}
