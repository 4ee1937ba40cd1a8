// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

/// The client's side of streams.
@Suite struct ClientStreamsTests {
    private let more = FrameType.continuesFlag

    @Test func aStreamRunsFromItsOpeningToItsAnswer() {
        var client = ClientSide()
        let id = client.open(50)
        #expect(client.streams.send(id, ByteBuffer(string: "a")) == .proceed)
        client.streams.finish(id)
        #expect(client.streams.send(id, ByteBuffer(string: "b")) == .over)
        #expect(client.frames().summary == ["1000 50 200 0", "8 50 200 1", "end 50"])
        client.receive(50, .partial, 3)
        client.receive(50, .ok, 4, flags: FrameType.metadataFlag)
        let actions = client.actions()
        #expect(actions.items.count == 1)
        #expect(actions.ends.first?.outcome == .answered(.ok))
        #expect(actions.ends.first?.answer?.type == 1_000 | FrameType.metadataFlag)
        #expect(actions.ends.first?.answer?.payload.readableBytes == 4)
        #expect(actions.ends.first?.hasMoved == true)
        // The item is still the application's.
        #expect(client.streams.openCount == 0)
        #expect(client.streams.count == 1)
        #expect(client.streams.receiveWindow.untaken == 19)
        if let item = actions.items.first { client.streams.took(id, item.receipt, now: client.now) }
        #expect(client.streams.count == 0)
        #expect(client.streams.heldBytes == 0)
    }

    @Test func theClientStopsSendingOnceItIsAnswered() {
        var client = ClientSide(StreamTerms(server: StreamWindows(stream: 20)))
        let id = client.open(50)
        #expect(client.streams.send(id, ByteBuffer(repeating: 1, count: 100)) == .wait)
        #expect(client.frames().summary == ["1000 50 200 0", "536870920 50 200 4"])
        client.receive(50, .noPermission, 1, flags: self.more)
        client.receive(StreamFrames.credit(serial: 50, .max))
        #expect(client.frames().isEmpty)
        #expect(client.streams.send(id, ByteBuffer()) == .over)
        client.receive(50, .noPermission, 1)
        #expect(client.ends() == [.answered(.noPermission)])
        #expect(client.streams.waitingBytes == 0)
    }

