// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore

extension HostileClient.Attack {
    private typealias Act = HostileClient.Act

    /// Runs an attack that a server meets before the first frame.
    func attackAccepting(
        _ target: Target,
        _ type: UInt32,
        _ strength: Int,
        _ seed: UInt64
    ) async throws -> [HostileClient] {
        switch self {
        case .idleCrowd:
            return try await self.crowd(of: 1_000 * strength, target, atOnce: 64) { _ in .raw([]) }
        case .connectionStorm:
            return try await self.crowd(of: 500 * strength, target, stays: false) { number in
                .ping().then(number % 2 == 0 ? .close : .reset)
            }
        case .protocolErrors:
            return try await self.crowd(of: 300 * strength, target, stays: false) { number in
                .garbage(64, seed: seed &+ UInt64(number))
            }
        case .proxyHeaders:
            let request = Act.request(type, serial: 50, "nobody may see this")
            let headers = Self.headersOfProxies
            return try await self.crowd(of: headers.count * 4 * strength, target) { number in
                let header = Act.raw(headers[number % headers.count])
                return number % 2 == 0 ? header.then(request) : header.dribbled(bytes: 5).then(request)
            }
        default:
            return []
        }
    }

    /// Headers of both versions of the PROXY protocol. The first of each is right.
    private static var headersOfProxies: [[UInt8]] {
        let lines = [
            "PROXY TCP4 192.0.2.1 192.0.2.2 1024 80\r\n",
            "PROXY TCP4 127.0.0.1 127.0.0.1 1024 80\r\n",
            "PROXY UNKNOWN\r\n",
            "PROXY TCP4 999.0.2.1 192.0.2.2 1024 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 65536 -1\r\n",
            "PROXY TCP6 ::1 192.0.2.2 1024 80\r\n",
            "PROXY TCP4  192.0.2.1 192.0.2.2 1024 80\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1024 80\n",
            "PROXY TCP4 192.0.2.1",
            "PROXY " + String(repeating: "x", count: 200_000),
            "proxy tcp4 192.0.2.1 192.0.2.2 1024 80\r\n",
        ]
        let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
        let addresses: [UInt8] = [192, 0, 2, 1, 192, 0, 2, 2, 4, 0, 0, 80]
        // Version and command, family and protocol, the length of what follows.
        let binary: [[UInt8]] = [
            [0x21, 0x11, 0, 12] + addresses,
            [0x20, 0x00, 0, 0],
            [0x21, 0x11, 0, 4] + addresses,
            [0x21, 0x11, 0xFF, 0xFF] + addresses,
            [0x21, 0x11, 0xFF, 0xFF] + addresses + [UInt8](repeating: 4, count: 65_523),
            [0x21, 0x21, 0, 12] + addresses,
            [0x21, 0xFF, 0, 12] + addresses,
            [0x31, 0x11, 0, 12] + addresses,
            [0x2F, 0x11, 0, 12] + addresses,
            // A field whose length exceeds the header.
            [0x21, 0x11, 0, 15] + addresses + [0x01, 0xFF, 0xFF],
            [],
        ]
        return lines.map { Array($0.utf8) } + binary.map { signature + $0 }
    }
}
