// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// A request in flight is charged for what was made of it, and not for its body alone.
///
/// In a separate process, whose memory only the server and its clients use.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct RequestMemoryTests {
    enum Metadata: String, CaseIterable {
        case none, oneValue, manyValues, keys
    }

    private static let hang: UInt32 = 102
    private static let clientCount = 2
    private static let requestCount = 1_000
    /// The growth that is not due to requests.
    private static let allowance = 10 << 20

    private static func metadata(_ kind: Metadata, _ number: Int) -> WireMetadata {
        var metadata = WireMetadata()
        switch kind {
        case .none: break
        case .oneValue: metadata = WireMetadata(values: ["n": String(repeating: "v", count: 16_000)])
        case .manyValues:
            let pairs = (0..<64).map { ("n\($0)", String(repeating: "v", count: 240)) }
            metadata = WireMetadata(values: Dictionary(uniqueKeysWithValues: pairs))
        case .keys: metadata.idempotencyKey = "\(number) " + String(repeating: "k", count: 100)
        }
        return metadata
    }

    private static func run(_ kind: Metadata) async throws {
        var router = Router()
        router.use(MetricsMiddleware())
        router.handleUntilCancelled(Self.hang)
        try await withServer(.init(), router) { server in
            let address = try #require(server.address)
            func client() async throws -> HostileClient {
                let client = try await HostileClient(to: address)
                await client.perform(.hello(.metadata, .idempotency))
                _ = try await client.response()
                return client
            }
            func fill(_ client: HostileClient, _ offset: Int) async throws {
                for number in 0..<Self.requestCount {
                    let sealed = try Envelope.seal(
                        type: Self.hang,
                        body: ByteBuffer(string: "600000"),
                        metadata: Self.metadata(kind, offset + number)
                    )
                    await client.perform(.request(sealed.type, serial: 50 + UInt32(number), sealed.payload))
                }
            }
            // Threads and pools exist before it is measured.
            let first = try await client()
            try await fill(first, 1_000_000)
            try await eventually("requests in flight") { server.requestsInFlight == Self.requestCount }
            await first.perform(.reset)
            try await eventually("nothing is held") { server.heldBytes == 0 }
            returnFreeMemory()
            let before = residentBytes()
            var clients: [HostileClient] = []
            for number in 0..<Self.clientCount {
                clients.append(try await client())
                try await fill(clients[number], number * Self.requestCount)
            }
            let count = Self.clientCount * Self.requestCount
            try await eventually("requests in flight") { server.requestsInFlight == count }
            returnFreeMemory()
            let (growth, held) = (residentBytes() - before, server.heldBytes)
            print("requests, \(kind): \(growth / count) bytes were gained for each, and \(held / count) held")
            // Debug builds take half as much again.
            #expect(growth <= held * 3 / 2 + Self.allowance, "\(kind): \(growth >> 10) KiB, \(held >> 10) KiB held")
            for client in clients { await client.perform(.reset) }
            try await eventually("nothing is held") { server.heldBytes == 0 }
        }
    }

    @Test(arguments: Metadata.allCases)
    func memoryOfRequestsInFlightIsCharged(kind: Metadata) async throws {
        await #expect(processExitsWith: .success) { [name = kind.rawValue as String] in
            try await Self.run(try #require(Metadata(rawValue: name)))
        }
    }
}
#endif
