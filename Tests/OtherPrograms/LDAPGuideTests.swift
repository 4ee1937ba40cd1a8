// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

/// `LDAPMessage ::= SEQUENCE { messageID INTEGER, protocolOp CHOICE { … }, controls [0] Controls OPTIONAL }`
struct LDAPCodec: FrameCodec {
    struct Illegal: Error {
        var fault: String
    }

    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        // A peer that speaks another protocol is known by its first byte.
        guard bytes.getInteger(at: bytes.readerIndex) == 0x30 as UInt8 else {
            throw Illegal(fault: "a message is no SEQUENCE")
        }
        // Nothing is taken before all of the message is here.
        var rest = bytes
        let limit = UInt32(maximumPayloadLength) + 1_024
        guard let message = try rest.readElement(limit: limit) else { return nil }
        var fields = message.contents
        guard let id = try fields.readElement(limit: limit), id.tag == 0x02, let serial = id.contents.messageID else {
            throw Illegal(fault: "a message has no messageID")
        }
        guard let operation = try fields.readElement(limit: limit), operation.tag.isLDAPOperation else {
            throw Illegal(fault: "a message has no protocolOp")
        }
        bytes = rest
        return Frame(type: UInt32(operation.tag), serial: serial, payload: operation.contents)
    }

    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        guard let tag = UInt8(exactly: frame.type), tag.isLDAPOperation else {
            throw Illegal(fault: "\(frame.type) is the tag of no protocolOp")
        }
        guard let id = Int32(exactly: frame.serial) else {
            throw Illegal(fault: "\(frame.serial) is no messageID")
        }
        // As few bytes as there can be, of which the first bit is the sign.
        let count = 4 - (id.leadingZeroBitCount - 1) / 8
        let octets = withUnsafeBytes(of: id.bigEndian) { Array($0.suffix(count)) }
        var message = ByteBuffer()
        message.writeElement(0x02, ByteBuffer(bytes: octets))
        message.writeElement(tag, frame.payload)
        bytes.writeElement(0x30, message)
    }
}

extension UInt8 {
    /// Whether it is a tag of the class APPLICATION, in one byte.
    fileprivate var isLDAPOperation: Bool { self & 0xC0 == 0x40 && self & 0x1F != 0x1F }
}

extension ByteBuffer {
    /// Reads an element of BER: a tag, a length in one byte or in those that follow 0x80 + their number, and contents.
    ///
    /// - Returns: Nil where more bytes are needed; nothing has been read then.
    mutating func readElement(limit: UInt32) throws -> (tag: UInt8, contents: ByteBuffer)? {
        var rest = self
        guard let tag = rest.readInteger(as: UInt8.self), let first = rest.readInteger(as: UInt8.self) else {
            return nil
        }
        var length = UInt32(first)
        if first >= 0x80 {
            let count = Int(first & 0x7F)
            guard (1...4).contains(count) else { throw LDAPCodec.Illegal(fault: "a length has \(count) bytes") }
            guard let octets = rest.readBytes(length: count) else { return nil }
            length = octets.reduce(0) { $0 << 8 | UInt32($1) }
        }
        guard length <= limit else { throw LDAPCodec.Illegal(fault: "an element has \(length) bytes") }
        guard let contents = rest.readSlice(length: Int(length)) else { return nil }
        self = rest
        return (tag, contents)
    }

    /// Writes an element with the shortest length, as LDAP prefers it.
    mutating func writeElement(_ tag: UInt8, _ contents: ByteBuffer) {
        self.writeInteger(tag)
        let length = contents.readableBytes
        if length < 0x80 {
            self.writeInteger(UInt8(length))
        } else {
            let octets = withUnsafeBytes(of: UInt32(length).bigEndian) { Array($0.drop { $0 == 0 }) }
            self.writeInteger(0x80 | UInt8(octets.count))
            self.writeBytes(octets)
        }
        self.writeImmutableBuffer(contents)
    }

    /// Of the contents of an INTEGER: 0 to 2147483647.
    fileprivate var messageID: UInt32? {
        guard (1...4).contains(self.readableBytes), self.readableBytesView[self.readerIndex] < 0x80 else { return nil }
        return self.readableBytesView.reduce(0) { $0 << 8 | UInt32($1) }
    }
}

