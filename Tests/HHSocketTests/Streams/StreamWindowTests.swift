// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

/// The arithmetic of credit, at both sides.
@Suite struct StreamWindowTests {
    private func used(_ window: UInt32, _ cost: UInt64) -> SendWindow {
        var window = SendWindow(window)
        window.send(cost)
        return window
    }

    // MARK: Sending

    @Test func theWindowAnnouncedIsTheFirstCredit() {
        #expect(SendWindow(1_000).free == 1_000)
        #expect(SendWindow(1_000).window == 1_000)
    }

    @Test func aCreditIsAbsoluteAndOneThatIsNotLargerIsIgnored() {
        var window = self.used(1_000, 600)
        #expect(window.grant(1_000) == false)
        #expect(window.grant(999) == false)
        #expect(window.grant(0) == false)
        #expect(window.grant(1_600) == true)
        #expect(window.free == 1_000)
        #expect(window.grant(1_600) == false)
    }

    @Test func theWindowIsTheLargestDifferenceSoFar() {
        var window = self.used(1_000, 600)
        #expect(window.grant(1_500) == true)
        #expect(window.window == 1_000)
        #expect(window.grant(5_600) == true)
        #expect(window.window == 5_000)
        window.send(5_000)
        #expect(window.grant(5_700) == true)
        #expect(window.window == 5_000)
    }

    @Test func creditGoesToTheLargestNumber() {
        var window = self.used(1_000, 1_000)
        #expect(window.grant(.max) == true)
        #expect(window.free == UInt64.max - 1_000)
        window.send(.max)
        #expect(window.free == 0)
    }

    @Test func aPayloadIsCutAtThePiecesLength() {
        let free = SendWindow(1 << 20)
        #expect(Cut.next(rest: 0, stream: free, connection: free) == .send(length: 0))
        #expect(Cut.next(rest: 65_536, stream: free, connection: free) == .send(length: 65_536))
        #expect(Cut.next(rest: 65_537, stream: free, connection: free) == .send(length: 65_536))
    }

    @Test func itIsCutToTheCreditWhereHalfOfTheStreamsWindowIsFree() {
        let free = SendWindow(1 << 20)
        #expect(Cut.next(rest: 2_000, stream: self.used(1_001, 500), connection: free) == .send(length: 485))
        #expect(Cut.next(rest: 2_000, stream: self.used(1_000, 500), connection: free) == .send(length: 484))
        #expect(Cut.next(rest: 2_000, stream: self.used(1_001, 501), connection: free) == .waitForStream)
        // If the credit suffices, nothing waits.
        #expect(Cut.next(rest: 84, stream: self.used(1_000, 900), connection: free) == .send(length: 84))
        #expect(Cut.next(rest: 85, stream: self.used(1_000, 900), connection: free) == .waitForStream)
    }

    @Test func seventeenIsTheLeastThatItIsCutTo() {
        let free = SendWindow(1 << 20)
        #expect(Cut.next(rest: 2, stream: SendWindow(17), connection: free) == .send(length: 1))
        #expect(Cut.next(rest: 2, stream: SendWindow(16), connection: free) == .waitForStream)
        #expect(Cut.next(rest: 2, stream: SendWindow(1), connection: free) == .waitForStream)
        #expect(Cut.next(rest: 0, stream: SendWindow(16), connection: free) == .send(length: 0))
        #expect(Cut.next(rest: 0, stream: SendWindow(15), connection: free) == .waitForStream)
        #expect(Cut.next(rest: 2, stream: free, connection: SendWindow(17)) == .send(length: 1))
        #expect(Cut.next(rest: 2, stream: free, connection: SendWindow(16)) == .waitForConnection)
        #expect(Cut.next(rest: 0, stream: free, connection: SendWindow(15)) == .waitForConnection)
    }

