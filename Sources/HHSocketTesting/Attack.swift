import HHSocket
import HHSocketHello
import HHSocketMessage
import NIOCore

extension HostileClient {
    /// A whole attack on a server, the same each time it is run. Cases may be added.
    ///
    /// ```swift
    /// @Test(arguments: HostileClient.Attack.allCases)
    /// func honestClientsAreUnharmed(attack: HostileClient.Attack) async throws {
    ///     let attackers = try await attack.run(against: endpoint, type: 101)
    ///     // The attackers are still connected: look at the server, make honest calls …
    ///     _ = attackers
    /// }
    /// ```
    public enum Attack: String, CaseIterable, Sendable, CustomStringConvertible {
        /// Frames that end in the header or in the payload, and then nothing.
        case halfFrames
        /// A header that comes byte by byte and is never finished.
        case slowHeader
        /// A payload of which byte after byte comes, and most never.
        case slowBody
        /// Headers that announce up to 4 GiB.
        case wildLengths
        /// Requests with wrong checksums, one after the other.
        case checksumFlood
        /// Requests, faster than they can be answered, whose answers are not waited for.
        case callFlood
        /// Requests with bodies of 64 KiB, whose answers are never read, for as long as the server takes any.
        case neverReads
        /// Connections on which nothing happens.
        case connectFlood
        /// Connections that are reset in the middle of a frame.
        case resetFlood
        /// Requests of types that nobody handles: unused, reserved, and with flag bits set.
        case unknownTypes
        /// Requests with serials from 0 to 49.
        case reservedSerials
        /// Requests with one and the same serial.
        case duplicateSerials
        /// Cancels for requests that were never sent, and for such as have been answered.
        case unknownCancels
        /// The end of the client's direction in the middle of a frame.
        case halfCloseInMidFrame
        /// Random bytes.
        case garbage
        /// After hello, requests whose bodies are a thousand times as large once they are decompressed: some of 900 KB, some of
        /// 64 MiB.
        case compressionBombs

        public var description: String { self.rawValue }

