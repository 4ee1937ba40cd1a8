// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer
@testable import HHSocketServerTransfers

/// What each resource is charged for is what it takes.
///
/// In a separate process, whose memory only the resources use.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(5))) struct ResourceTests {
    /// The cases of ``/HHSocket/Resource``.
    enum Kind: String, CaseIterable {
        case memory, descriptor, handshake, inflater, deflater, metadata, keptRequest

        /// Does not compile with a case that has no measure here.
        init(_ resource: Resource) {
            switch resource {
            case .memory: self = .memory
            case .descriptor: self = .descriptor
            case .handshake: self = .handshake
            case .inflater: self = .inflater
            case .deflater: self = .deflater
            case .metadata: self = .metadata
            case .keptRequest: self = .keptRequest
            }
        }
    }

    /// Something that is held, with its charge.
    private final class Held {
        private let object: Any
        private let hold: Hold?

        init(_ object: Any, _ resource: Resource, of account: LedgerAccount) {
            self.object = object
            self.hold = Hold(resource, of: account)
        }

        /// It charges the account itself.
        init(_ object: Any) {
            self.object = object
            self.hold = nil
        }
    }

    private static let count = 1_000
    private static let windowBits = (inflating: 15, deflating: 12)

    /// Bytes that hardly become shorter, of more than a window.
    private static let noise: ByteBuffer = {
        var generator = SeededGenerator(seed: 1)
        return ByteBuffer(bytes: (0..<40_000).map { _ in UInt8.random(in: 0..<128, using: &generator) })
    }()

    /// The noise as a message for an inflater.
    private static let deflated = WebSocketDeflater(
        DeflateDirection(windowBits: Self.windowBits.inflating, keepsWindow: false),
        account: nil
    )?.compress(Self.noise)

    private static func run(_ kind: Kind) async throws {
        switch kind {
        case .memory: try Self.compareMemory(kind, Self.memory)
        case .descriptor: try await Self.countFiles()
        case .handshake: try await Self.countHandshakes()
        case .inflater: try Self.compareMemory(kind, Self.inflater)
        case .deflater: try Self.compareMemory(kind, Self.deflater)
        case .metadata: try Self.compareMemory(kind, Self.metadata)
        case .keptRequest: try Self.compareMemory(kind, Self.keptRequest)
        }
    }

    // MARK: By memory

    private static func memory(_ account: LedgerAccount) throws -> Held {
        let bytes = ByteBuffer(repeating: 1, count: 1 << 14)
        return Held(bytes, .memory(bytes.storageCapacity), of: account)
    }

    private static func inflater(_ account: LedgerAccount) throws -> Held {
        let direction = DeflateDirection(windowBits: Self.windowBits.inflating, keepsWindow: true)
        let inflater = WebSocketInflater(direction, account: account)
        var (input, output) = (try #require(Self.deflated), ByteBuffer())
        let progress = try inflater.inflate(&input, isEnd: true, into: &output, limit: .max)
        try #require(progress == .finished && output == Self.noise)
        return Held(inflater)
    }

    private static func deflater(_ account: LedgerAccount) throws -> Held {
        let direction = DeflateDirection(windowBits: Self.windowBits.deflating, keepsWindow: true)
        let deflater = try #require(WebSocketDeflater(direction, account: account))
        _ = deflater.compress(Self.noise)
        return Held(deflater)
    }

    private static func metadata(_ account: LedgerAccount) throws -> Held {
        let pairs = (0..<16).map { ("a name of a value \($0)", String(repeating: "v", count: 100)) }
        let extras = ServerContext.Extras(metadata: Dictionary(uniqueKeysWithValues: pairs))
        let strings = pairs.reduce(0) { $0 + $1.0.utf8.count + $1.1.utf8.count }
        let resource = Resource.metadata(bytes: strings, strings: 2 * pairs.count)
        try #require(extras.memory == resource.bytes)
        return Held(extras, resource, of: account)
    }

    private static func keptRequest(_ account: LedgerAccount) throws -> Held {
        var reader = OpeningRequestReader()
        let cookie = String(repeating: "c", count: 7_000)
        reader.append(ByteBuffer(string: "GET /a?b HTTP/1.1\r\nHost: a\r\nCookie: \(cookie)\r\n\r\n"))
        let request = KeptRequest(try #require(try reader.next()))
        return Held(request, request.resource, of: account)
    }

    private static func compareMemory(_ kind: Kind, _ make: (LedgerAccount) throws -> Held) throws {
        let ledger = Ledger(ServerLimits(), shards: 1)
        let account = LedgerAccount(ledger, shard: 0, baseCost: 0)
        // Code and pools exist before it is measured.
        _ = try (0..<10).map { _ in try make(account) }
        #expect(account.bytes == 0)
        var held: [Held] = []
        held.reserveCapacity(Self.count)
        returnFreeMemory()
        let before = residentBytes()
        for _ in 0..<Self.count { held.append(try make(account)) }
        returnFreeMemory()
        let (growth, charge) = (residentBytes() - before, account.bytes)
        print(
            "resources, \(kind): \(growth / Self.count) bytes were gained for each, and \(charge / Self.count) charged"
        )
        #expect(growth <= 2 * charge + Self.count << 10, "too little is charged")
        #expect(charge <= 2 * growth + Self.count << 10, "too much is charged")
        held = []
        #expect(account.bytes == 0)
    }

    // MARK: By number

    /// The number of descriptors of the process.
    private static var descriptorCount: Int {
        (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0
    }

    /// Files that a client's requests have a store open.
    private static func countFiles() async throws {
        let limit = DescriptorLimit.raise(wanted: 4 * Self.count) ?? 0
        try #require(limit > 2 * Self.count, "the process may have \(limit) descriptors")
        let ledger = Ledger(ServerLimits(), shards: 1)
        let account = LedgerAccount(ledger, shard: 0, baseCost: 0)
        let folder = try TemporaryFolder()
        let files = OpenFiles { 2 * Self.count }
        let store = try FolderTransferStore(path: folder.file("store"), PosixFileSystem(), openFiles: files)
        _ = try folder.write("content", to: "store/a")
        let id = try #require(TransferID("a"))
        try #require(ledger.descriptors.load(ordering: .relaxed) == 0)
        let before = Self.descriptorCount
        var readers: [any TransferReader] = []
        for _ in 0..<Self.count {
            readers.append(try await StoreOwner.$account.withValue(account) { try await store.open(id) })
        }
        #expect(ledger.descriptors.load(ordering: .relaxed) == Self.count)
        // The process may open or close some of its own meanwhile.
        let opened = Self.descriptorCount - before
        #expect(abs(opened - Self.count) <= 16, "\(opened) descriptors were opened")
        readers.removeAll()
        // The thread that has opened the last one may hold the last reference to it.
        try await eventually("all files are closed") { ledger.descriptors.load(ordering: .relaxed) == 0 }
        #expect(account.bytes == 0)
        withExtendedLifetime(folder) {}
    }

    /// Handshakes that clients have begun, and do not continue.
    private static func countHandshakes() async throws {
        let limit = DescriptorLimit.raise(wanted: 4 * Self.count) ?? 0
        try #require(limit > 3 * Self.count, "the process may have \(limit) descriptors")
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        tls.handshakeTimeout = .seconds(600)
        var configuration = SocketServer.Configuration(tls: tls)
        configuration.limits.maximumHandshakes = Self.count
        configuration.limits.maximumConnectionsPerAddress = .max
        configuration.limits.connectionRatePerAddress = nil
        try await withServer(configuration, Router()) { server in
            let ledger = try #require(server.parts?.books.ledger)
            let port = try #require(server.address).port
            // The beginning of the header of a record, and that of a record with a ClientHello.
            let beginnings: [[UInt8]] = [[22], [22, 3, 1, 1, 0, 1, 0]]
            var clients: [BlockingClient] = []
            for number in 0..<Self.count {
                let client = try BlockingClient(port: port)
                try client.send(beginnings[number % beginnings.count])
                clients.append(client)
            }
            // A client that has sent nothing has begun none.
            clients.append(try BlockingClient(port: port))
            try await eventually("all handshakes are under way") {
                ledger.handshakes.load(ordering: .relaxed) == Self.count
                    && ledger.descriptors.load(ordering: .relaxed) == Self.count + 1
            }
            #expect(server.heldBytes >= Self.count * Resource.handshake.bytes)
            clients.removeAll()
            try await eventually("all handshakes are over") {
                ledger.handshakes.load(ordering: .relaxed) == 0 && ledger.descriptors.load(ordering: .relaxed) == 0
                    && server.heldBytes == 0
            }
        }
    }

    @Test(arguments: Kind.allCases)
    func chargeIsWhatItTakes(kind: Kind) async throws {
        await #expect(processExitsWith: .success) { [name = kind.rawValue as String] in
            try await Self.run(try #require(Kind(rawValue: name)))
        }
    }

    @Test func everyCaseHasItsMeasure() {
        let resources: [Resource] = [
            .memory(1), .descriptor, .handshake, .inflater(window: 15), .deflater(window: 15),
            .metadata(bytes: 1, strings: 1), .keptRequest(1),
        ]
        #expect(Set(resources.map { Kind($0) }) == Set(Kind.allCases))
    }
}
#endif
