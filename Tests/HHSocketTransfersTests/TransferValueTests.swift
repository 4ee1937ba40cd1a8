// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

/// Ids, hashes, type numbers and errors of transfers.
@Suite struct TransferValueTests {
    @Test(arguments: [
        "a", "-", "--", "...", ".a", "a.", "_", "AZaz09._-", "photo.jpg", String(repeating: "x", count: 128),
    ])
    func ids(text: String) { #expect(TransferID(text)?.description == text) }

    @Test(arguments: [
        "", ".", "..", "/", "a/b", "../a", "a\\b", "a\0", "\0", "a b", "a\n", "ä", "e\u{301}", "a+", "~", ":", "%2e",
        String(repeating: "x", count: 129),
    ])
    func noIds(text: String) { #expect(TransferID(text) == nil) }

    @Test func idOfAContentIsItsHash() throws {
        let digest = try #require(TransferDigest(bytes: SHA256.hash(of: UnsafeRawBufferPointer(start: nil, count: 0))))
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        #expect(digest.description == text)
        #expect(TransferID(digest).description == text)
        #expect(TransferDigest(hexadecimal: text) == digest)
        #expect(TransferDigest(hexadecimal: text.uppercased()) == digest)
        #expect(TransferDigest(hexadecimal: text.dropLast()) == nil)
        #expect(TransferDigest(hexadecimal: "\(text.dropLast())g") == nil)
        #expect(TransferDigest(hexadecimal: "\(text)00") == nil)
        #expect(TransferDigest(bytes: [UInt8](repeating: 0, count: 31)) == nil)
        #expect(TransferDigest(bytes: [UInt8](repeating: 0, count: 33)) == nil)
    }

    @Test func typesAreFourInARow() {
        let types = TransferTypes()
        #expect(
            [types.put, types.get, types.find, types.discard] == [0x1FFF_0000, 0x1FFF_0001, 0x1FFF_0002, 0x1FFF_0003]
        )
        #expect(TransferTypes(first: 0x1FFF_0000) == types)
        #expect(TransferTypes(first: .max).discard == 2)
    }

    @Test(arguments: [
        TransferError.Code.invalidID, .notFound, .denied, .superseded, .noRoom, .readOnly, .quota, .wrongHash,
        .invalidRequest, .storeFailed,
    ])
    func failuresKeepTheirCodes(code: TransferError.Code) throws {
        let failure = TransferError(code, "why").failure
        let bytes = try failure.serializedBytes() as [UInt8]
        let read = TransferError(try Hhsocket_TransferFailure(serializedBytes: bytes))
        #expect(read.code == code && read.message == "why")
    }

    @Test func unknownFailuresAreOnesOfTheStore() {
        var failure = Hhsocket_TransferFailure()
        #expect(TransferError(failure).code == .storeFailed)
        failure.code = .UNRECOGNIZED(99)
        failure.message = String(repeating: "x", count: 5_000)
        #expect(TransferError(failure).code == .storeFailed)
        #expect(TransferError(failure).message.count == 1_024)
        // An error that only clients can have.
        #expect(TransferError(.stalled, "").failure.code == .storeFailed)
    }

    /// The item that Docs/Protocol.md shows.
    @Test func firstItemOfAPut() throws {
        var request = Hhsocket_PutRequest()
        request.begin.id = "a"
        request.begin.file.size = 3
        let content: [UInt8] = Array("abc".utf8)
        request.begin.file.sha256 = .init(content.withUnsafeBytes { SHA256.hash(of: $0) })
        request.begin.writer = 7
        let body: ByteBuffer = ByteBuffer(bytes: try request.serializedBytes() as [UInt8])
        var buffer = ByteBuffer()
        FrameEncoder(direction: .request)
            .encode(Frame(type: FrameType.item, serial: 50, payload: body), into: &buffer)
        let lines = try DocumentationPage("Docs/Protocol.md").text.components(separatedBy: "\n")
        let frames = lines.filter { $0.hasPrefix("00000008 00000032 0000003B ") }
            .map { [UInt8](hexadecimal: $0.filter { $0 != " " }) }
        #expect(frames == [Array(buffer.readableBytesView)])
    }
}

/// The items that carry content.
@Suite struct TransferPartTests {
    @Test(arguments: [0, 1, 116, 117, 127, 128, 16_373, 16_374, 16_383, 16_384, 1 << 20])
    func partsAreTheMessage(count: Int) throws {
        var generator = SeededGenerator(seed: UInt64(count))
        let content = generator.bytes(count)
        let part = TransferPart(offset: UInt64.max - 5, bytes: ByteBuffer(bytes: content))
        let message = try Hhsocket_PutRequest(serializedBytes: part.item.readableBytesView)
        #expect(message.content.offset == UInt64.max - 5)
        #expect(Array(message.content.bytes) == content)
        #expect(TransferPart(item: part.item) == part)
        let written: [UInt8] = try message.serializedBytes()
        // Empty content has no bytes field, and other writers may order fields differently.
        if count > 0 { #expect(TransferPart(item: ByteBuffer(bytes: written)) == part) }
        // The server's items have the same encoding of content.
        #expect(try Hhsocket_GetItem(serializedBytes: part.item.readableBytesView).content == message.content)
    }

    /// A long piece is sent as items of one frame each, four of which fill a stream's first window.
    @Test(arguments: [0, 1, 61_440, 61_441, 300_000])
    func aPieceIsCutIntoItemsOfAFrame(count: Int) throws {
        var generator = SeededGenerator(seed: UInt64(count))
        let content = generator.bytes(count)
        let items = TransferPart.items(offset: 7, of: ByteBuffer(bytes: content))
        var whole: [UInt8] = []
        for item in items {
            #expect(StreamFrames.cost(item.readableBytes) <= UInt64(StreamWindows.defaultStream) / 4)
            let part = try #require(TransferPart(item: item))
            #expect(part.offset == 7 + UInt64(whole.count))
            #expect(part.bytes.readableBytes == TransferPart.lengthInOneFrame || items.last == item)
            whole += Array(buffer: part.bytes)
        }
        #expect(whole == content)
    }

    @Test func everythingElseIsNone() {
        let item = TransferPart(offset: 7, bytes: ByteBuffer(string: "content")).item
        for length in 0..<item.readableBytes {
            #expect(TransferPart(item: item.getSlice(at: item.readerIndex, length: length) ?? ByteBuffer()) == nil)
        }
        var longer = item
        longer.writeInteger(UInt8(0))
        #expect(TransferPart(item: longer) == nil)
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<scaled(20_000) {
            var damaged = item
            let index = damaged.readerIndex + Int.random(in: 0..<damaged.readableBytes, using: &generator)
            damaged.setInteger(UInt8.random(in: 0...255, using: &generator), at: index)
            guard let part = TransferPart(item: damaged) else { continue }
            #expect(part.bytes.readableBytes == 7)
        }
    }
}
