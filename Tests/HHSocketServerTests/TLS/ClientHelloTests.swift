// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOEmbedded
import TestSupport
import Testing

@testable import HHSocketServer

/// The protocols that a client offers, and its admission to TLS.
@Suite struct ClientHelloTests {
    /// A hello in records of at most `recordLength` bytes.
    ///
    /// - Parameter protocols: Nil for no extension.
    private static func hello(_ protocols: [String]?, recordLength: Int = 16_384, cookies: Int = 0) -> ByteBuffer {
        var extensions = ByteBuffer()
        // Another extension, before it.
        extensions.writeInteger(UInt16(0xFE0D))
        extensions.writeInteger(UInt16(cookies))
        extensions.writeRepeatingByte(1, count: cookies)
        if let protocols {
            var names = ByteBuffer()
            for name in protocols {
                names.writeInteger(UInt8(name.utf8.count))
                names.writeString(name)
            }
            extensions.writeInteger(UInt16(16))
            extensions.writeInteger(UInt16(names.readableBytes + 2))
            extensions.writeInteger(UInt16(names.readableBytes))
            extensions.writeImmutableBuffer(names)
        }
        var body = ByteBuffer()
        body.writeInteger(UInt16(0x0303))
        body.writeRepeatingByte(9, count: 32)
        body.writeBytes([0, 0, 2, 0x13, 0x01, 1, 0])
        body.writeInteger(UInt16(extensions.readableBytes))
        body.writeImmutableBuffer(extensions)
        var message = ByteBuffer(integer: UInt32(1) << 24 | UInt32(body.readableBytes))
        message.writeImmutableBuffer(body)
        var records = ByteBuffer()
        while message.readableBytes > 0, let part = message.readSlice(length: min(recordLength, message.readableBytes))
        {
            records.writeBytes([22, 3, 1])
            records.writeInteger(UInt16(part.readableBytes))
            records.writeImmutableBuffer(part)
        }
        return records
    }

    private func read(_ bytes: ByteBuffer) -> ClientHelloReader.Result {
        var (reader, bytes) = (ClientHelloReader(), bytes)
        return reader.read(&bytes)
    }

    @Test(arguments: [nil, [], ["h2"], ["hhsocket", "http/1.1"]] as [[String]?], [1, 7, 100, 16_384])
    func protocolsAreReadHoweverTheHelloIsCut(protocols: [String]?, recordLength: Int) {
        let bytes = Self.hello(protocols, recordLength: recordLength)
        let expected = ClientHelloReader.Result.offered((protocols ?? []).map { Array($0.utf8) })
        #expect(self.read(bytes) == expected)
        // Byte by byte.
        var reader = ClientHelloReader()
        var rest = ByteBuffer()
        var results: [ClientHelloReader.Result] = []
        for byte in bytes.readableBytesView {
            rest.writeInteger(byte)
            results.append(reader.read(&rest))
        }
        #expect(results.dropLast().allSatisfy { $0 == .incomplete })
        #expect(results.last == expected)
    }

    @Test func otherRecordsThanHelloAreLeftToTLS() {
        let hello = Self.hello(["h2"])
        #expect(self.read(ByteBuffer(string: "GET / HTTP/1.1\r\n\r\n")) == .unknown)
        for (index, byte) in [(0, UInt8(23)), (5, 2), (6, 0xFF)] {
            var changed = hello
            changed.setInteger(byte, at: index)
            #expect(self.read(changed) == .unknown)
        }
        // An empty record.
        #expect(self.read(ByteBuffer(bytes: [22, 3, 1, 0, 0])) == .unknown)
        // A record over the maximum length.
        #expect(self.read(ByteBuffer(bytes: [22, 3, 1, 0x40, 1])) == .unknown)
    }

    @Test func nothingFromTheWireTraps() {
        var random = SeededGenerator(seed: 1)
        let hello = Self.hello(["h2", "hhsocket"])
        for _ in 0..<scaled(20_000) {
            var bytes = hello
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let index = Int.random(in: 0..<bytes.readableBytes, using: &random)
                bytes.setInteger(UInt8.random(in: 0...255, using: &random), at: index)
            }
            var reader = ClientHelloReader()
            var part = bytes.readSlice(length: Int.random(in: 0...bytes.readableBytes, using: &random)) ?? ByteBuffer()
            if case .incomplete = reader.read(&part) {
                part.writeBuffer(&bytes)
                _ = reader.read(&part)
            }
        }
    }

    // MARK: The gate

    private func gate(_ bytes: [ByteBuffer]) throws -> (passed: ByteBuffer, alert: ByteBuffer?, isOpen: Bool) {
        let channel = EmbeddedChannel(handler: ApplicationProtocolGate([Array("hhsocket".utf8)], account: nil))
        defer { _ = try? channel.finish(acceptAlreadyClosed: true) }
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        for part in bytes { _ = try? channel.writeInbound(part) }
        var passed = ByteBuffer()
        while var part = try channel.readInbound(as: ByteBuffer.self) { passed.writeBuffer(&part) }
        channel.embeddedEventLoop.run()
        return (passed, try channel.readOutbound(as: ByteBuffer.self), channel.isActive)
    }

    @Test func helloThatOffersTheProtocolPassesWithAllBytes() throws {
        var hello = Self.hello(["h2", "hhsocket"], recordLength: 20)
        var parts: [ByteBuffer] = []
        while let part = hello.readSlice(length: min(13, max(1, hello.readableBytes))) { parts.append(part) }
        parts.append(ByteBuffer(string: "what comes behind it"))
        let (passed, alert, isOpen) = try self.gate(parts)
        #expect(passed.readableBytesView.elementsEqual(parts.flatMap { Array($0.readableBytesView) }))
        #expect(alert == nil)
        #expect(isOpen)
    }

    @Test(arguments: [nil, [], ["h2"], ["hhsocket2", "HHSOCKET"]] as [[String]?])
    func othersGetTheAlert(protocols: [String]?) throws {
        let (passed, alert, isOpen) = try self.gate([Self.hello(protocols), ByteBuffer(string: "more")])
        #expect(passed.readableBytes == 0)
        #expect(alert == ByteBuffer(bytes: [21, 3, 3, 0, 2, 2, 120]))
        #expect(!isOpen)
    }

    @Test func unreadableHelloIsPassedOn() throws {
        let other = ByteBuffer(string: "no TLS")
        #expect(try self.gate([other]).passed == other)
        // Records of one byte each are not held forever.
        let long = Self.hello(["hhsocket"], recordLength: 1, cookies: 16_000)
        let (passed, alert, isOpen) = try self.gate([long])
        #expect(passed.readableBytes == long.readableBytes)
        #expect(alert == nil && isOpen)
    }
}
