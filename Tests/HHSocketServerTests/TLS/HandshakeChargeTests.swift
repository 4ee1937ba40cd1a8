// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

@testable import HHSocketServer

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct HandshakeChargeTests {
    private func configuration() throws -> SocketServer.Configuration {
        var configuration = SocketServer.Configuration(tls: ServerTLS(identity: try TestCertificate(.server).identity))
        // Time stands still: no handshake is late.
        configuration.time = SocketTime(ManualTime())
        configuration.limits.maximumHandshakes = 1
        return configuration
    }

    /// Whether this is the charge for a handshake and for the few bytes of it that have arrived.
    private func isHandshake(_ held: Int, _ charge: Int) -> Bool { (charge..<charge + 256).contains(held) }

    /// From the first byte on it costs more than before, and nothing once it is over.
    @Test func aHandshakeIsChargedAsLongAsItLasts() async throws {
        try await withServer(try self.configuration(), Router()) { server in
            let before = server.heldBytes
            let client = try await HostileClient.connect(to: server.address)
            try await eventually("a silent client") { server.heldBytes == before + ConnectionCost.waitingHandshake }
            // The beginning of a record with a ClientHello.
            await client.perform(.raw([22, 3, 1, 1, 0, 1, 0]))
            let charge = ConnectionCost.waitingHandshake + Resource.handshake.bytes
            try await eventually("its handshake") { self.isHandshake(server.heldBytes - before, charge) }
            await client.perform(.close)
            try await eventually("its end") { server.heldBytes == before }
        }
    }

    /// A client that sends nothing takes no turn from others: more of them than handshakes may be under way.
    @Test func silentClientsDoNotWaitInLine() async throws {
        try await withServer(try self.configuration(), Router()) { server in
            var silent: [HostileClient] = []
            for _ in 0..<50 { silent.append(try await HostileClient.connect(to: server.address)) }
            try await eventually("all are there") { server.heldBytes >= 50 * ConnectionCost.waitingHandshake }
            #expect(server.loops.allSatisfy { $0.handshakes.waitingCount == 0 })
            let begun = try await HostileClient.connect(to: server.address)
            await begun.perform(.raw([22, 3, 1, 1, 0, 1, 0]))
            try await eventually("its handshake") {
                self.isHandshake(server.heldBytes, 51 * ConnectionCost.waitingHandshake + Resource.handshake.bytes)
            }
            withExtendedLifetime((silent, begun)) {}
        }
    }
}
