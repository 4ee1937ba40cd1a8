// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Messages of WebSockets and frames that never end, on a server that also answers frames.
@Suite(.tags(.io, .exclusive), .serialized, .timeLimit(.minutes(5))) struct HalfMessageTests {
    enum Unit: CaseIterable { case message, frame }

    private static let attackers = 24
    /// The number of bytes of a message or a payload that an attacker sends, of one more.
    private static let length = 4 << 20

    /// - Parameter isOver: Set once all attackers have tried.
    private static func attack(_ target: Endpoint, _ act: HostileClient.Act, _ isOver: Watched<Bool>) async throws {
        defer { isOver.withLockedValue { $0 = true } }
        // They stay until all have sent.
        let clients = try await withThrowingTaskGroup(of: HostileClient.self) { group in
            for _ in 0..<Self.attackers {
                group.addTask {
                    let client = try await HostileClient(to: target)
                    await client.perform(act, within: .seconds(2))
                    return client
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(clients.count == Self.attackers)
    }

    /// The attackers offer more than the server may hold. They are read slowly or closed, and must not fill the rest:
    /// requests of others would be refused with 503.
    @Test(arguments: Unit.allCases) func halfUnitsCostNoHonestCall(unit: Unit) async throws {
        var configuration = SocketServer.Configuration(listeners: [try ServerListener(url: "tcp+ws://127.0.0.1:0/rpc")])
        configuration.limits.maximumBufferedBytes = 64 << 20
        var router = Router()
        router.handle(102) { request, _ in request.body }
        try await withServer(configuration, router) { server in
            try server.webSocket("/messages") { message, connection in connection.post(message) }
        } _: { server in
            let address = try #require(server.address)
            let messages = try Endpoint(url: "ws://127.0.0.1:\(address.port)/messages")
            let whole = ByteBuffer(repeating: 1, count: Self.length + 1)
            let (target, act): (Endpoint, HostileClient.Act) =
                switch unit {
                case .message: (messages, .webSocketFrame(.binary(whole)))
                case .frame: (address, .request(102, serial: 50, whole))
                }
            let honest = try await HostileClient(to: address)
            var serial: UInt32 = 50
            var refused = 0
            for _ in 1...3 {
                let isOver = Watched(false)
                async let attack: Void = Self.attack(target, act.cut(after: Self.length), isOver)
                // Until all of them are gone: what was not read of them is read at the end.
                while !isOver.current || server.connectionCount > 1 {
                    serial += 1
                    await honest.perform(.request(102, serial: serial, "honest"))
                    if try await honest.response().status != .ok { refused += 1 }
                }
                try await attack
            }
            let most = server.takePeakOfHeldBytes()
            #expect(refused == 0, "of \(serial - 50) calls; up to \(most >> 10) KiB were held")
            // They came as near to the limit as they could.
            #expect(most > 48 << 20, "\(most)")
        }
    }
}
