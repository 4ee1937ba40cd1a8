// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import HHSocketTesting
import NIOCore

extension HostileClient {
    /// A complete, reproducible attack on a server.
    ///
    /// Against the URL of a WebSocket, attacks that consist of frames send them in its messages. The attacks in
    /// ``onWebSockets`` are on WebSockets themselves, with frames or with messages; a port that does not speak HTTP
    /// receives them as garbage.
    ///
    /// ```swift
    /// let attackers = try await HostileClient.Attack.callFlood.run(against: endpoint, type: 101)
    /// // The attackers are still connected: look at the server, make honest calls …
    /// ```
    package enum Attack: String, CaseIterable, Sendable, CustomStringConvertible {
        /// Frames that end in the header or in the payload, and then nothing.
        case halfFrames
        /// A header that is sent byte by byte and never finished.
        case slowHeader
        /// A payload that is sent byte by byte and in most cases never finished.
        case slowBody
        /// Headers that announce up to 4 GiB.
        case wildLengths
        /// Requests with wrong checksums, one after the other.
        case checksumFlood
        /// Requests, faster than they can be answered, without waiting for answers.
        case callFlood
        /// Requests with bodies of 64 KiB, whose answers are never read, for as long as the server reads them.
        case neverReads
        /// Connections on which nothing happens.
        case connectFlood
        /// Connections that are reset in the middle of a frame.
        case resetFlood
        /// Requests of types without a handler: unused, reserved, and with flag bits set.
        case unknownTypes
        /// Requests with serials from 0 to 49.
        case reservedSerials
        /// Requests with the same serial.
        case duplicateSerials
        /// Cancels for requests that were never sent, or have been answered.
        case unknownCancels
        /// The end of the client's direction in the middle of a frame.
        case halfCloseInMidFrame
        /// Random bytes.
        case garbage
        /// After hello, requests whose bodies are a thousand times as large when decompressed: some of 900 KB, some of
        /// 64 MiB.
        case compressionBombs
        /// Requests with bodies of 64 KiB, whose answers are read too slowly ever to finish, but never not at all.
        case tricklingReaders
        /// After hello, requests with the same idempotency key, and then the end of one of the connections.
        case repeatedKey
        /// After hello, requests with a deadline in an hour, and then the end of one of the connections.
        case distantDeadlines
        /// Hellos of nearly 16 MiB: a long list of features, and an unknown field.
        case largeHello
        /// Requests with bodies of 1,025 bytes among large frames of a type without a handler: a server that keeps
        /// slices of its read buffers keeps them whole.
        case pinnedSlices
        /// A request, followed by others that are each cancelled at once.
        case requestAndCancel
        /// Heartbeats, as fast as they can be sent.
        case pingFlood
        /// Connections with a small receive buffer, each with thousands of empty requests, whose answers are read at
        /// 8 KiB a second, with a heartbeat ten times a second: they make progress, and hold all that they may. `type`
        /// should be answered after some seconds, with 1 KiB or more.
        case hoardingReaders
        /// Requests with empty bodies on sixteen connections, thousands on each, up to 65,000. The handler of `type`
        /// should be slow.
        case emptyRequests
        /// After hello, requests with a deadline in an hour on eight connections, which are then closed or reset.
        case abandonedDeadlines
        /// Hellos as in ``largeHello``, on many connections at once.
        case helloCrowd
        /// A hello on the same connection again and again.
        case repeatedHello
        /// Connections that are closed after they have said hello, with a token that the server may have to check.
        case abandonedHellos
        /// After hello, requests without a pause for answers that are compressed. `type` should be answered on the
        /// event loop, with 60 KiB that can be compressed.
        case compressibleAnswers
        /// A thousand idle connections; fewer if the system or the server does not allow more.
        case idleCrowd
        /// Connections that are closed or reset after a heartbeat, one after the other, as fast as they can be made.
        case connectionStorm
        /// Frames of 16 MiB of which a quarter is sent immediately, and the rest at 150 bytes a second.
        case barelyMovingFrames
        /// Frames that a limit on the rate of requests may overlook, without end: heartbeats, cancels, unknown types,
        /// reserved serials, and two wrong checksums before a right one.
        case freeFrames
        /// Connections with a small receive buffer that read nothing, while one among them makes requests. `type`
        /// should push 64 KiB to every client.
        case deafListeners
        /// Hundreds of requests at a time, again and again. `type` should be slow: where the limit on concurrent
        /// requests adapts, it falls.
        case slowCalls
        /// After hello, thousands of requests with different idempotency keys, and a few with such a key and a body of
        /// 4 MiB.
        case keptAnswers
        /// Connections that once sent a mebibyte of requests, hundreds of empty ones and heartbeats, and then nothing.
        case onceBusy
        /// Connections whose first bytes are no frame: each may cause a line in the server's log.
        case protocolErrors
        /// Headers of the PROXY protocol, valid and invalid, with addresses that the client does not have, and a
        /// request after each.
        case proxyHeaders
        /// TLS handshakes that stop after a part of their first message, or after all of it.
        case abandonedHandshakes
        /// TLS handshakes that continue with garbage, announce large messages, or repeat the same message without end.
        case brokenHandshakes
        /// TLS handshakes, complete if `tls` is given, on connections that are then closed, one after the other.
        case handshakeStorm
        /// Requests to open a WebSocket that are sent byte by byte and never finished.
        case slowOpenings
        /// Many requests to open a WebSocket: a third whole, a third cut, a third reset after they are sent.
        case openingFlood
        /// Requests to open a WebSocket with a header field of 4 MiB.
        case largeOpenings
        /// A message in empty fragments without end: on some connections 131,072, which a server may allow, on the
        /// others more.
        case endlessFragments
        /// Messages that announce up to 2^64 - 1 bytes, and some of 16 MiB that are sent almost completely.
        case hugeMessages
        /// Messages that are a thousand times as long once they are inflated: some of 900 KB, some of 64 MiB.
        case deflateBombs
        /// Pings of WebSocket, whose pongs are never read.
        case webSocketPings
        /// Frames that RFC 6455 forbids, each after a message: unmasked, with reserved bits and opcodes, out of order,
        /// malformed.
        case illegalFrames
        /// Close frames without end, and never the end of TCP.
        case closeFlood
        /// Texts of 8 MiB whose last byte breaks UTF-8.
        case brokenTexts

        /// The attacks on WebSockets themselves.
        package static let onWebSockets: [Attack] = [
            .slowOpenings, .openingFlood, .largeOpenings, .endlessFragments, .hugeMessages, .deflateBombs,
            .webSocketPings, .illegalFrames, .closeFlood, .brokenTexts,
        ]

        /// The attacks on TLS. A port without TLS finds garbage in them.
        package static let onTLS: [Attack] = [.abandonedHandshakes, .brokenHandshakes, .handshakeStorm]

        package var description: String { self.rawValue }

        /// Runs the attack and returns when it is at its height.
        ///
        /// When the Swift task is cancelled the attack soon returns, short of its height.
        ///
        /// - Parameters:
        ///   - endpoint: The server; for ``onWebSockets`` the URL of a WebSocket.
        ///   - type: A type that the server handles, preferably with answers as large as the requests.
        ///   - format: The layout of frames; the standard format by default.
        ///   - strength: Multiplies the number of connections or frames: 1, the default, takes about a second.
        ///   - seed: The seed for random bytes; 0 by default.
        ///   - tls: TLS; nil, the default, for none.
        ///   - sources: The IP addresses that the attackers use in turn. Empty, the default, for the system's choice: a
        ///     server that has limits by address then takes them and other clients of this machine for one.
        ///
        /// - Returns: The attackers. Unless the server closed them they stay connected while they are referenced.
        /// - Throws: NIO's error when one cannot connect; where many connect, only if none can.
        package func run(
            against endpoint: Endpoint,
            type: UInt32,
            format: WireFormat = .standard,
            strength: Int = 1,
            seed: UInt64 = 0,
            tls: ClientTLS? = nil,
            from sources: [String] = []
        ) async throws -> [HostileClient] {
            let strength = max(1, strength)
            let target = Target(endpoint: endpoint, format: format, tls: tls, sources: Sources(sources))
            let encoder = FrameEncoder(direction: .request, format: format)
            // The largest where it varies, and a guess in formats of a codec.
            let headerLength = encoder.encodedLength(payloadLength: 0) - encoder.trailerLength
            // Long enough for a slow server, short enough for a test of one that rightly stops reading.
            let patience = Duration.milliseconds(500)
            let serials = 1_000..<(1_000 + 20_000 * UInt32(clamping: strength))
            let large = ByteBuffer(repeating: 0x61, count: 64 << 10)
            switch self {
            case .halfFrames:
                return try await self.each(of: Array(1...28), target) { bytes in
                    .request(type, serial: 50, "half a frame").cut(after: bytes)
                }
            case .slowHeader:
                return try await self.each(of: Array(1...(20 * strength)), target) { _ in
                    .request(type, serial: 50, "never").cut(after: headerLength - 1).dribbled()
                }
            case .slowBody:
                return try await self.each(of: Array(1...(20 * strength)), target) { _ in
                    .request(type, serial: 50, ByteBuffer(repeating: 0x61, count: 200))
                        .announcing(length: 1 << 20).cut(after: 200).dribbled()
                }
            case .wildLengths:
                let lengths: [UInt32] = [.max, .max - 3, .max - 15, 1 << 31, (1 << 31) - 1, 1 << 30]
                return try await self.each(of: lengths, target) { length in
                    .request(type, serial: 50, large).announcing(length: length)
                }
            case .checksumFlood:
                return try await self.each(of: [0], target) { _ in
                    .requests(type, serials: serials, ByteBuffer(string: "wrong")).corrupted()
                }
            case .callFlood:
                return try await self.each(of: [0, 1], target) { _ in
                    .requests(type, serials: serials, ByteBuffer(string: "call"))
                }
            case .neverReads:
                return try await withThrowingTaskGroup(of: HostileClient.self) { group in
                    for _ in 0..<4 {
                        group.addTask {
                            let client = try await target.client(reads: false)
                            // A server that reads all of it would have to keep it.
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
                return try await self.each(of: Array(1...(200 * strength)), target) { _ in .raw([]) }
            case .resetFlood:
                return try await self.each(of: Array(1...(200 * strength)), target) { number in
                    .request(type, serial: 50, "reset").cut(after: number % 20).then(.reset)
                }
            case .unknownTypes:
                let client = try await target.client()
                for unknown in [0x1FFF_FFFF, 15, 3, 0x2000_0000, 0x8000_0065, .max] as [UInt32] {
                    await client.perform(.requests(unknown, serials: 50..<2_000), within: patience)
                }
                return [client]
            case .reservedSerials:
                return try await self.each(of: [0], target) { _ in
                    Act.requests(type, serials: 0..<50, ByteBuffer(string: "reserved")).times(100 * strength)
                }
            case .duplicateSerials:
                return try await self.each(of: [0], target) { _ in
                    Act.request(type, serial: 50, "again").times(10_000 * strength)
                }
            case .unknownCancels:
                return try await self.each(of: [0], target) { _ in
                    .glued(
                        .glued(serials.map { .cancel($0) }),
                        .requests(type, serials: 50..<100),
                        .glued((0..<100).map { .cancel($0) })
                    )
                }
            case .halfCloseInMidFrame:
                return try await self.each(of: Array(1...28), target) { bytes in
                    .request(type, serial: 50, "half a frame").cut(after: bytes).then(.halfClose)
                }
            case .garbage:
                return try await self.each(of: Array(0..<(20 * strength)), target) { number in
                    .garbage(100_000, seed: seed &+ UInt64(number))
                }
            case .compressionBombs:
                let bombs = try Self.bombs(of: [900_000, 64 << 20], type: type)
                return try await self.each(of: Array(1...(4 * strength)), target) { number in
                    .glued(
                        .hello(.compression),
                        .glued(
                            (1_000..<1_200).map { serial in
                                let bomb = bombs[serial % 8 == 0 ? 1 : 0]
                                return .request(bomb.type, serial: UInt32(serial), bomb.payload)
                            }
                        )
                    )
                }
            case .tricklingReaders:
                return try await withThrowingTaskGroup(of: HostileClient.self) { group in
                    for _ in 0..<(4 * strength) {
                        group.addTask {
                            // A small system buffer, so that the rest stays with the server.
                            let client = try await target.client(reads: false, receiveBuffer: 16 << 10)
                            await client.perform(.readSlowly(bytes: 4 << 10, every: .milliseconds(100)))
                            for round in 0..<16 as Range<UInt32> {
                                let serials = (1_000 + round * 16)..<(1_016 + round * 16)
                                let act = Act.requests(type, serials: serials, large)
                                guard await client.perform(act, within: patience) == .done else { break }
                            }
                            return client
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
            case .repeatedKey:
                var metadata = WireMetadata()
                metadata.idempotencyKey = "one and the same"
                return try await self.keyed(type, metadata, serials, target)
            case .distantDeadlines:
                var metadata = WireMetadata()
                metadata.deadline = 3_600_000
                return try await self.keyed(type, metadata, serials, target)
            case .largeHello:
                let hello = Self.largeHello(features: 50_000 * strength)
                return try await self.each(of: Array(1...4), target) { _ in .frame(hello) }
            case .pinnedSlices:
                let filler = ByteBuffer(repeating: 0x61, count: 254_000)
                let body = ByteBuffer(repeating: 0x30, count: 1_025)
                let pairs = (1_000..<1_200 as Range<UInt32>).map { serial -> Act in
                    .glued(
                        .request(type, serial: serial, body),
                        .request(FrameType.application.upperBound, serial: 50, filler)
                    )
                }
                return try await self.each(of: Array(1...strength), target) { _ in .glued(pairs) }
            case .requestAndCancel:
                let pairs = serials.map { serial -> Act in
                    .glued(.request(type, serial: serial, "canceled"), .cancel(serial))
                }
                return try await self.each(of: [0, 1], target) { _ in
                    .request(type, serial: 999, "first").then(.glued(pairs))
                }
            case .pingFlood:
                return try await self.each(of: [0, 1], target) { _ in .ping().times(50_000 * strength) }
            case .hoardingReaders, .emptyRequests, .abandonedDeadlines, .helloCrowd, .repeatedHello, .abandonedHellos,
                .compressibleAnswers, .barelyMovingFrames, .freeFrames, .deafListeners, .slowCalls, .keptAnswers,
                .onceBusy:
                return try await self.attackLimits(target, type, strength, seed)
            case .idleCrowd, .connectionStorm, .protocolErrors, .proxyHeaders:
                return try await self.attackAccepting(target, type, strength, seed)
            case .abandonedHandshakes, .brokenHandshakes, .handshakeStorm:
                return try await self.attackTLS(target, strength, seed)
            case .slowOpenings, .openingFlood, .largeOpenings, .endlessFragments, .hugeMessages, .deflateBombs,
                .webSocketPings, .illegalFrames, .closeFlood, .brokenTexts:
                return try await self.attackWebSockets(target, strength)
            }
        }

        /// Sends, after hello, requests with this metadata on two connections, the first of which is reset.
        private func keyed(
            _ type: UInt32,
            _ metadata: WireMetadata,
            _ serials: Range<UInt32>,
            _ target: Target
        ) async throws -> [HostileClient] {
            let sealed = try Envelope.seal(type: type, body: ByteBuffer(string: "again"), metadata: metadata)
            return try await self.each(of: [0, 1], target) { number in
                let requests = Act.glued(
                    .hello(.metadata, .idempotency),
                    .requests(sealed.type, serials: serials, sealed.payload)
                )
                return number == 0 ? requests.then(.reset) : requests
            }
        }

        /// Returns a hello of nearly 16 MiB, whose features have no name.
        static func largeHello(features: Int) -> Frame {
            let length = Frame.defaultMaximumPayloadLength - 64
            // Version 1.
            var payload = ByteBuffer(bytes: [0x08, 0x01])
            payload.reserveCapacity(length)
            for _ in 0..<min(features, length / 2 - 64) { payload.writeInteger(0x1200 as UInt16) }
            // Field 15 fills the rest, after a tag and a length of five bytes.
            let rest = length - payload.readableBytes - 6
            payload.writeInteger(0x7A as UInt8)
            for shift in [0, 7, 14, 21] { payload.writeInteger(UInt8(rest >> shift & 0x7F) | 0x80) }
            payload.writeInteger(UInt8(rest >> 28))
            payload.writeRepeatingByte(0x61, count: rest)
            return Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload)
        }

        /// Returns compressed zeros.
        private static func bombs(of lengths: [Int], type: UInt32) throws -> [Envelope.Sealed] {
            try lengths.map { length in
                try Envelope.seal(
                    type: type,
                    body: ByteBuffer(repeating: 0, count: length),
                    compression: CompressionPolicy(minimumLength: 0)
                )
            }
        }
    }
}
