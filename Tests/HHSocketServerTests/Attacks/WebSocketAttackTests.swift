// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Each attack on WebSockets against a server in a separate process, whose memory only the server and the attackers
/// use.
@Suite(.tags(.exclusive), .serialized, .timeLimit(.minutes(5))) struct WebSocketAttackTests {
    /// The growth that a server may have at the height of the attack, including the attackers, which hold as much of
    /// `hugeMessages` as the server. Without limits it would be higher: `deflateBombs` offers it 2.9 GiB, `neverReads`
    /// 256 MiB.
    private static let allowedGrowth = 240 << 20

    /// The attacks on frames that differ over WebSocket.
    private static let attacksOnFrames: [HostileClient.Attack] = [
        .slowHeader, .slowBody, .wildLengths, .callFlood, .neverReads, .tricklingReaders, .garbage,
        .halfCloseInMidFrame,
    ]

    private static func run(_ attack: HostileClient.Attack, _ paths: [String]) async throws {
        var router = Router()
        router.handle(102) { request, _ in request.body }
        var configuration = SocketServer.Configuration(
            listeners: [try ServerListener(url: "tcp+ws://127.0.0.1:0\(ServerUnderAttack.framesPath)")]
        )
        configuration.limits.maximumPayloadLength = 1 << 20
        configuration.limits.maximumInFlightPerConnection = 100
        configuration.limits.maximumBufferedBytesPerConnection = 16 << 20
        let routes: (SocketServer) throws -> Void = { server in
            var options = WebSocketRouteOptions()
            options.compression = WebSocketCompression()
            try server.webSocket(ServerUnderAttack.messagesPath, options: options) { connection in
                for await message in connection.messages { try await connection.send(message) }
            }
        }
        try await withServer(configuration, router, routes) { server in
            let address = try #require(server.address)
            let honest = try HonestWebSockets(to: address, type: 102)
            try await honest.areAnswered(times: 50)
            let before = residentBytes()
            #expect(before > 0)
            for path in paths {
                async let attackers = attack.run(against: try Endpoint(url: "ws://\(address)\(path)"), type: 102)
                try await honest.areAnswered(times: 50)
                let standing = try await attackers
                #expect(!standing.isEmpty)
                let growth = residentBytes() - before
                print("\(attack) on \(path): \(growth >> 20) MiB")
                #expect(growth < Self.allowedGrowth, "\(attack) on \(path): \(growth >> 20) MiB")
                try await honest.areAnswered(times: 20)
                for attacker in standing { await attacker.perform(.reset) }
                try await eventually("two connections") { server.connectionCount == honest.count }
            }
            #expect(honest.losses == 0)
            await honest.close()
            // The server also serves newcomers.
            let newcomer = try HonestWebSockets(to: address, type: 102)
            try await newcomer.areAnswered(times: 1)
            await newcomer.close()
        }
    }

    @Test(arguments: HostileClient.Attack.onWebSockets)
    func memoryIsBoundedAndHonestClientsAreUnharmed(attack: HostileClient.Attack) async throws {
        await #expect(processExitsWith: .success) { [name = attack.rawValue as String] in
            let attack = try #require(HostileClient.Attack(rawValue: name))
            try await Self.run(attack, [ServerUnderAttack.framesPath, ServerUnderAttack.messagesPath])
        }
    }

    /// Attacks that are also run against the defaults over WebSocket are included only with more effort.
    @Test(arguments: effort > 1 ? Self.attacksOnFrames : [.wildLengths, .garbage, .halfCloseInMidFrame])
    func framesInMessagesDoNoMoreHarmThanOverTCP(attack: HostileClient.Attack) async throws {
        await #expect(processExitsWith: .success) { [name = attack.rawValue as String] in
            let attack = try #require(HostileClient.Attack(rawValue: name))
            try await Self.run(attack, [ServerUnderAttack.framesPath, ServerUnderAttack.messagesPath])
        }
    }
}
#endif
