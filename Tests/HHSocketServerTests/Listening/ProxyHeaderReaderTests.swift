// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

@Suite struct ProxyHeaderReaderTests {
    private static let tlvs: [UInt8] = [0x03, 0, 4, 1, 2, 3, 4, 0x20, 0, 5, 1, 0, 0, 0, 0, 0xEE, 0xFF, 0xFF]
    private static let six: [UInt8] =
        [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] + [UInt8](repeating: 7, count: 16)
        + [0x12, 0x67, 1, 0xBB]

    private static func path(_ text: String) -> [UInt8] {
        Array(text.utf8) + [UInt8](repeating: 0, count: 108 - text.utf8.count)
    }

    /// Reads a header from pieces; returns it with the remaining bytes.
    private static func read(
        _ pieces: [ArraySlice<UInt8>]
    ) throws -> (header: ProxyHeader, rest: [UInt8])? {
        var reader = ProxyHeaderReader()
        var header: ProxyHeader?
        var behind: [UInt8] = []
        for piece in pieces {
            guard header == nil else {
                behind += piece
                continue
            }
            reader.append(ByteBuffer(bytes: piece))
            header = try reader.next()
        }
        return header.map { ($0, Array(reader.takeRest().readableBytesView) + behind) }
    }

    private static func read(_ bytes: [UInt8]) throws -> ProxyHeader? { try Self.read([bytes[...]])?.header }

    private static func ip(_ text: String, _ port: Int = 4_711) throws -> ProxyHeader {
        .client(try SocketAddress(ipAddress: text, port: port))
    }

    // MARK: What is read

