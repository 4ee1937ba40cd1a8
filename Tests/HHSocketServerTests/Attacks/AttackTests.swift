// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Each attack against a server in a separate process, whose memory only the server and the attackers use.
@Suite(.tags(.exclusive), .serialized, .timeLimit(.minutes(5))) struct AttackTests {
    /// The growth that a server may have at the height of the attack. Without limits it would be higher: `neverReads`
    /// offers it 256 MiB. Each of the bombs' four senders may be charged 16 MiB; malloc keeps as much again, and the
    /// threads that inflate need some.
    private static func allowedGrowth(of attack: HostileClient.Attack) -> Int {
        attack == .compressionBombs ? 152 << 20 : 120 << 20
    }

    /// The attacks that reach a tight limit on requests and bytes, with 101, a synchronous handler, 102, a task, and
    /// 103, a task that never ends. The others are run against the defaults (``DefaultConfigurationAttackTests``), and
    /// with more effort here too.
    private static let attacksOnHandlers: [HostileClient.Attack] = [
        .callFlood, .neverReads, .duplicateSerials, .unknownCancels, .compressionBombs, .tricklingReaders,
        .requestAndCancel,
    ]

    /// The attacks whose bytes depend on the format. The others begin with a hello, which only the standard format has,
    /// or have no bytes; with more effort they are run with each format too.
    private static let attacksOnFormats: [HostileClient.Attack] = [
        .halfFrames, .slowHeader, .slowBody, .wildLengths, .checksumFlood, .callFlood, .neverReads, .resetFlood,
        .unknownTypes,
        .reservedSerials, .duplicateSerials, .unknownCancels, .halfCloseInMidFrame, .garbage,
    ]

    private static func run(
        _ attack: HostileClient.Attack,
        format: WireFormat,
        types: [UInt32]
    ) async throws {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        router.handle(102) { request, _ in request.body }
        router.handle(103) { request, _ in
            try await untilCancelledWithoutATrace()
            return request.body
        }
        var configuration = SocketServer.Configuration(wireFormat: format)
        configuration.limits.maximumPayloadLength = 1 << 20
        // The bodies that handlers which never end may hold on each connection.
        configuration.limits.maximumInFlightPerConnection = 100
        configuration.limits.maximumBufferedBytesPerConnection = 16 << 20
        configuration.limits.maximumWaitingPushBytes = 1 << 20
        try await withServer(configuration, router) { server in
            let address = try #require(server.address)
            let honest = try await HostileClient(to: address, format: format)
            @Sendable func call(_ serial: UInt32) async throws {
                for type in [101, 102] as [UInt32] {
                    await honest.perform(.request(type, serial: serial, "honest \(serial)"))
                    let answer = try await honest.response()
                    #expect((answer.type, answer.serial, answer.status) == (type, serial, .ok))
                    #expect(answer.payload == ByteBuffer(string: "honest \(serial)"))
                }
            }
            for serial in 50..<100 as Range<UInt32> { try await call(serial) }
            let before = residentBytes()
            #expect(before > 0)

            for type in types {
                async let attackers = attack.run(against: address, type: type, format: format)
                for serial in 100..<200 as Range<UInt32> { try await call(serial) }
                let standing = try await attackers
                #expect(!standing.isEmpty)
                let growth = residentBytes() - before
                #expect(growth < Self.allowedGrowth(of: attack), "\(attack), type \(type): \(growth >> 20) MiB")
                for serial in 200..<210 as Range<UInt32> { try await call(serial) }
                for attacker in standing { await attacker.perform(.reset) }
                try await eventually("one connection") { server.connectionCount == 1 }
            }
            // The server also serves newcomers.
            let newcomer = try await HostileClient(to: address, format: format)
            await newcomer.perform(.request(101, serial: 50, "hello"))
            #expect(try await newcomer.response().payload == ByteBuffer(string: "hello"))
        }
    }

    /// The attacks whose attackers require little memory, as they are in the measured process.
    private static let attacksOnFrames =
        Self.attacksOnFormats
        + [
            .connectFlood, .compressionBombs, .tricklingReaders, .repeatedKey, .distantDeadlines, .largeHello,
            .pinnedSlices, .requestAndCancel, .pingFlood, .connectionStorm, .protocolErrors, .proxyHeaders,
        ]

    @Test(arguments: effort > 1 ? Self.attacksOnFrames : Self.attacksOnHandlers)
    func memoryIsBoundedAndHonestClientsAreUnharmed(attack: HostileClient.Attack) async throws {
        await #expect(processExitsWith: .success) { [name = attack.rawValue as String] in
            let attack = try #require(HostileClient.Attack(rawValue: name))
            try await Self.run(attack, format: .standard, types: [101, 102, 103])
        }
    }

    @Test(arguments: ["tgcd", "plain", "mars"])
    func everyFormatWithstandsEveryAttack(name: String) async throws {
        await #expect(processExitsWith: .success) { [name = name as String] in
            let format = try #require(WireFormat.presets[name])
            for attack in effort > 1 ? Self.attacksOnFrames : Self.attacksOnFormats {
                try await Self.run(attack, format: format, types: [102])
            }
        }
    }
}
#endif
