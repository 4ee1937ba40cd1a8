// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore

extension HostileClient.Attack {
    private typealias Act = HostileClient.Act

    /// Runs one of ``onTLS``.
    func attackTLS(_ target: Target, _ strength: Int, _ seed: UInt64) async throws -> [HostileClient] {
        guard self != .handshakeStorm else {
            return try await self.crowd(of: 100 * strength, target, atOnce: 8, stays: false) { _ in .close }
        }
        // These attacks send their bytes in place of TLS and its content.
        var target = target
        target.endpoint = Endpoint(host: target.endpoint.host, port: target.endpoint.port)
        target.tls = nil
        let hello = Self.clientHello
        switch self {
        case .abandonedHandshakes:
            return try await self.crowd(of: 200 * strength, target) { number in
                switch number % 3 {
                case 0: .raw(hello)
                case 1: .raw(hello.prefix(5 + number % (hello.count - 5)))
                default: .raw(hello.prefix(20)).dribbled()
                }
            }
        case .brokenHandshakes:
            let tails = Self.brokenTails
            return try await self.crowd(of: tails.count * 8 * strength, target) { number in
                let tail = tails[number / 2 % tails.count]
                // Half of them without a beginning.
                let act = Act.raw((number % 2 == 0 ? hello : []) + tail)
                return tail.isEmpty ? act.then(.garbage(20_000, seed: seed &+ UInt64(number))) : act
            }
        default:
            return []
        }
    }

    /// Bytes that a client can send after a ClientHello, and must not.
    private static var brokenTails: [[UInt8]] {
        func record(_ length: Int, _ content: [UInt8]? = nil, type: UInt8 = 0x16) -> [UInt8] {
            [type, 0x03, 0x03, UInt8(length >> 8), UInt8(length & 0xFF)]
                + (content ?? [UInt8](repeating: 0x61, count: length))
        }
        func repeated(_ bytes: [UInt8], _ count: Int) -> [UInt8] { (0..<count).flatMap { _ in bytes } }
        return [
            [],
            // Records of the greatest length, and of more; empty ones without end.
            record(0x4000),
            record(0xFFFF),
            repeated(record(0), 10_000),
            // A message of 16 MiB in records of 16 KiB.
            record(4, [0x0B, 0xFF, 0xFF, 0xFF]) + repeated(record(0x4000), 64),
            repeated(self.clientHello, 1_000),
            // Alerts, and application data before there are keys.
            repeated(record(2, [0x01, 0x00], type: 0x15), 1_000),
            record(16, type: 0x17),
        ]
    }

    /// A ClientHello of TLS 1.2 that any server accepts: the server has computed its key and signature when the client
    /// falls silent.
    private static var clientHello: [UInt8] {
        let suites: [UInt16] = [0xC02B, 0xC02F, 0xC02C, 0xC030, 0xC009, 0xC013, 0x009C, 0x002F]
        let groups: [UInt16] = [0x001D, 0x0017, 0x0018]
        let signatures: [UInt16] = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]
        var extensions = ByteBuffer()
        func add(_ type: UInt16, _ write: (inout ByteBuffer) -> Void) {
            var content = ByteBuffer()
            write(&content)
            extensions.writeInteger(type)
            extensions.writeVector(content, UInt16.self)
        }
        add(0x000A) { $0.writeVector(groups.bytes, UInt16.self) }
        add(0x000B) { $0.writeBytes([0x01, 0x00]) }
        add(0x000D) { $0.writeVector(signatures.bytes, UInt16.self) }
        add(0x0017) { _ in }

        var body = ByteBuffer(bytes: [0x03, 0x03])
        body.writeRepeatingByte(0x5A, count: 32)
        // No session to resume; no compression.
        body.writeInteger(0 as UInt8)
        body.writeVector(suites.bytes, UInt16.self)
        body.writeBytes([0x01, 0x00])
        body.writeVector(extensions, UInt16.self)

        // A message of type 1 has a length of 24 bits.
        var message = ByteBuffer(bytes: [0x01, 0x00])
        message.writeVector(body, UInt16.self)
        var record = ByteBuffer(bytes: [0x16, 0x03, 0x01])
        record.writeVector(message, UInt16.self)
        return Array(record.readableBytesView)
    }
}

extension ByteBuffer {
    /// Writes the length of these bytes, and then the bytes.
    fileprivate mutating func writeVector<Length: FixedWidthInteger>(_ bytes: ByteBuffer, _: Length.Type) {
        self.writeInteger(Length(truncatingIfNeeded: bytes.readableBytes))
        self.writeImmutableBuffer(bytes)
    }
}

extension [UInt16] {
    fileprivate var bytes: ByteBuffer {
        var bytes = ByteBuffer()
        for element in self { bytes.writeInteger(element) }
        return bytes
    }
}
