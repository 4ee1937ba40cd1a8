// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Bytes that outlive the read of which they are a slice.
@Suite struct DetachedBytesTests {
    /// A slice of a buffer as large as the largest reads.
    private func slice(_ length: Int, at start: Int = 0, of read: ByteBuffer? = nil) throws -> ByteBuffer {
        let read = read ?? ByteBuffer(repeating: 7, count: 256 << 10)
        return try #require(read.getSlice(at: start, length: length))
    }

    @Test(arguments: [0, 1, 1_000, 20_000, 100_000, 131_071, 131_072, 200_000, 262_144])
    func detachedBytesKeepAtMostTwiceTheirLength(length: Int) throws {
        let slice = try self.slice(length)
        let detached = slice.detached
        #expect(detached == slice)
        #expect(detached.storageCapacity <= 2 * length)
        #expect(slice.detachedCapacity >= detached.storageCapacity)
        #expect(slice.detachedCapacity <= 2 * length)
        // Once is enough.
        #expect(detached.detached.storageCapacity == detached.storageCapacity)
    }

    // MARK: Bodies in a channel

    @Test func bodiesForAPeerThatReadsAreNotCopied() throws {
        var pinned = PinnedBytes()
        let slice = try self.slice(20_000)
        let left = pinned.bodyForChannel(slice, isSlow: false, bytesSent: 0)
        #expect(left.storageCapacity == 256 << 10)
        #expect(pinned.bytes == 256 << 10)
        pinned.taken(19_999)
        #expect(pinned.bytes == 256 << 10)
        pinned.taken(20_000)
        #expect(pinned.bytes == 0)
        // Their own memory is not pinned.
        let own = ByteBuffer(repeating: 1, count: 20_000)
        let leftOwn = pinned.bodyForChannel(own, isSlow: true, bytesSent: 20_000)
        #expect(leftOwn.storageCapacity == own.storageCapacity)
        #expect(pinned.bytes == 0)
    }

    @Test func bodiesForASlowPeerAreCopied() throws {
        var pinned = PinnedBytes()
        for number in 0..<100 {
            let left = pinned.bodyForChannel(try self.slice(20_000), isSlow: true, bytesSent: number * 20_000)
            #expect(left.storageCapacity <= 40_000)
        }
        #expect(pinned.bytes == 0)
    }

    /// Copying them would cost more than the memory that they keep.
    @Test func largeSlicesForASlowPeerAreNotCopiedAndTheirReadIsChargedOnce() throws {
        var pinned = PinnedBytes()
        let read = ByteBuffer(repeating: 7, count: 256 << 10)
        for index in 0..<3 {
            let slice = try self.slice(64 << 10, at: index * (64 << 10), of: read)
            let left = pinned.bodyForChannel(slice, isSlow: true, bytesSent: index * (64 << 10))
            #expect(left.storageCapacity == read.storageCapacity)
        }
        #expect(pinned.bytes == read.storageCapacity)
        pinned.taken(192 << 10)
        #expect(pinned.bytes == 0)
    }

    @Test func largeSlicesThatWaitAreChargedOnceForEachRead() throws {
        var shared = SharedReads()
        let reads = (0..<2).map { ByteBuffer(repeating: UInt8($0), count: 256 << 10) }
        let slices = try (0..<6).map { try self.slice(64 << 10, at: $0 / 2 * (64 << 10), of: reads[$0 % 2]) }
        for slice in slices { shared.add(slice) }
        #expect(shared.bytes == 2 * (256 << 10))
        for slice in slices.prefix(5) { shared.remove(slice) }
        #expect(shared.bytes == 256 << 10)
        // A stranger changes nothing.
        shared.remove(slices[0])
        #expect(shared.bytes == 256 << 10)
        shared.remove(slices[5])
        #expect(shared.bytes == 0)
    }

