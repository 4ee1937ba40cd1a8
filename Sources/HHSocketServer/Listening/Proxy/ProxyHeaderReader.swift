// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Reads the PROXY header with which a connection begins (version 1 or 2), however the bytes were split.
///
/// The protocol is HAProxy's: `proxy-protocol.txt` of its documentation.
struct ProxyHeaderReader: Sendable {
    /// The longest line of version 1, with its CR LF.
    static let longestLine = 107
    /// The largest length that a header of version 2 may announce: that of two addresses, and of proxies' additions
    /// about TLS.
    static let largestBlock = 4_096

    private static let signature: [UInt8] = [
        0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A,
    ]
    private static let lineStart = Array("PROXY ".utf8)

    private var bytes = ByteBuffer()

    /// Whether no byte has arrived.
    var isEmpty: Bool { self.bytes.readableBytes == 0 }

    mutating func append(_ bytes: ByteBuffer) {
        guard self.bytes.readableBytes > 0 else {
            self.bytes = bytes
            return
        }
        self.bytes.writeImmutableBuffer(bytes)
    }

    /// Returns the header; nil if it is incomplete. Not called again once it has returned one, or thrown.
    mutating func next() throws(ProxyHeaderFault) -> ProxyHeader? {
        guard let first = self.bytes.readableBytesView.first else { return nil }
        return first == Self.signature[0] ? try self.nextBlock() : try self.nextLine()
    }

    /// Removes the bytes after the header.
    mutating func takeRest() -> ByteBuffer {
        defer { self.bytes = ByteBuffer() }
        return self.bytes.slice()
    }

    private func check(start: [UInt8]) throws(ProxyHeaderFault) {
        let view = self.bytes.readableBytesView
        guard view.prefix(start.count).elementsEqual(start.prefix(view.count)) else { throw .missing }
    }

    // MARK: Version 1

    private mutating func nextLine() throws(ProxyHeaderFault) -> ProxyHeader? {
        try self.check(start: Self.lineStart)
        let view = self.bytes.readableBytesView.prefix(Self.longestLine)
        guard let end = view.firstIndex(of: UInt8(ascii: "\n")) else {
            guard view.count < Self.longestLine else { throw .lineTooLong }
            return nil
        }
        let line = view[..<end]
        guard line.last == UInt8(ascii: "\r") else { throw .line }
        let header = try Self.header(of: String(decoding: line.dropLast(), as: UTF8.self))
        self.bytes.moveReaderIndex(forwardBy: line.count + 1)
        return header
    }

    private static func header(of line: String) throws(ProxyHeaderFault) -> ProxyHeader {
        let words = line.split(separator: " ", omittingEmptySubsequences: false)
        guard words.count > 1 else { throw .line }
        // The rest must be ignored.
        if words[1] == "UNKNOWN" { return .proxyItself }
        guard words.count == 6, let port = UInt16(decimal: words[4]), UInt16(decimal: words[5]) != nil,
            let source = SocketAddress(numericHost: words[2], port: port),
            let destination = SocketAddress(numericHost: words[3])
        else { throw .line }
        switch (words[1], source, destination) {
        case ("TCP4", .v4, .v4), ("TCP6", .v6, .v6): return .client(source)
        default: throw .line
        }
    }

    // MARK: Version 2

    private mutating func nextBlock() throws(ProxyHeaderFault) -> ProxyHeader? {
        try self.check(start: Self.signature)
        var bytes = self.bytes
        guard bytes.readSlice(length: Self.signature.count) != nil,
            let (versionAndCommand, family, length) = bytes.readMultipleIntegers(as: (UInt8, UInt8, UInt16).self)
        else { return nil }
        guard versionAndCommand >> 4 == 2 else { throw .version(versionAndCommand >> 4) }
        let command = versionAndCommand & 0xF
        guard command <= 1 else { throw .command(command) }
        guard length <= Self.largestBlock else { throw .tooLong(Int(length)) }
        guard var block = bytes.readSlice(length: Int(length)) else { return nil }
        // The addresses of the proxy's own connections must be ignored.
        let header = command == 0 ? .proxyItself : try Self.header(of: &block, family)
        self.bytes = bytes
        return header
    }

    /// Reads the addresses; the following types, lengths and values are not used.
    private static func header(
        of block: inout ByteBuffer,
        _ family: UInt8
    ) throws(ProxyHeaderFault) -> ProxyHeader {
        let length = block.readableBytes
        switch family {
        case 0x00:
            return .proxyItself
        case 0x11, 0x12:
            return .client(try Self.address(in: &block, length: 4))
        case 0x21, 0x22:
            return .client(try Self.address(in: &block, length: 16))
        case 0x31, 0x32:
            guard let path = block.readSlice(length: 108), block.readSlice(length: 108) != nil else {
                throw .tooShort(length)
            }
            let name = String(decoding: path.readableBytesView.prefix { $0 != 0 }, as: UTF8.self)
            // Most clients' sockets have no name.
            guard !name.isEmpty, let address = try? SocketAddress(unixDomainSocketPath: name) else {
                return .proxyItself
            }
            return .client(address)
        default:
            throw .family(family)
        }
    }

    /// Reads two IP addresses of `length` bytes and their ports, and returns the first.
    private static func address(
        in block: inout ByteBuffer,
        length: Int
    ) throws(ProxyHeaderFault) -> SocketAddress {
        let count = block.readableBytes
        guard let source = block.readSlice(length: length), block.readSlice(length: length) != nil,
            let (port, _) = block.readMultipleIntegers(as: (UInt16, UInt16).self),
            let address = try? SocketAddress(packedIPAddress: source, port: Int(port))
        else { throw .tooShort(count) }
        return address
    }
}