    @Test(arguments: [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 4711 443", "192.0.2.7", 4_711),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535", "255.255.255.255", 65_535),
        ("PROXY TCP4 0.0.0.0 0.0.0.0 0 0", "0.0.0.0", 0),
        ("PROXY TCP6 2001:db8::1 ::1 4711 443", "2001:db8::1", 4_711),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 4711 443", "::ffff:192.0.2.7", 4_711),
        (
            "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65_535
        ),
    ])
    func linesNameTheClient(line: String, address: String, port: Int) throws {
        #expect(try Self.read(Array("\(line)\r\n".utf8)) == Self.ip(address, port))
    }

    @Test(arguments: [
        "PROXY UNKNOWN", "PROXY UNKNOWN ", "PROXY UNKNOWN nothing of this is looked at \u{1F600}",
        "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535",
    ])
    func linesOfUnknownClientsAreTheProxys(line: String) throws {
        #expect(try Self.read(Array("\(line)\r\n".utf8)) == .proxyItself)
    }

    @Test func blocksNameTheClient() throws {
        #expect(try Self.read(ProxyHeaders.blockTCP4) == Self.ip("192.0.2.7"))
        // Any bytes after the addresses are skipped.
        let content = ProxyHeaders.blockTCP4.suffix(12) + Self.tlvs
        #expect(try Self.read(ProxyHeaders.block(family: 0x11, Array(content))) == Self.ip("192.0.2.7"))
        #expect(try Self.read(ProxyHeaders.block(family: 0x12, Array(content))) == Self.ip("192.0.2.7"))
        for family in [0x21, 0x22] as [UInt8] {
            #expect(try Self.read(ProxyHeaders.block(family: family, Self.six)) == Self.ip("2001:db8::1"))
            #expect(try Self.read(ProxyHeaders.block(family: family, Self.six + Self.tlvs)) == Self.ip("2001:db8::1"))
        }
        let largest = Array(ProxyHeaders.blockTCP4.suffix(12)) + [UInt8](repeating: 0xAA, count: 4_084)
        #expect(try Self.read(ProxyHeaders.block(family: 0x11, largest)) == Self.ip("192.0.2.7"))
    }

    @Test func unixSocketsOfProxiesHaveNamesOrNone() throws {
        let named = ProxyHeaders.block(family: 0x31, Self.path("/run/app.sock") + Self.path("/run/proxy.sock"))
        #expect(try Self.read(named) == .client(SocketAddress(unixDomainSocketPath: "/run/app.sock")))
        for path in [Self.path(""), Self.path("\0abstract"), [UInt8](repeating: 0xFF, count: 108)] {
            let block = ProxyHeaders.block(family: 0x32, path + Self.path("/run/proxy.sock") + Self.tlvs)
            #expect(try Self.read(block) == .proxyItself)
        }
    }

    @Test func localAndUnspecifiedConnectionsAreTheProxys() throws {
        #expect(try Self.read(ProxyHeaders.local) == .proxyItself)
        // Its family and its addresses are ignored.
        #expect(try Self.read(ProxyHeaders.block(command: 0, family: 0xEE, [1, 2, 3])) == .proxyItself)
        #expect(try Self.read(ProxyHeaders.block(family: 0x00, [])) == .proxyItself)
        #expect(try Self.read(ProxyHeaders.block(family: 0x00, Self.tlvs)) == .proxyItself)
    }

    @Test(arguments: [
        ProxyHeaders.lineTCP4, Array("PROXY UNKNOWN\r\n".utf8), ProxyHeaders.blockTCP4, ProxyHeaders.local,
        ProxyHeaders.block(family: 0x21, Self.six + Self.tlvs),
    ])
    func anySplitReadsTheSameAndKeepsTheRest(header: [UInt8]) throws {
        let whole = try #require(try Self.read(header))
        // The following bytes look like a header too.
        for rest in [[], [0x0D], Array("PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n".utf8)] as [[UInt8]] {
            try forEverySplit(header + rest) { pieces in
                let read = try #require(try Self.read(pieces))
                #expect(read.header == whole)
                #expect(read.rest == rest)
            }
        }
        for length in 0..<header.count { #expect(try Self.read([header[..<length]]) == nil) }
    }

    // MARK: What is not

    @Test(arguments: [
        "PROXY \r\n", "PROXY  TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", "PROXY TCP4\r\n", "PROXY TCP5 1 2 3 4\r\n",
        "PROXY tcp4 192.0.2.7 198.51.100.1 4711 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443 \r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4711\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443 5\r\n",
        "PROXY TCP4 192.0.2.256 198.51.100.1 4711 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100 4711 443\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 4711 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 65536 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4711 -1\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 +4711 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 04711 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1  443\r\n",
        "PROXY TCP4 ::1 ::1 4711 443\r\n", "PROXY TCP6 192.0.2.7 198.51.100.1 4711 443\r\n",
        "PROXY TCP6 ::1 198.51.100.1 4711 443\r\n", "PROXY TCP6 [::1] ::1 4711 443\r\n",
        "PROXY TCP6 fe80::1%lo ::1 4711 443\r\n", "PROXY TCP4 localhost 198.51.100.1 4711 443\r\n",
        "PROXY TCP4 192.0.2.7\0 198.51.100.1 4711 443\r\n", "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\r\n\n", "PROXY TCP4 192.0.2.7 198.51.100.1\n4711 443\r\n",
        "PROXY UNKNOWN\n", "PROXY UNKNOWNS\r\n", "PROXY \u{FF}\u{FF}\r\n",
    ])
    func linesThatAreMalformed(line: String) {
        #expect(throws: ProxyHeaderFault.line) { try Self.read(Array(line.utf8)) }
    }

    @Test func linesEndWithin107Bytes() throws {
        let unknown = "PROXY UNKNOWN "
        let longest = unknown + String(repeating: "x", count: 105 - unknown.utf8.count)
        #expect(try Self.read(Array("\(longest)\r\n".utf8)) == .proxyItself)
        for text in ["\(longest)x\r\n", "\(longest)xxxxxx", String(repeating: "PROXY ", count: 100)] {
            #expect(throws: ProxyHeaderFault.lineTooLong) { try Self.read(Array(text.utf8)) }
        }
        // The fault is detected as soon as it has arrived.
        #expect(try Self.read(Array("\(longest)\r".utf8)) == nil)
        #expect(throws: ProxyHeaderFault.lineTooLong) { try Self.read(Array("\(longest)\rx".utf8)) }
    }

    @Test(arguments: [
        Array("GET / HTTP/1.1\r\n".utf8), Array("PROXZ".utf8), Array("P ".utf8), Array("proxy".utf8), [0], [0xFF],
        [0x16, 3, 1], [13, 13], [13, 10, 13, 10, 1], Array(ProxyHeaders.local.prefix(11)) + [0], [10],
    ])
    func connectionsThatBeginOtherwise(bytes: [UInt8]) throws {
        #expect(throws: ProxyHeaderFault.missing) { try Self.read(bytes) }
        // It is detected with the first differing byte.
        for length in 0..<bytes.count where length < bytes.count - 1 {
            _ = try? Self.read([bytes[..<length]])
        }
        #expect(throws: ProxyHeaderFault.missing) { try Self.read(bytes.map { [$0][...] }) }
    }

    @Test func blocksThatAreMalformed() {
        func fault(_ fault: ProxyHeaderFault, _ bytes: [UInt8]) {
            #expect(throws: fault) { try Self.read(bytes) }
            #expect(throws: fault) { try Self.read(bytes.map { [$0][...] }) }
        }
        for version in [0, 1, 3, 15] as [UInt8] {
            fault(.version(version), ProxyHeaders.block(version: version, family: 0x11, []))
        }
        for command in 2...15 as ClosedRange<UInt8> {
            fault(.command(command), ProxyHeaders.block(command: command, family: 0x11, []))
        }
        for family in [0x01, 0x02, 0x10, 0x13, 0x20, 0x23, 0x30, 0x33, 0x41, 0xFF] as [UInt8] {
            fault(.family(family), ProxyHeaders.block(family: family, [UInt8](repeating: 1, count: 300)))
        }
        // Before the content has arrived.
        fault(.tooLong(4_097), ProxyHeaders.block(family: 0x11, length: 4_097, []))
        fault(.tooLong(65_535), ProxyHeaders.block(command: 0, family: 0, length: 65_535, []))
        for (family, needed) in [(0x11, 12), (0x21, 36), (0x31, 216)] as [(UInt8, Int)] {
            for length in [0, 1, needed - 1] {
                fault(.tooShort(length), ProxyHeaders.block(family: family, [UInt8](repeating: 1, count: length)))
            }
        }
    }

    @Test func everyFaultIsDescribed() {
        let faults: [ProxyHeaderFault] = [
            .missing, .lineTooLong, .line, .version(3), .command(2), .family(0x41), .tooLong(5_000), .tooShort(3),
            .incomplete, .timeout(.seconds(10)),
        ]
        #expect(Set(faults.map(\.description)).count == faults.count)
        #expect(ProxyHeaderFault.timeout(.seconds(10)).description.contains("10.0 seconds"))
    }

    /// Nothing traps, and the held bytes are bounded: the decision is made by the end of the longest header.
    @Test func randomBytesAreDecidedOn() {
        var generator = SeededGenerator(seed: 39)
        let starts: [[UInt8]] = [
            [], Array("PROXY ".utf8), Array("PROXY TCP4 ".utf8), Array("PROXY TCP6 ::1 ".utf8),
            Array(ProxyHeaders.local.prefix(12)), Array(ProxyHeaders.local.prefix(13)), ProxyHeaders.lineTCP4,
            ProxyHeaders.blockTCP4,
        ]
        for round in 0..<4_000 {
            var bytes = starts[round % starts.count]
            if round % 3 == 0, !bytes.isEmpty {
                bytes[Int.random(in: 0..<bytes.count, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            bytes += generator.bytes(round % 5 == 0 ? 5_000 : Int.random(in: 0...200, using: &generator))
            let pieces = generator.pieces(of: bytes, longest: 1 + round % 300)
            let isLong = bytes.count > 4_112
            do {
                let read = try Self.read(pieces)
                #expect(read != nil || !isLong)
                if let read { #expect(bytes.suffix(read.rest.count) == read.rest[...]) }
            } catch {
                #expect(error is ProxyHeaderFault)
            }
        }
    }
}