    @Test func theConnectionWantsEightThousandOrHalfOfItsWindow() {
        let free = SendWindow(1 << 20)
        let large = self.used(1 << 20, (1 << 20) - 8_192)
        #expect(Cut.next(rest: 20_000, stream: free, connection: large) == .send(length: 8_176))
        let less = self.used(1 << 20, (1 << 20) - 8_191)
        #expect(Cut.next(rest: 20_000, stream: free, connection: less) == .waitForConnection)
        #expect(Cut.next(rest: 8_175, stream: free, connection: less) == .send(length: 8_175))
        #expect(Cut.next(rest: 20_000, stream: free, connection: self.used(1_000, 500)) == .send(length: 484))
        #expect(Cut.next(rest: 20_000, stream: free, connection: self.used(1_000, 501)) == .waitForConnection)
    }

    @Test func itWaitsWhereTheStreamIsMostlyUsedThoughTheConnectionIsInTheWay() {
        let stream = self.used(1_000, 600)
        #expect(Cut.next(rest: 380, stream: stream, connection: self.used(10_000, 9_650)) == .waitForWhole)
        #expect(Cut.next(rest: 380, stream: stream, connection: self.used(10_000, 9_604)) == .send(length: 380))
        #expect(Cut.next(rest: 385, stream: stream, connection: self.used(10_000, 9_604)) == .waitForStream)
    }

    // MARK: Receiving

    @Test func moreThanWasGrantedIsRefusedAndDoesNotCount() {
        var window = ReceiveWindow(100)
        #expect(window.receive(101) == false)
        #expect(window.receive(60) == true)
        #expect(window.receive(41) == false)
        #expect(window.receive(40) == true)
        #expect(window.received == 100)
    }

    @Test func aGrantIsDueOnceHalfOfTheWindowIsTaken() {
        var window = ReceiveWindow(1_000_001)
        #expect(window.receive(600_000) == true)
        window.take(500_000)
        #expect(window.grant() == nil)
        window.take(1)
        #expect(window.grant() == 1_500_002)
        #expect(window.grant() == nil)
        window.take(99_999)
        #expect(window.grant() == nil)
    }

    @Test func aGrantIsDueWhereLessThanAFrameIsToComeAndAnythingIsTaken() {
        var window = ReceiveWindow(1_000_000)
        #expect(window.receive(1_000_000 - 65_552) == true)
        #expect(window.grant() == nil)
        window.take(1)
        #expect(window.grant() == nil)
        #expect(window.receive(1) == true)
        #expect(window.grant() == 1_000_001)
        #expect(window.grant() == nil)
    }

    @Test func nothingIsGrantedWhereNothingIsTaken() {
        var window = ReceiveWindow(100)
        #expect(window.receive(100) == true)
        #expect(window.grant() == nil)
    }

    @Test func aGrantNeverShrinksThoughWhatWasTakenIsPutBack() {
        var window = ReceiveWindow(200_000)
        #expect(window.receive(100_000) == true)
        window.take(100_000)
        #expect(window.grant() == 300_000)
        #expect(window.receive(20_000) == true)
        window.putBack(100_000)
        #expect(window.granted == 300_000)
        #expect(window.untaken == 120_000)
        window.take(99_999)
        #expect(window.grant() == nil)
        window.take(20_001)
        // No more has been taken since the last grant than 20,000, and more than a frame is to come.
        #expect(window.grant() == nil)
        #expect(window.receive(180_000) == true)
        #expect(window.grant() == 320_000)
    }

    @Test func sideThatAnnouncedLittleMayGrantMore() {
        var window = ReceiveWindow(1)
        #expect(window.receive(16) == false)
        #expect(window.widen(to: 1_000) == 1_000)
        #expect(window.receive(1_000) == true)
        #expect(window.widen(to: 10) == nil)
        window.take(1_000)
        #expect(window.grant() == 2_000)
    }

    @Test func sumsStopAtTheLargestNumber() {
        var window = ReceiveWindow(1)
        #expect(window.widen(to: .max) == .max)
        #expect(window.receive(.max - 1) == true)
        window.take(.max)
        #expect(window.untaken == 0)
        #expect(window.grant() == nil)
        #expect(window.receive(1) == true)
        #expect(window.receive(1) == false)
    }
}