    @Test func slicesOfOneBodyAreChargedOnce() throws {
        var pinned = PinnedBytes()
        let (body, length) = (ByteBuffer(repeating: 7, count: 16 << 20), 64 << 10)
        for index in 0..<64 {
            let slice = try self.slice(length, at: index * length, of: body)
            let left = pinned.bodyForChannel(slice, isSlow: true, bytesSent: index * length)
            // They are not copied: the body is there as long as any of them waits.
            #expect(left.storageCapacity == body.storageCapacity)
        }
        #expect(pinned.bytes == body.storageCapacity)
        let other = try self.slice(20_000)
        _ = pinned.bodyForChannel(other, isSlow: false, bytesSent: 64 * length)
        #expect(pinned.bytes == body.storageCapacity + 256 << 10)
        pinned.taken(64 * length)
        #expect(pinned.bytes == 256 << 10)
        pinned.taken(64 * length + 20_000)
        #expect(pinned.bytes == 0)
    }

    /// A slow peer's answers would each keep a buffer as large as the largest turn's.
    @Test func gatheredBytesThatAChannelKeepsAreOnlyAsLargeAsTheirContents() throws {
        var bytes = SendBytes()
        bytes.prepare()
        bytes.gathered.writeRepeatingByte(1, count: 4_000)
        var kept: [ByteBuffer] = []
        for _ in 0..<1_000 {
            let gathered = bytes.takeGathered()
            kept.append(try #require(gathered))
            bytes.recycle()
            bytes.prepare()
            bytes.gathered.writeRepeatingByte(1, count: 20)
        }
        #expect(kept.dropFirst().allSatisfy { $0.storageCapacity <= 64 })
        // A peer that reads gives the buffer back.
        kept = []
        let capacity = bytes.gathered.capacity
        _ = bytes.takeGathered()
        bytes.prepare()
        #expect(bytes.gathered.capacity == capacity)
    }

    // MARK: Places that keep bytes

    @Test(arguments: [1, 20_000])
    func unfinishedPayloadsKeepNoReads(length: Int) throws {
        var server = ServerSide()
        var client = ClientSide()
        for serial in 50..<114 as Range<UInt32> {
            for round in 1...2 {
                let slice = try self.slice(length)
                let piece = Frame(type: 1_000 | FrameType.continuesFlag, serial: serial, payload: slice)
                server.receive(piece)
                client.receive(piece, isAwaited: true)
                let count = Int(serial) - 49
                let least = (count - 1) * 2 * length + round * length
                for memory in [server.streams.heldMemory, client.streams.heldMemory] {
                    #expect(memory >= least)
                    #expect(memory <= 4 * least + count * 512)
                }
            }
        }
        for serial in 50..<114 as Range<UInt32> { _ = server.streams.cancelled(serial: serial) }
        #expect(server.streams.heldMemory == 0)
    }

    @Test func piecesThatAreDroppedAreCharged() {
        var server = ServerSide(StreamTerms()) { $0.maximumPayloadLength = 100 }
        for serial in 50..<60 as Range<UInt32> {
            let piece = ByteBuffer(repeating: 1, count: 101)
            server.receive(Frame(type: 1_000 | FrameType.continuesFlag, serial: serial, payload: piece))
        }
        #expect(server.streams.heldBytes == 0)
        #expect(server.streams.heldMemory >= 10 * 128)
    }

    @Test func piecesOfItemsKeepNoReads() throws {
        var server = ServerSide()
        let id = try server.open(50)
        let piece = FrameType.item | FrameType.continuesFlag
        server.receive(Frame(type: piece, serial: 50, payload: try self.slice(1)))
        #expect((1...1_024).contains(server.streams.heldMemory))
        server.receive(Frame(type: FrameType.item, serial: 50, payload: try self.slice(20_000)))
        let items = server.actions().items
        #expect(items.map(\.payload.readableBytes) == [20_001])
        #expect(items.allSatisfy { $0.payload.storageCapacity <= 40_002 })
        #expect((20_001...40_002 + 256).contains(server.streams.heldMemory))
        for item in items { server.streams.took(id, item.receipt, now: server.now) }
        #expect(server.streams.heldMemory == 0)
    }

    /// Each takes a place in a queue, although it has no byte.
    @Test func emptyItemsAreChargedForTheirSlots() throws {
        var server = ServerSide()
        let id = try server.open(50)
        for _ in 0..<1_000 { server.receive(Frame(type: FrameType.item, serial: 50)) }
        #expect(server.streams.heldMemory >= 1_000 * 2 * UInt64(MemoryLayout<StreamItem>.stride))
        server.streams.release(id)
        #expect(server.streams.heldMemory == 0)
    }

    @Test func waitingUnitsOfAServerKeepNoReads() throws {
        var (buffer, language) = (SendBuffer<FrameLanguage>(maximumBytes: 1 << 20), Self.frames)
        buffer.detachesWaiting = true
        for serial in 50..<60 as Range<UInt32> {
            let answer = Frame(type: 1_000, serial: serial, status: .ok, payload: try self.slice(16_400))
            let taken = buffer.append(answer, .default, isOpen: false, in: &language)
            #expect(taken == .queued)
        }
        while case .unit(let unit, _) = buffer.pull(&language, limit: 1 << 16) {
            #expect(unit.payload.storageCapacity <= 32_800)
        }
        // The part of a body that is sent piece by piece.
        let joined = ByteBuffer(repeating: 7, count: 1 << 20)
        let part = Frame(type: 1_000, serial: 60, status: .ok, payload: try self.slice(100_000, of: joined))
        _ = buffer.append(part, .default, isOpen: true, in: &language)
        buffer.detachCurrent()
        guard case .piece(let outgoing) = buffer.pull(&language, limit: 1 << 16) else {
            Issue.record("there is no piece")
            return
        }
        #expect(outgoing.unit.payload.storageCapacity <= 200_000)
    }

    private static var frames: FrameLanguage {
        FrameLanguage(
            decoder: FrameDecoder(direction: .request),
            encoder: FrameEncoder(direction: .response),
            largestCopied: 16 << 10
        )
    }

    @Test func itemsThatWaitForCreditKeepNoReads() throws {
        var terms = StreamTerms()
        terms.client = StreamWindows(stream: 1_000, connection: 1_000)
        var server = ServerSide(terms)
        let ids = try (50..<60 as Range<UInt32>).map { try server.open($0) }
        for id in ids {
            while server.streams.send(id, try self.slice(100)) == .proceed {}
            server.streams.answer(id, payload: try self.slice(100))
        }
        server.streams.detachWaiting()
        server.receive(StreamFrames.credit(serial: 0, .max))
        for serial in 50..<60 as Range<UInt32> { server.receive(StreamFrames.credit(serial: serial, .max)) }
        let frames = server.frames()
        #expect(frames.count > 20)
        #expect(frames.allSatisfy { $0.payload.storageCapacity <= 200 })
    }

    // MARK: Messages that wait for their reader

    @Test func messagesThatWaitForTheirReaderKeepNoReads() async throws {
        let inbox = WebSocketInbox(account: nil) {}
        let reader = inbox.makeReader()
        for _ in 0..<10 { inbox.append(WebSocketMessage(.binary, try self.slice(2_000))) }
        for _ in 0..<10 {
            let message = try #require(await reader.next(isolation: nil))
            #expect(message.payload.storageCapacity <= 4_000)
        }
        inbox.append(WebSocketMessage(.binary, try self.slice(1)), isLast: true)
        #expect(await reader.next(isolation: nil)?.payload.storageCapacity == 1)
    }

    // MARK: Bytes that are left in a language

    /// A large unit and the beginning of others, of one read.
    private func read(_ large: [UInt8], then rest: [UInt8]) -> ByteBuffer {
        var read = ByteBufferAllocator().buffer(capacity: 256 << 10)
        read.writeBytes(large)
        read.writeBytes(rest)
        return read
    }

    @Test(arguments: [WebSocketRole.client, .server])
    func messagesThatAreLeftInTheirReadAreChargedForIt(role: WebSocketRole) throws {
        let key: UInt32? = role == .server ? 7 : nil
        var language = WebSocketLanguage(uncompressed: role)
        let small = WebSocketDecoderTests.frame(0x82, [1], key: key)
        let read = self.read(
            WebSocketDecoderTests.frame(0x82, Array(repeating: 1, count: 200_000), key: key),
            then: small + small + [0x82]
        )
        language.append(read)
        guard case .message? = try language.next() else { throw CancellationError() }
        #expect(language.unfinishedBytes < 100)
        #expect(language.heldBytes >= read.storageCapacity)
        while try language.next() != nil {}
        #expect(language.unfinishedBytes == 1)
        #expect(language.heldBytes <= 1_024)
    }

    /// Memory is reserved for a message once a quarter of it has come; most of it is not touched yet.
    @Test func messageThatArrivesInPartsIsChargedForWhatItTouches() throws {
        var language = WebSocketLanguage(uncompressed: .server)
        let frame = WebSocketDecoderTests.frame(0x82, Array(repeating: 1, count: 200_000), key: 7)
        language.append(ByteBuffer(bytes: frame[..<60_000]))
        #expect(try language.next() == nil)
        #expect((60_000...130_000).contains(language.heldBytes))
    }

    @Test func linesThatAreLeftInTheirReadAreChargedForIt() throws {
        var language = LineLanguage(delimiter: .lf)
        let read = self.read(Array(repeating: 0x61, count: 200_000) + [0x0A], then: Array("a\nb".utf8))
        language.append(read)
        #expect(try language.next()?.readableBytes == 200_000)
        #expect(language.unfinishedBytes == 3)
        #expect(language.heldBytes >= read.storageCapacity)
    }

    // MARK: The account of messages that wait

    /// Each takes a place in a queue, and at the end of a connection an allocation of its own, although it has a byte
    /// or none.
    @Test(arguments: [0, 1], [false, true])
    func tinyMessagesAreChargedForTheirSlots(length: Int, isLast: Bool) async throws {
        let (account, count) = (CountingAccount(), 200)
        let inbox = WebSocketInbox(account: account) {}
        for _ in 0..<count { inbox.append(WebSocketMessage(.binary, try self.slice(length)), isLast: isLast) }
        #expect(account.bytes >= count * 128)
        #expect(inbox.bufferedBytes == account.bytes)
        let reader = inbox.makeReader()
        for left in (0..<count).reversed() {
            #expect(await reader.next(isolation: nil)?.payload.readableBytes == length)
            // The reader's message is charged until it requests the next one.
            #expect(account.bytes >= (left + 1) * 128)
        }
        inbox.finish()
        #expect(await reader.next(isolation: nil) == nil)
        #expect(account.bytes == 0)
    }

    @Test func messagesAreChargedForTheMemoryThatTheyKeep() async throws {
        let account = CountingAccount()
        let inbox = WebSocketInbox(account: account) {}
        for _ in 0..<4 { inbox.append(WebSocketMessage(.binary, try self.slice(20_000))) }
        inbox.append(WebSocketMessage(.binary, try self.slice(200_000)))
        #expect(account.bytes >= 4 * 20_000 + 256 << 10)
        // Reading is suspended by that, too, and not by the number of bytes that were sent.
        for _ in 0..<3 { inbox.append(WebSocketMessage(.binary, try self.slice(200_000))) }
        #expect(inbox.isFull)
    }

    /// Closing a connection that has ended frees nothing, so its messages must not fill the account.
    @Test func messagesAtTheEndOfAConnectionAreBoundedByTheirAccount() async throws {
        let account = CountingAccount(maximum: 10_000)
        let inbox = WebSocketInbox(account: account) {}
        for _ in 0..<1_000 { inbox.append(WebSocketMessage(.binary, try self.slice(1)), isLast: true) }
        #expect((1...10_000).contains(account.bytes))
        inbox.finish()
        let reader = inbox.makeReader()
        var count = 0
        while await reader.next(isolation: nil) != nil { count += 1 }
        #expect((1..<100).contains(count))
        #expect(account.bytes == 0)
    }
}