    @Test func aCancelPassesAndDropsWhatWaits() {
        var client = ClientSide(StreamTerms(server: StreamWindows(stream: 20)))
        let id = client.open(50)
        _ = client.streams.send(id, ByteBuffer(repeating: 1, count: 100))
        _ = client.frames()
        client.receive(50, .partial, 5)
        client.streams.cancel(id)
        #expect(client.frames().summary == ["cancel 50"])
        #expect(client.ends() == [.cancelled])
        #expect(client.streams.count == 0)
        #expect(client.streams.receiveWindow.untaken == 0)
        client.streams.cancel(id)
        #expect(client.ends().isEmpty)
        #expect(client.frames().isEmpty)
        // Any number of late items is dropped, and counts on the connection.
        let before = client.streams.receiveWindow.received
        for _ in 0..<3 { #expect(client.receive(50, .partial, 4) == true) }
        #expect(client.streams.receiveWindow.received == before + 60)
        #expect(client.streams.receiveWindow.untaken == 0)
        #expect(client.actions().isEmpty)
    }

    @Test func aStreamThatHasNotLeftIsCancelledWithoutAFrame() {
        var client = ClientSide()
        let id = client.open(50)
        client.streams.cancel(id)
        #expect(client.frames().isEmpty)
        #expect(client.actions().ends.first?.hasLeft == false)
    }

    @Test func aServerThatDoesWhatItMustNotIsCancelled() {
        let wrongs: [(StreamKind, StreamOutcome, (inout ClientSide) -> Void)] = [
            (.clientStreaming, .violated(.unexpectedItem), { $0.receive(50, .partial, 1) }),
            (.bidirectional, .violated(.beyondWindow), { $0.receive(50, .partial, 985) }),
            (
                .bidirectional, .violated(.metadataOnItem),
                { $0.receive(50, .partial, 1, flags: FrameType.metadataFlag) }
            ),
            (
                .bidirectional, .violated(.differentPieces),
                {
                    $0.receive(50, .ok, 1, flags: FrameType.continuesFlag)
                    $0.receive(50, .unknown, 1)
                }
            ),
            (
                .bidirectional, .damaged,
                { $0.receive(Frame(type: 1_000, serial: 50, status: .partial), isDamaged: true) }
            ),
            (.bidirectional, .tooLong, { $0.receive(50, .ok, 5_001) }),
            (.bidirectional, .tooMuchHeld, { $0.receive(50, .ok, 4_990) }),
        ]
        for (kind, outcome, wrong) in wrongs {
            var client = ClientSide(StreamTerms(client: StreamWindows(stream: 1_000))) {
                $0.maximumPayloadLength = 5_000
                $0.maximumHeldBytes = 5_000
            }
            _ = client.open(50, kind)
            _ = client.frames()
            wrong(&client)
            #expect(client.ends() == [outcome])
            #expect(client.frames().last?.type == FrameType.cancel)
            #expect(client.streams.count == 0)
            #expect(client.streams.heldBytes == 0)
            #expect(client.streams.receiveWindow.untaken == 0)
        }
    }

    @Test func anItemAfterAPartOfTheAnswerIsWrong() {
        var client = ClientSide()
        _ = client.open(50)
        client.receive(50, .ok, 1, flags: self.more)
        client.receive(50, .partial, 1)
        #expect(client.ends() == [.violated(.itemAfterEnd)])
    }

    @Test func moreThanTheConnectionsWindowClosesTheConnection() {
        var client = ClientSide(StreamTerms(client: StreamWindows(connection: 100)))
        client.receive(50, .partial, 85)
        #expect(client.actions().faults == [.beyondWindow])
    }

    @Test func anAnswerInTheMiddleOfAnItemDropsTheHalf() {
        var client = ClientSide()
        _ = client.open(50)
        client.receive(50, .partial, 100, flags: self.more)
        #expect(client.streams.hasUnfinished == true)
        client.receive(50, .unknown)
        let actions = client.actions()
        #expect(actions.items.isEmpty)
        #expect(actions.outcomes == [.answered(.unknown)])
        #expect(client.streams.heldBytes == 0)
        #expect(client.streams.hasUnfinished == false)
    }

    @Test func aDamagedAnswerFailsTheStream() {
        var client = ClientSide()
        _ = client.open(50)
        _ = client.frames()
        client.receive(Frame(type: 1_000, serial: 50, status: .ok), isDamaged: true)
        #expect(client.ends() == [.damaged])
        // The server has ended it already.
        #expect(client.frames().isEmpty)
    }

    @Test func anOpeningThatIsAnsweredHalfwayIsCancelled() {
        var client = ClientSide()
        _ = client.streams.open(
            type: 1_000,
            serial: 50,
            payload: ByteBuffer(repeating: 1, count: 100_000),
            kind: .serverStreaming,
            now: client.now
        )
        #expect(client.streams.next(now: client.now)?.payload.readableBytes == 65_536)
        client.receive(50, .overloaded)
        #expect(client.ends() == [.answered(.overloaded)])
        #expect(client.frames().summary == ["cancel 50"])
    }

    @Test func aPartialAnswerToAPlainCallIsTheShells() {
        var client = ClientSide()
        #expect(client.receive(50, .partial, 10, isAwaited: true) == false)
        #expect(client.receive(51, .partial, 10) == true)
        #expect(client.streams.receiveWindow.received == 52)
        #expect(client.streams.receiveWindow.untaken == 0)
    }

    @Test func answersAndPushesMayComeInPieces() {
        var client = ClientSide()
        #expect(client.receive(50, .ok, 10, isAwaited: true) == false)
        #expect(client.receive(50, .ok, 10, flags: self.more, isAwaited: true) == true)
        #expect(client.receive(FrameSerial.push, .ok, 5, flags: self.more, isAwaited: true) == true)
        #expect(client.receive(50, .ok, 10, isAwaited: true) == true)
        #expect(client.receive(FrameSerial.push, .ok, 5, isAwaited: true) == true)
        #expect(client.actions().whole.map(\.payload.readableBytes) == [20, 10])
        // No call waits for this answer.
        #expect(client.receive(51, .ok, 10, flags: self.more) == true)
        #expect(client.streams.heldBytes == 0)
        #expect(client.receive(Frame(type: 1_000 | self.more, serial: 52), isDamaged: true, isAwaited: true) == true)
        #expect(client.actions().failures == [.damaged])
        // A client answers nothing.
        #expect(client.frames().isEmpty)
    }

    @Test func onlyAsManyStreamsAsAgreed() {
        var client = ClientSide(StreamTerms(maximumStreams: 2))
        let first = client.open(50)
        _ = client.open(51)
        #expect(client.streams.canOpen == false)
        client.streams.cancel(first)
        #expect(client.streams.canOpen == true)
    }

    @Test func completeItemsOutliveTheConnection() {
        var client = ClientSide()
        _ = client.open(50)
        client.receive(50, .partial, 5)
        client.receive(50, .partial, 5, flags: self.more)
        client.streams.connectionLost()
        let actions = client.actions()
        #expect(actions.items.count == 1)
        #expect(actions.outcomes == [.connectionLost])
        #expect(client.streams.heldBytes == 0)
        #expect(client.streams.count == 0)
        #expect(client.streams.canOpen == false)
    }

    @Test func itIsReportedWhetherAnItemHasMoved() {
        var client = ClientSide()
        let id = client.open(50)
        _ = client.frames()
        client.receive(50, .draining)
        #expect(client.actions().ends.first?.hasMoved == false)
        let other = client.open(51)
        _ = client.streams.send(other, ByteBuffer())
        _ = client.frames()
        client.receive(51, .draining)
        #expect(client.actions().ends.first?.hasMoved == true)
        #expect(client.streams.send(id, ByteBuffer()) == .over)
    }

    @Test func aStreamThatDoesNotMoveIsEndedAndCancelled() {
        var client = ClientSide(StreamTerms()) { $0.idleLimit = .minutes(10) }
        _ = client.open(50)
        _ = client.frames()
        client.now = client.now + .minutes(10)
        client.streams.timePassed(now: client.now)
        #expect(client.ends() == [.idle])
        #expect(client.frames().summary == ["cancel 50"])
    }

    @Test func otherControlFramesAreTheShells() {
        var client = ClientSide()
        #expect(client.receive(Frame(type: FrameType.heartbeat, serial: 5, status: .ping)) == false)
        #expect(client.receive(Frame(type: FrameType.goAway, serial: FrameSerial.goAway)) == false)
        #expect(client.receive(StreamFrames.credit(serial: 0, .max)) == true)
        #expect(client.streams.sendWindow.granted == .max)
    }

    @Test func aThousandStreamsAndASlowOneAmongThem() {
        let many: UInt32 = 1_000
        var client = ClientSide(StreamTerms(server: StreamWindows(stream: 1_000), maximumStreams: many))
        let ids = (0..<many).map { client.open(50 + $0) }
        _ = client.frames()
        // The first has no credit left, and its next item waits.
        #expect(client.streams.send(ids[0], ByteBuffer(repeating: 1, count: 984)) == .proceed)
        #expect(client.streams.send(ids[0], ByteBuffer(repeating: 1, count: 984)) == .wait)
        for id in ids.dropFirst() { #expect(client.streams.send(id, ByteBuffer(repeating: 1, count: 100)) == .proceed) }
        let serials = client.frames().map(\.serial)
        #expect(serials == (0..<many).map { 50 + $0 })
        #expect(client.streams.waitingBytes < 2_000)
    }
}
