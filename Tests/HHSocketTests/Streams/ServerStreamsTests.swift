// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

/// The server's side of streams.
@Suite struct ServerStreamsTests {
    private let more = FrameType.continuesFlag

    // MARK: Wrong

    @Test func moreThanTheStreamsWindowIsAnswered303AndTheStreamIsOver() throws {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 100, connection: 1_000)))
        _ = try server.open(50)
        server.item(50, 84)
        #expect(server.actions().items.count == 1)
        server.item(50, 0)
        #expect(server.ends() == [.violated(.beyondWindow)])
        #expect(server.frames().summary.contains("1000 50 303 0"))
        #expect(server.streams.openCount == 0)
        // The credit of dropped and waiting items is returned.
        #expect(server.streams.receiveWindow.untaken == 0)
        #expect(server.streams.heldBytes == 0)
    }

    @Test func moreThanTheConnectionsWindowClosesTheConnection() throws {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 1_000, connection: 100)))
        _ = try server.open(50)
        server.item(50, 85)
        #expect(server.actions().faults == [.beyondWindow])
        server.item(50, 1)
        #expect(server.actions().isEmpty)
        #expect(server.frames().isEmpty)
    }

    @Test func itemsOfNoStreamCountOnTheConnectionToo() {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 1_000, connection: 100)))
        server.item(50, 84)
        #expect(server.frames().summary == ["credit 0 200"])
        server.item(51, 84)
        server.item(51, 85)
        #expect(server.actions().faults == [.beyondWindow])
    }

    @Test func eachOfTheseIsAnswered303() throws {
        let wrongs: [(StreamKind, StreamViolation, (inout ServerSide) -> Void)] = [
            (
                .clientStreaming, .itemAfterEnd,
                {
                    $0.end(50); $0.item(50, 1)
                }
            ),
            (
                .clientStreaming, .endWithinItem,
                {
                    $0.item(50, 1, flags: FrameType.continuesFlag); $0.end(50)
                }
            ),
            (.serverStreaming, .unexpectedItem, { $0.item(50, 1) }),
            (.bidirectional, .metadataOnItem, { $0.item(50, 8, flags: FrameType.metadataFlag) }),
            (
                .bidirectional, .differentPieces,
                {
                    $0.item(50, 1, flags: FrameType.continuesFlag); $0.item(50, 1, flags: FrameType.compressionFlag)
                }
            ),
            (.bidirectional, .serialInUse, { $0.receive(Frame(type: 1_000, serial: 50)) }),
        ]
        for (kind, violation, wrong) in wrongs {
            var server = ServerSide()
            _ = try server.open(50, kind)
            wrong(&server)
            #expect(server.ends() == [.violated(violation)])
            #expect(server.frames().summary == ["1000 50 303 0"])
            #expect(server.streams.count == 0)
            #expect(server.streams.heldBytes == 0)
            #expect(server.streams.receiveWindow.untaken == 0)
        }
        var plain = ServerSide(StreamTerms()) { $0.flags = FrameType.continuesFlag }
        _ = try plain.open(50)
        plain.item(50, 1, flags: FrameType.compressionFlag)
        #expect(plain.ends() == [.violated(.flagNotAgreed)])
    }

    @Test func openingsThatAreWrongAreRefused() {
        var server = ServerSide(StreamTerms(maximumStreams: 1))
        func open(_ serial: UInt32, _ kind: StreamKind, hasBody: Bool, hasKey: Bool = false) -> ServerStreams.Opening {
            server.streams.open(
                type: 1_000,
                serial: serial,
                kind: kind,
                hasBody: hasBody,
                hasKey: hasKey,
                now: server.now
            )
        }
        #expect(open(50, .clientStreaming, hasBody: true) == .refused(.illegalFormat))
        #expect(open(51, .serverStreaming, hasBody: true, hasKey: true) == .refused(.illegalFormat))
        if case .refused = open(52, .serverStreaming, hasBody: true) { Issue.record("refused") }
        #expect(open(53, .serverStreaming, hasBody: true) == .refused(.overloaded))
        server.streams.drain()
        #expect(open(54, .serverStreaming, hasBody: true) == .refused(.draining))
        #expect(
            server.frames().summary == ["1000 50 303 0", "1000 51 303 0", "1000 53 503 0", "1000 54 504 0"]
        )
        #expect(server.streams.openCount == 1)
    }

    @Test func aDamagedItemIsAnswered302() throws {
        var server = ServerSide()
        _ = try server.open(50)
        server.item(50, 10, isDamaged: true)
        #expect(server.ends() == [.damaged])
        #expect(server.frames().summary == ["1000 50 302 0"])
    }

    @Test func endsAndCreditsOfUnknownStreamsAreIgnored() throws {
        var server = ServerSide()
        server.end(49)
        let id = try server.open(50)
        server.end(50)
        server.end(50)
        server.receive(StreamFrames.credit(serial: 77, .max))
        server.receive(Frame(type: FrameType.credit, serial: 50, payload: ByteBuffer(repeating: 1, count: 7)))
        server.receive(StreamFrames.credit(serial: 50, 1))
        server.receive(StreamFrames.credit(serial: 0, 1))
        #expect(server.actions().count == 1)
        #expect(server.frames().isEmpty)
        #expect(server.streams.takeUnproductiveFrames() == 6)
        _ = try server.open(51, .serverStreaming)
        server.end(51)
        #expect(server.actions().isEmpty)
        server.streams.answer(id)
        #expect(server.frames().summary == ["1000 50 200 0"])
    }

    // MARK: Pieces

    @Test func aPayloadOverTheLimitIsAnswered301AndTheConnectionLives() throws {
        var server = ServerSide(StreamTerms()) { $0.maximumPayloadLength = 100 }
        _ = try server.open(50)
        server.item(50, 60, flags: self.more)
        server.item(50, 40, flags: self.more)
        server.item(50, 0, flags: self.more)
        #expect(server.ends().isEmpty)
        server.item(50, 1, flags: self.more)
        #expect(server.ends() == [.tooLong])
        server.item(50, 100)
        #expect(server.actions().isEmpty)
        #expect(server.frames().summary == ["1000 50 301 0"])
        #expect(server.streams.heldBytes == 0)
        #expect(server.streams.receiveWindow.untaken == 0)
    }

    @Test func payloadBeyondTheConnectionsBytesIsAnswered503() throws {
        var server = ServerSide(StreamTerms()) { $0.maximumHeldBytes = 1_000 }
        for serial in [50, 51] as [UInt32] { _ = try server.open(serial) }
        server.item(50, 484, flags: self.more)
        server.item(51, 484)
        #expect(server.ends().isEmpty)
        #expect(server.streams.heldBytes == 1_000)
        #expect(server.streams.hasUnfinished == true)
        server.item(50, 0)
        #expect(server.ends() == [.tooMuchHeld])
        #expect(server.streams.hasUnfinished == false)
        #expect(server.streams.heldBytes == 500)
        server.item(51, 484)
        #expect(server.ends().isEmpty)
    }

    @Test func piecesBecomeOneItemAndEmptyOnesAreTaken() throws {
        var server = ServerSide()
        _ = try server.open(50)
        let parts = ["he", "", "llo", ""]
        for (index, part) in parts.enumerated() {
            let flags = FrameType.compressionFlag | (index < 3 ? self.more : 0)
            server.receive(
                Frame(type: FrameType.item | flags, serial: 50, payload: ByteBuffer(string: part))
            )
        }
        let items = server.actions().items
        #expect(items.map { String(buffer: $0.payload) } == ["hello"])
        #expect(items.map(\.isCompressed) == [true])
        #expect(server.streams.receiveWindow.untaken == 16)
        #expect(server.streams.heldBytes == 4 * 16 + 5)
    }

    @Test func requestsMayComeInPieces() {
        var server = ServerSide(StreamTerms()) { $0.maximumPayloadLength = 100 }
        let type: UInt32 = 2_000 | FrameType.metadataFlag
        #expect(server.receive(Frame(type: type, serial: 50)) == false)
        #expect(server.receive(Frame(type: type | self.more, serial: 50, payload: ByteBuffer(string: "a"))) == true)
        // Pieces of other streams, and its own credits, may come in between.
        #expect(server.receive(Frame(type: type | self.more, serial: 51, payload: ByteBuffer(string: "x"))) == true)
        #expect(server.receive(StreamFrames.credit(serial: 50, 1)) == true)
        #expect(server.receive(Frame(type: type, serial: 50, payload: ByteBuffer(string: "b"))) == true)
        #expect(server.actions().whole == [Frame(type: type, serial: 50, payload: ByteBuffer(string: "ab"))])
        #expect(server.streams.hasUnfinished == true)
        #expect(server.streams.cancelled(serial: 51) == true)
        #expect(server.streams.hasUnfinished == false)
        #expect(server.streams.heldBytes == 0)
    }

    @Test func restOfAFailedPayloadIsSwallowed() {
        let failures: [(PayloadFailure, Status, (inout ServerSide) -> Void)] = [
            (
                .damaged, .lostPacket,
                { $0.receive(Frame(type: 2_000 | FrameType.continuesFlag, serial: 50), isDamaged: true) }
            ),
            (
                .tooLong, .illegalLength,
                {
                    let payload = ByteBuffer(repeating: 1, count: 101)
                    $0.receive(Frame(type: 2_000 | FrameType.continuesFlag, serial: 50, payload: payload))
                }
            ),
            (
                .tooMuchHeld, .overloaded,
                {
                    let payload = ByteBuffer(repeating: 1, count: 100)
                    for serial in [60, 61, 50] as [UInt32] {
                        $0.receive(Frame(type: 2_000 | FrameType.continuesFlag, serial: serial, payload: payload))
                    }
                }
            ),
            (
                .differentPieces, .illegalFormat,
                {
                    $0.receive(Frame(type: 2_000 | FrameType.continuesFlag, serial: 50))
                    $0.receive(Frame(type: 2_001 | FrameType.continuesFlag, serial: 50))
                }
            ),
        ]
        for (failure, status, fail) in failures {
            for endsByCancel in [false, true] {
                var server = ServerSide(StreamTerms()) {
                    $0.maximumPayloadLength = 100
                    $0.maximumHeldBytes = 600
                }
                fail(&server)
                #expect(server.actions().failures == [failure])
                #expect(server.frames().last?.status == status)
                let piece = Frame(type: 2_000 | self.more, serial: 50, payload: ByteBuffer(repeating: 1, count: 200))
                #expect(server.receive(piece) == true)
                if endsByCancel {
                    _ = server.streams.cancelled(serial: 50)
                } else {
                    #expect(server.receive(Frame(type: 2_000, serial: 50)) == true)
                }
                #expect(server.actions().isEmpty)
                #expect(server.frames().isEmpty)
                // The next request is complete again.
                #expect(server.receive(Frame(type: 2_000, serial: 50)) == false)
            }
        }
    }

    @Test func payloadsThatAreOnlyBegunAreBounded() {
        var server = ServerSide(StreamTerms()) { $0.maximumUnfinished = 10 }
        for serial in 50..<60 as Range<UInt32> { server.receive(Frame(type: 2_000 | self.more, serial: serial)) }
        #expect(server.actions().isEmpty)
        for serial in 60..<70 as Range<UInt32> { server.receive(Frame(type: 2_000 | self.more, serial: serial)) }
        #expect(server.actions().failures == Array(repeating: .tooMuchHeld, count: 10))
        server.receive(Frame(type: 2_000 | self.more, serial: 70))
        #expect(server.actions().faults == [.tooManyUnfinished])
    }

    // MARK: Windows

    @Test func anUnreadLargeItemAdmitsNoSecond() throws {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 100_000)))
        let id = try server.open(50)
        // Its pieces are taken when they arrive.
        for _ in 0..<20 { server.item(50, 49_984, flags: self.more) }
        let credits = server.frames().summary
        #expect(credits.last == "credit 50 1100000")
        server.item(50, 84)
        guard let item = server.actions().items.first else { throw Broken("no item") }
        #expect(item.payload.readableBytes == 20 * 49_984 + 84)
        // The complete item is not taken yet, and granted credit stays.
        #expect(server.frames().isEmpty)
        server.item(50, 49_984, flags: self.more)
        server.item(50, 49_884, flags: self.more)
        #expect(server.frames().allSatisfy { $0.serial == 0 })
        server.streams.took(id, item.receipt, now: server.now)
        #expect(server.frames().summary.contains("credit 50 1200000"))
    }

    @Test func anItemIsTakenWhenTheApplicationGetsItAndReceiptsAdd() throws {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 1_000, connection: 1_000)))
        let id = try server.open(50)
        server.item(50, 84)
        server.item(50, 84)
        let items = server.actions().items
        #expect(server.frames().isEmpty)
        var receipt = ItemReceipt()
        for item in items { receipt += item.receipt }
        server.streams.took(id, receipt, now: server.now)
        #expect(server.frames().summary == ["credit 0 1200", "credit 50 1200"])
        // Nothing can be taken twice.
        server.streams.took(id, receipt, now: server.now)
        #expect(server.frames().isEmpty)
    }

    @Test func unwantedItemsAreTakenAtOnce() throws {
        var server = ServerSide(StreamTerms(server: StreamWindows(stream: 1_000, connection: 1_000)))
        let id = try server.open(50)
        server.item(50, 84)
        server.streams.release(id)
        #expect(server.streams.receiveWindow.untaken == 0)
        server.item(50, 84)
        #expect(server.actions().items.count == 1)
        #expect(server.streams.receiveWindow.untaken == 0)
        #expect(server.streams.heldBytes == 0)
    }

    // MARK: Life

    @Test func anAnswerComesAfterTheItemsThatWait() throws {
        var server = ServerSide(StreamTerms(client: StreamWindows(stream: 100)))
        let id = try server.open(50)
        #expect(server.streams.send(id, ByteBuffer(repeating: 1, count: 84)) == .proceed)
        #expect(server.streams.send(id, ByteBuffer(repeating: 1, count: 10)) == .wait)
        server.streams.answer(id, payload: ByteBuffer(string: "done"))
        #expect(server.streams.send(id, ByteBuffer()) == .over)
        #expect(server.frames().summary == ["1000 50 206 84"])
        // Items of the client are dropped once it has answered.
        server.item(50, 10)
        #expect(server.actions().isEmpty)
        #expect(server.streams.receiveWindow.untaken == 0)
        #expect(server.streams.openCount == 1)
        server.receive(StreamFrames.credit(serial: 50, 200))
        #expect(server.frames().summary == ["1000 50 206 10", "1000 50 200 4"])
        #expect(server.ends() == [.answered(.ok)])
        #expect(server.streams.count == 0)
    }

    @Test func aCancelEndsAStreamWithoutAnAnswer() throws {
        var server = ServerSide(StreamTerms(client: StreamWindows(stream: 20)))
        let id = try server.open(50)
        server.item(50, 10, flags: self.more)
        #expect(server.streams.send(id, ByteBuffer(repeating: 1, count: 84)) == .wait)
        #expect(server.streams.cancelled(serial: 50) == true)
        #expect(server.ends() == [.cancelled])
        #expect(server.frames().isEmpty)
        #expect(server.streams.waitingBytes == 0)
        #expect(server.streams.heldBytes == 0)
        #expect(server.streams.cancelled(serial: 50) == false)
        #expect(server.streams.send(id, ByteBuffer()) == .over)
    }

    @Test func patienceEndsWhatIsOpenAnswered409() throws {
        var server = ServerSide()
        _ = try server.open(50)
        server.streams.drain()
        server.item(50, 1)
        #expect(server.actions().items.count == 1)
        server.streams.endPatience()
        #expect(server.ends() == [.drained])
        #expect(server.frames().summary == ["1000 50 409 0"])
    }

    @Test func aHalfCloseCancelsStreamsWhoseItemsHadNotEnded() throws {
        var server = ServerSide()
        _ = try server.open(50)
        let ended = try server.open(51)
        let down = try server.open(52, .serverStreaming)
        server.end(51)
        _ = server.actions()
        server.streams.inputClosed()
        #expect(server.ends() == [.inputClosed])
        #expect(server.frames().isEmpty)
        #expect(server.streams.send(ended, ByteBuffer()) == .proceed)
        server.streams.answer(down)
        #expect(server.frames().summary == ["1000 51 206 0", "1000 52 200 0"])
    }

    @Test func aStreamThatDoesNotMoveIsEnded() throws {
        var server = ServerSide(StreamTerms(client: StreamWindows(stream: 20))) { $0.idleLimit = .seconds(10) }
        let id = try server.open(50)
        #expect(server.streams.nextDeadline == server.now + .seconds(10))
        func pass(_ seconds: Int64) {
            server.now = server.now + .seconds(seconds)
            server.streams.timePassed(now: server.now)
        }
        pass(9)
        server.item(50, 1)
        pass(9)
        _ = server.streams.send(id, ByteBuffer(repeating: 1, count: 10))
        #expect(server.frames().count == 1)
        pass(9)
        server.receive(StreamFrames.credit(serial: 50, 25))
        pass(9)
        // Credit without progress does not count.
        server.receive(StreamFrames.credit(serial: 50, 25))
        #expect(server.ends().isEmpty)
        pass(1)
        #expect(server.ends() == [.idle])
        #expect(server.frames().summary == ["1000 50 408 0"])
        #expect(server.streams.nextDeadline == nil)
    }

    @Test func aLostConnectionEndsEachStreamOnce() throws {
        var server = ServerSide()
        for serial in [50, 51] as [UInt32] { _ = try server.open(serial) }
        server.item(50, 10)
        _ = server.actions()
        server.streams.connectionLost()
        #expect(server.ends() == [.connectionLost, .connectionLost])
        server.streams.connectionLost()
        #expect(server.ends().isEmpty)
        #expect(server.streams.count == 0)
        #expect(server.streams.heldBytes == 0)
        #expect(server.frames().isEmpty)
    }
}
