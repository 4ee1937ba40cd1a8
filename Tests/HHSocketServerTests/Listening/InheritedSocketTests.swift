// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketServer

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct InheritedSocketTests {
    /// Opens a socket that listens on 127.0.0.1, which the caller closes.
    private func listeningSocket() throws -> CInt {
        #if canImport(Glibc)
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        #else
        let descriptor = socket(AF_INET, SOCK_STREAM, 0)
        #endif
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let status = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(status == 0 && listen(descriptor, 16) == 0)
        return descriptor
    }

    private func router() -> Router {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        return router
    }

    /// systemd keeps the socket, and passes it to the next process again.
    @Test func aSocketServesOneServerAfterTheOther() async throws {
        let kept = try self.listeningSocket()
        defer { close(kept) }
        let address = try InheritedSocket(kept).address
        #expect(address.host == "127.0.0.1" && address.port > 0)
        for _ in 0..<2 {
            let configuration = SocketServer.Configuration(listeners: [ServerListener(descriptor: dup(kept))])
            // Clients wait until there is a server.
            let client = try await HostileClient.connect(to: address)
            await client.perform(.request(101, serial: 50))
            try await withServer(configuration, self.router()) { server in
                #expect(server.addresses == [address])
                let answer = try await client.response()
                #expect(answer.serial == 50)
            }
            await client.perform(.close)
        }
    }

    @Test func socketThatDoesNotListenIsRefused() async throws {
        let pipe = try #require(Self.pipeEnd())
        defer { close(pipe) }
        for descriptor in [pipe, 1_000_000] {
            let configuration = SocketServer.Configuration(listeners: [ServerListener(descriptor: descriptor)])
            let server = SocketServer(configuration: configuration, router: self.router())
            let error = await #expect(throws: SocketError.self) { try await server.start() }
            #expect(error?.code == .bindFailed)
            #expect(error?.message.contains("descriptor \(descriptor)") == true)
        }
    }

    private static func pipeEnd() -> CInt? {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { return nil }
        close(ends[1])
        return ends[0]
    }

    @Test(arguments: [
        ([:], 0), (["LISTEN_FDS": "2"], 0), (["LISTEN_FDS": "2", "LISTEN_PID": "1"], 0),
        (["LISTEN_FDS": "2", "LISTEN_PID": "own"], 2), (["LISTEN_FDS": "0", "LISTEN_PID": "own"], 0),
        (["LISTEN_FDS": "-1", "LISTEN_PID": "own"], 0), (["LISTEN_FDS": "9999999", "LISTEN_PID": "own"], 0),
        (["LISTEN_FDS": "many", "LISTEN_PID": "own"], 0),
    ])
    func descriptorsAreThoseOfTheEnvironment(environment: [String: String], count: Int) {
        let found = InheritedSocket.descriptors { name in
            environment[name].map { $0 == "own" ? "\(getpid())" : $0 }
        }
        #expect(found == (0..<count).map { CInt(3 + $0) })
    }
}
