#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import Logging
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Every attack at once, again and again, beside clients that do nothing wrong. For `HHSOCKET_HOSTILE_SECONDS`, 10 by
/// default.
@Suite(.tags(.exclusive), .serialized, .timeLimit(.minutes(15))) struct HostileCrowdTests {
    private static let honestClients = 10
    private static let bufferedBytes = 96 << 20
    /// The attackers are in this process too, with what they send and have not read.
    private static let allowedGrowth = 600 << 20

    private static var seconds: Double {
        ProcessInfo.processInfo.environment["HHSOCKET_HOSTILE_SECONDS"].flatMap(Double.init) ?? 10
    }

    private static var router: Router {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        router.handle(102) { request, _ in request.body }
        // A client that has closed its side may wait for its answer, however long that takes.
        router.handle(103) { request, _ in
            try await Task.sleep(for: .seconds(5))
            return request.body
        }
        return router
    }

    private static var configuration: SocketServer.Configuration {
        var listener = ServerListener()
        listener.webSocket = WebSocketListening(path: "/rpc", sharesPort: true)
        var configuration = SocketServer.Configuration(listeners: [listener])
        configuration.logger = Logger(label: "silent") { _ in SwiftLogNoOpLogHandler() }
        // They all come from one address, and are to get in.
        configuration.limits.connectionRatePerAddress = nil
        configuration.limits.maximumPayloadLength = 1 << 20
        configuration.limits.maximumInFlightPerConnection = 100
        configuration.limits.maximumBufferedBytesPerConnection = 8 << 20
        configuration.limits.maximumBufferedBytes = Self.bufferedBytes
        configuration.limits.readStallTimeout = .seconds(2)
        configuration.limits.writeStallTimeout = .seconds(2)
        return configuration
    }

    /// One client that calls, one call after the other, until it is told to stop.
    ///
    /// - Returns: How long each call took, in seconds.
    private static func call(_ address: Endpoint, until isOver: @Sendable () -> Bool) async throws -> [Double] {
        let client = try await HostileClient(to: address)
        var times: [Double] = []
        var serial: UInt32 = 50
        while !isOver() {
            serial += 1
            let begun = ContinuousClock.now
            await client.perform(.request(serial % 2 == 0 ? 101 : 102, serial: serial, "honest \(serial)"))
            let answer = try await client.response(within: .seconds(120))
            times.append((ContinuousClock.now - begun) / .seconds(1))
            guard answer.serial == serial, answer.status == .ok,
                answer.payload == ByteBuffer(string: "honest \(serial)")
            else { throw Unexpected(description: "\(answer) is not the answer to \(serial)") }
            try await Task.sleep(for: .milliseconds(1))
        }
        return times
    }

    private static func honestCalls(
        _ address: Endpoint,
        until isOver: @escaping @Sendable () -> Bool
    ) async throws -> [Double] {
        try await withThrowingTaskGroup(of: [Double].self) { tasks in
            for _ in 0..<Self.honestClients { tasks.addTask { try await Self.call(address, until: isOver) } }
            return try await tasks.reduce(into: []) { $0 += $1 }.sorted()
        }
    }

    private static func attack(_ address: Endpoint, until isOver: @escaping @Sendable () -> Bool) async {
        await withTaskGroup { tasks in
            for attack in HostileClient.Attack.allCases {
                tasks.addTask {
                    var round: UInt64 = 0
                    // Those on WebSockets are run against each of them in turn.
                    let isOnWebSockets = HostileClient.Attack.onWebSockets.contains(attack)
                    while !isOver() {
                        let path = round % 2 == 0 ? "/rpc" : "/echo"
                        let url = isOnWebSockets ? Endpoint("ws://\(address)\(path)") : nil
                        let type = [101, 102, 103][Int(round % 3)] as UInt32
                        // One that cannot connect has been one too many.
                        let standing = try? await attack.run(against: url ?? address, type: type, seed: round)
                        // They stay for a while, as those do who mean it.
                        try? await Task.sleep(for: .milliseconds(300))
                        _ = standing
                        round += 1
                    }
                }
            }
        }
    }

    @Test func honestClientsAreServedAndNothingGrows() async throws {
        let result = await #expect(
            processExitsWith: .success,
            observing: [\.standardOutputContent, \.standardErrorContent]
        ) {
            let routes: (SocketServer) throws -> Void = { server in
                try server.webSocket("/echo", onMessage: { message, connection in connection.post(message) })
            }
            try await withServer(Self.configuration, Self.router, routes) { server in
                let address = try #require(server.address)
                func until(_ seconds: Double) -> @Sendable () -> Bool {
                    let end = ContinuousClock.now + .seconds(seconds)
                    return { ContinuousClock.now >= end }
                }
                let alone = try await Self.honestCalls(address, until: until(max(1, Self.seconds / 10)))
                let before = residentBytes()

                let isOver = until(Self.seconds)
                async let attacks: Void = Self.attack(address, until: isOver)
                let highest = NIOLockedValueBox((bytes: 0, resident: 0))
                async let watching: Void = {
                    while !isOver() {
                        let (bytes, resident) = (server.bufferedBytes, residentBytes())
                        highest.withLockedValue { $0 = (max($0.bytes, bytes), max($0.resident, resident)) }
                        try? await Task.sleep(for: .milliseconds(50))
                    }
                }()
                // Throws if one is dropped, or not answered.
                let amongThem = try await Self.honestCalls(address, until: isOver)
                await attacks
                await watching

                let (bytes, resident) = highest.withLockedValue { $0 }
                #expect(bytes < Self.bufferedBytes + (32 << 20), "\(bytes >> 20) MiB are held")
                #expect(resident - before < Self.allowedGrowth, "\((resident - before) >> 20) MiB more")
                func p99(_ times: [Double]) -> String { String(format: "%.2f ms", times[times.count * 99 / 100] * 1e3) }
                print(
                    """
                    hostile crowd: \(alone.count) honest calls alone, p99 \(p99(alone)); \(amongThem.count) among the \
                    attackers, p99 \(p99(amongThem)); at most \(bytes >> 20) MiB held by the server and \
                    \((resident - before) >> 20) MiB more in the process; \(server.statistics)
                    """
                )
                // And when they have gone everything is given back.
                try? await eventually("the end of everything", within: .seconds(30)) {
                    server.connectionCount == 0 && server.requestsInFlight == 0 && server.bufferedBytes == 0
                }
                let left = (server.connectionCount, server.requestsInFlight, server.bufferedBytes)
                #expect(left == (0, 0, 0), "connections, requests, bytes: \(left)")
                if left != (0, 0, 0) { print("left over: \(left)") }
            }
        }
        print(
            String(
                decoding: (result?.standardOutputContent ?? []) + (result?.standardErrorContent ?? []),
                as: UTF8.self
            )
        )
    }
}
#endif