        /// Runs the attack and returns when it is at its height.
        ///
        /// - Parameters:
        ///   - endpoint: The server.
        ///   - type: A type that the server handles, and best one whose answer is as large as the request.
        ///   - format: How frames are laid out; the standard format by default.
        ///   - strength: Multiplies the number of connections or frames: 1, the default, takes a second or so.
        ///   - seed: For what is drawn at random; 0 by default.
        /// - Returns: The attackers. Those the server did not close are still connected, as long as they are kept.
        /// - Throws: NIO's error when one cannot connect.
        public func run(
            against endpoint: Endpoint,
            type: UInt32,
            format: WireFormat = .standard,
            strength: Int = 1,
            seed: UInt64 = 0
        ) async throws -> [HostileClient] {
            let strength = max(1, strength)
            let headerLength = FrameForge(direction: .request, format: format).headerLength
            // Long enough for a server that is slow, short enough for a test of one that rightly takes no more.
            let patience = Duration.milliseconds(500)
            let serials = 1_000..<(1_000 + 20_000 * UInt32(clamping: strength))
            let large = ByteBuffer(repeating: 0x61, count: 64 << 10)
            switch self {
            case .halfFrames:
                return try await self.each(of: Array(1...28), endpoint, format) { bytes in
                    .request(type, serial: 50, "half a frame").cut(after: bytes)
                }
            case .slowHeader:
                return try await self.each(of: Array(1...(20 * strength)), endpoint, format) { _ in
                    .request(type, serial: 50, "never").cut(after: headerLength - 1).dribbled()
                }
            case .slowBody:
                return try await self.each(of: Array(1...(20 * strength)), endpoint, format) { _ in
                    .request(type, serial: 50, ByteBuffer(repeating: 0x61, count: 200))
                        .announcing(length: 1 << 20).cut(after: 200).dribbled()
                }
            case .wildLengths:
                let lengths: [UInt32] = [.max, .max - 3, .max - 15, 1 << 31, (1 << 31) - 1, 1 << 30]
                return try await self.each(of: lengths, endpoint, format) { length in
                    .request(type, serial: 50, large).announcing(length: length)
                }
            case .checksumFlood:
                return try await self.each(of: [0], endpoint, format) { _ in
                    .requests(type, serials: serials, ByteBuffer(string: "wrong")).corrupted()
                }
            case .callFlood:
                return try await self.each(of: [0, 1], endpoint, format) { _ in
                    .requests(type, serials: serials, ByteBuffer(string: "call"))
                }
            case .neverReads:
                return try await withThrowingTaskGroup(of: HostileClient.self) { group in
                    for _ in 0..<4 {
                        group.addTask {
                            let client = try await HostileClient(to: endpoint, format: format, reads: false)
                            // A server that takes all of it would have to keep it.
                            for round in 0..<UInt32(64 * strength) {
                                let serials = (1_000 + round * 16)..<(1_016 + round * 16)
                                let act = Act.requests(type, serials: serials, large)
                                guard await client.perform(act, within: patience) == .done else { break }
                            }
                            return client
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
            case .connectFlood:
                return try await self.each(of: Array(1...(200 * strength)), endpoint, format) { _ in .raw([]) }
            case .resetFlood:
                return try await self.each(of: Array(1...(200 * strength)), endpoint, format) { number in
                    .request(type, serial: 50, "reset").cut(after: number % 20).then(.reset)
                }
            case .unknownTypes:
                let client = try await HostileClient(to: endpoint, format: format)
                for unknown in [0x1FFF_FFFF, 15, 3, 0x2000_0000, 0x8000_0065, .max] as [UInt32] {
                    await client.perform(.requests(unknown, serials: 50..<2_000), within: patience)
                }
                return [client]
            case .reservedSerials:
                return try await self.each(of: [0], endpoint, format) { _ in
                    Act.requests(type, serials: 0..<50, ByteBuffer(string: "reserved")).times(100 * strength)
                }
            case .duplicateSerials:
                return try await self.each(of: [0], endpoint, format) { _ in
                    Act.request(type, serial: 50, "again").times(10_000 * strength)
                }
            case .unknownCancels:
                return try await self.each(of: [0], endpoint, format) { _ in
                    .glued(
                        .glued(serials.map { .cancel($0) }),
                        .requests(type, serials: 50..<100),
                        .glued((0..<100).map { .cancel($0) })
                    )
                }
            case .halfCloseInMidFrame:
                return try await self.each(of: Array(1...28), endpoint, format) { bytes in
                    .request(type, serial: 50, "half a frame").cut(after: bytes).then(.halfClose)
                }
            case .garbage:
                return try await self.each(of: Array(0..<(20 * strength)), endpoint, format) { number in
                    .garbage(100_000, seed: seed &+ UInt64(number))
                }
            case .compressionBombs:
                let bombs = try Self.bombs(of: [900_000, 64 << 20], type: type)
                return try await self.each(of: Array(1...(4 * strength)), endpoint, format) { number in
                    .glued(
                        .frame(Self.hello),
                        .glued(
                            (1_000..<1_200).map { serial in
                                let bomb = bombs[serial % 8 == 0 ? 1 : 0]
                                return .request(bomb.type, serial: UInt32(serial), bomb.payload)
                            }
                        )
                    )
                }
            }
        }

        /// A hello that offers compression.
        private static var hello: Frame {
            var hello = WireHello()
            hello.version = 1
            hello.features = ["\(ProtocolFeature.compression)"]
            return Frame(
                type: FrameType.hello,
                serial: FrameSerial.hello,
                // Text and numbers can always be written.
                payload: (try? ByteBuffer(message: hello)) ?? ByteBuffer()
            )
        }

        /// Zeros, compressed.
        private static func bombs(of lengths: [Int], type: UInt32) throws -> [Envelope.Sealed] {
            try lengths.map { length in
                try Envelope.seal(
                    type: type,
                    body: ByteBuffer(repeating: 0, count: length),
                    compression: CompressionPolicy(minimumLength: 0)
                )
            }
        }

        private func each<Element>(
            of elements: [Element],
            _ endpoint: Endpoint,
            _ format: WireFormat,
            _ act: (Element) -> Act
        ) async throws -> [HostileClient] {
            var clients: [HostileClient] = []
            for element in elements {
                let client = try await HostileClient(to: endpoint, format: format)
                clients.append(client)
                await client.perform(act(element), within: .milliseconds(500))
            }
            return clients
        }
    }
}