extension WireFormat {
    static func ldap() throws -> WireFormat {
        try WireFormat(
            codec: LDAPCodec(),
            rules: WireFormat.Rules(
                name: "LDAP",
                applicationTypes: 0x40...0x7E,
                requestSerials: 1...2_147_483_647,
                hasStatus: false,
                push: .init(serial: 0)
            )
        )
    }
}

/// The examples of `FrameCodecs.md`, word for word, with bytes by hand and with a server in Python.
@Suite(.timeLimit(.minutes(5))) struct LDAPGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "FrameCodecs").shortcomings() == [])
    }

    // MARK: Bytes

    /// Messages of RFC 4511, encoded by hand by the rules of its section 5.1.
    static let golden: [(frame: Frame, direction: FrameDirection, hex: String)] = [
        // 4.2: an anonymous bind, and success.
        (Self.frame(0x60, 1, "020103 0400 8000"), .request, "300C 020101 6007 020103 0400 8000"),
        (Self.frame(0x61, 1, "0A0100 0400 0400"), .response, "300C 020101 6107 0A0100 0400 0400"),
        // 4.3: UnbindRequest, NULL. A messageID whose first bit is set has a zero before it.
        (Self.frame(0x42, 128, ""), .request, "3006 02020080 4200"),
        (Self.frame(0x42, 2_147_483_647, ""), .request, "3008 02047FFFFFFF 4200"),
        // 4.4.1: Notice of Disconnection: unavailable (52), and its name, 1.3.6.1.4.1.1466.20036.
        (
            Self.frame(0x78, 0, "0A0134 0400 0400 8A16 312E332E362E312E342E312E313436362E3230303336"), .response,
            "3024 020100 781F 0A0134 0400 0400 8A16 312E332E362E312E342E312E313436362E3230303336"
        ),
        // 4.5.2: an entry of 131 bytes: lengths of more than 127 take two bytes here.
        (
            Self.frame(0x64, 5, "047F" + String(repeating: "61", count: 127) + "3000"), .response,
            "308189 020105 648183 047F" + String(repeating: "61", count: 127) + "3000"
        ),
    ]

    private static func frame(_ type: UInt32, _ serial: UInt32, _ hex: String) -> Frame {
        Frame(type: type, serial: serial, payload: ByteBuffer(bytes: Self.bytes(hex)))
    }

    private static func bytes(_ hex: String) -> [UInt8] {
        let digits = hex.compactMap(\.hexDigitValue).map { UInt8($0) }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    private static func decode(_ hex: String, _ direction: FrameDirection) throws -> [Frame] {
        var decoder = FrameDecoder(direction: direction, format: try .ldap())
        decoder.append(ByteBuffer(bytes: Self.bytes(hex)))
        var frames: [Frame] = []
        while let output = try decoder.next() {
            if case .frame(let frame) = output { frames.append(frame) }
        }
        return frames
    }

    @Test func bytesOfTheSpecification() throws {
        for (frame, direction, hex) in Self.golden {
            var bytes = ByteBuffer()
            FrameEncoder(direction: direction, format: try .ldap()).encode(frame, into: &bytes)
            #expect(Array(bytes.readableBytesView) == Self.bytes(hex))
            #expect(try Self.decode(hex, direction) == [frame])
        }
    }

    @Test(arguments: [
        // As Active Directory writes lengths.
        "30840000000C 020101 6107 0A0100 0400 0400", "3010 020101 61840000 0007 0A0100 0400 0400",
        // Controls, which are ignored.
        "300E 020101 6107 0A0100 0400 0400 A000",
    ])
    func messagesWrittenInAnotherWay(hex: String) throws {
        #expect(try Self.decode(hex, .response) == [Self.frame(0x61, 1, "0A0100 0400 0400")])
    }

    @Test(arguments: [
        ("474554", "no SEQUENCE"), ("3080", "a length has 0 bytes"), ("3085", "a length has 5 bytes"),
        ("3084FFFFFFFF", "an element has 4294967295 bytes"), ("3000", "no messageID"), ("3003 0401 01", "no messageID"),
        ("3007 0205 0100000000", "no messageID"), ("3005 0201FF 4200", "no messageID"),
        ("3003 020101", "no protocolOp"),
        ("3005 020101 0400", "no protocolOp"), ("3006 020101 5F2000", "no protocolOp"),
        ("3005 020101 4205", "no protocolOp"),
    ])
    func invalidMessages(hex: String, fault: String) throws {
        let error = #expect(throws: FrameError.self) { try Self.decode(hex, .request) }
        #expect(error?.code == .codec)
        #expect(error?.message.contains(fault) == true, "\(error?.message ?? "")")
    }

    @Test func theVerifierFindsNothing() throws {
        let (bind, search) = (ByteBuffer(bytes: Self.bytes("020103 0400 8000")), Self.search("cn=alice"))
        do {
            let verifier = WireFormatVerifier(try .ldap())
            try verifier.verify(
                [
                    Frame(type: 0x60, serial: 1, payload: bind),
                    // UnbindRequest, which is NULL, and the last messageID.
                    Frame(type: 0x42, serial: 2_147_483_647),
                    Frame(type: 0x63, serial: 0x80, payload: search),
                ],
                direction: .request
            )
        }
        try WireFormatVerifier(.ldap(), seed: 2).verify(
            Self.golden.filter { $0.direction == .response }.map(\.frame),
            direction: .response
        )
    }

    // MARK: A server

    /// SearchRequest for one entry with all of its attributes.
    private static func search(_ name: String) -> ByteBuffer {
        var search = ByteBuffer()
        search.writeElement(0x04, ByteBuffer(string: name))
        // baseObject, neverDerefAliases, no limits, types and values; (objectClass=*), all attributes.
        search.writeBytes(Self.bytes("0A0100 0A0100 020100 020100 010100"))
        search.writeElement(0x87, ByteBuffer(string: "objectClass"))
        search.writeElement(0x30, ByteBuffer())
        return search
    }

    @Test(.tags(.io), .enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)))
    func bindAndSearch() async throws {
        try await withServer(Python.ldapServer()) { address, _ in
            let server = try #require(Endpoint(address))
            var configuration = SocketClient.Configuration(servers: [server])
            configuration.socket.wireFormat = try .ldap()
            let client = SocketClient(configuration: configuration)
            client.connect()

            // BindRequest, of which the answer is a BindResponse: version 3, the name, and a password (simple).
            var bind = ByteBuffer()
            bind.writeElement(0x02, ByteBuffer(bytes: [3]))
            bind.writeElement(0x04, ByteBuffer(string: "cn=admin"))
            bind.writeElement(0x80, ByteBuffer(string: "secret"))
            let response = try await client.data(for: SocketRequest(type: 0x60, body: bind))
            var fields = response.body
            // 0 is success.
            let resultCode = try fields.readElement(limit: 1_024)
            #expect(response.type == 0x61)
            #expect(resultCode?.tag == 0x0A)
            #expect(resultCode?.contents == ByteBuffer(bytes: [0]))

            let pushes = client.pushes()
            let found = try await client.data(for: SocketRequest(type: 0x63, body: Self.search("cn=alice")))
            #expect(found.type == 0x64)
            var entry = found.body
            #expect(try entry.readElement(limit: 1_024)?.contents == ByteBuffer(string: "cn=alice"))
            let text = String(buffer: found.body)
            #expect(text.contains("Alice"))
            // More than a length of one byte can express.
            #expect(found.body.readableBytes > 300)
            // SearchResultDone answers nothing.
            try await eventually("the rest of the answer") { client.statistics.duplicateResponses == 1 }

            // Many calls at once, each of which gets its own answer.
            try await withThrowingTaskGroup { group in
                for number in 0..<50 {
                    group.addTask {
                        let name = "cn=\(number)"
                        let found = try await client.data(for: SocketRequest(type: 0x63, body: Self.search(name)))
                        var entry = found.body
                        #expect(try entry.readElement(limit: 1_024)?.contents == ByteBuffer(string: name))
                    }
                }
                try await group.waitForAll()
            }

            _ = try await client.data(for: SocketRequest(type: 0x63, body: Self.search("cn=notice")))
            let notice = try await first(of: pushes, "the Notice of Disconnection")
            #expect(notice.type == 0x78)
            #expect(notice.string.contains("1.3.6.1.4.1.1466.20036"))
            await client.close()
        }
    }
}
