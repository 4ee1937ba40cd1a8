// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// What each resource is charged for is what it takes.
///
/// In a separate process, whose memory only the resources use.
@Suite(.tags(.exclusive), .serialized, .timeLimit(.minutes(5))) struct ResourceTests {
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

    private final class Descriptor {
        private let number: CInt

        init() throws {
            self.number = open("/dev/null", O_RDONLY)
            try #require(self.number >= 0)
        }

        deinit { close(self.number) }

        /// The number of descriptors of the process.
        static var count: Int { (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0 }
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

    private static func make(_ kind: Kind, _ account: LedgerAccount) throws -> Held {
        switch kind {
        case .memory:
            let bytes = ByteBuffer(repeating: 1, count: 1 << 14)
            return Held(bytes, .memory(bytes.storageCapacity), of: account)
        case .descriptor: return Held(try Descriptor(), .descriptor, of: account)
        case .handshake: return Held((), .handshake, of: account)
        case .inflater:
            let direction = DeflateDirection(windowBits: Self.windowBits.inflating, keepsWindow: true)
            let inflater = WebSocketInflater(direction, account: account)
            var (input, output) = (try #require(Self.deflated), ByteBuffer())
            let progress = try inflater.inflate(&input, isEnd: true, into: &output, limit: .max)
            try #require(progress == .finished && output == Self.noise)
            return Held(inflater)
        case .deflater:
            let direction = DeflateDirection(windowBits: Self.windowBits.deflating, keepsWindow: true)
            let deflater = try #require(WebSocketDeflater(direction, account: account))
            _ = deflater.compress(Self.noise)
            return Held(deflater)
        case .metadata:
            let pairs = (0..<16).map { ("a name of a value \($0)", String(repeating: "v", count: 100)) }
            let extras = ServerContext.Extras(metadata: Dictionary(uniqueKeysWithValues: pairs))
            let strings = pairs.reduce(0) { $0 + $1.0.utf8.count + $1.1.utf8.count }
            let resource = Resource.metadata(bytes: strings, strings: 2 * pairs.count)
            try #require(extras.memory == resource.bytes)
            return Held(extras, resource, of: account)
        case .keptRequest:
            var reader = OpeningRequestReader()
            let cookie = String(repeating: "c", count: 7_000)
            reader.append(ByteBuffer(string: "GET /a?b HTTP/1.1\r\nHost: a\r\nCookie: \(cookie)\r\n\r\n"))
            let request = KeptRequest(try #require(try reader.next()))
            return Held(request, request.resource, of: account)
        }
    }

    private static func run(_ kind: Kind) throws {
        _ = DescriptorLimit.raise(wanted: 2 * Self.count)
        let ledger = Ledger(ServerLimits(), shards: 1)
        let account = LedgerAccount(ledger, shard: 0, baseCost: 0)
        // Code and pools exist before it is measured.
        _ = try (0..<10).map { _ in try Self.make(kind, account) }
        #expect(account.bytes == 0)
        var held: [Held] = []
        held.reserveCapacity(Self.count)
        returnFreeMemory()
        let (before, descriptors) = (residentBytes(), Descriptor.count)
        for _ in 0..<Self.count { held.append(try Self.make(kind, account)) }
        returnFreeMemory()
        let (growth, charge) = (residentBytes() - before, account.bytes)
        print(
            "resources, \(kind): \(growth / Self.count) bytes were gained for each, and \(charge / Self.count) charged"
        )
        switch kind {
        case .descriptor:
            #expect(ledger.descriptors.load(ordering: .relaxed) == Self.count)
            // The process may open or close some of its own meanwhile.
            let opened = Descriptor.count - descriptors
            #expect(abs(opened - Self.count) <= 16, "\(opened) descriptors were opened")
        case .handshake:
            #expect(ledger.handshakes.load(ordering: .relaxed) == Self.count)
        case .memory, .inflater, .deflater, .metadata, .keptRequest:
            #expect(growth <= 2 * charge + Self.count << 10, "too little is charged")
            #expect(charge <= 2 * growth + Self.count << 10, "too much is charged")
        }
        held = []
        #expect(account.bytes == 0)
        #expect(ledger.descriptors.load(ordering: .relaxed) == 0)
        #expect(ledger.handshakes.load(ordering: .relaxed) == 0)
    }

    @Test(arguments: Kind.allCases)
    func chargeIsWhatItTakes(kind: Kind) async throws {
        await #expect(processExitsWith: .success) { [name = kind.rawValue as String] in
            try Self.run(try #require(Kind(rawValue: name)))
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
