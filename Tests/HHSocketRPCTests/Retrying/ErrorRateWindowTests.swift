// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

@Suite struct ErrorRateWindowTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test func aTenthOfFortyIsTooMuchAndFewerCallsSayNothing() {
        var window = ErrorRateWindow(ErrorRatePolicy())
        // 35 right, 4 wrong: 39 are too few.
        for _ in 0..<35 { #expect(window.end(false, self.start) == nil) }
        for _ in 0..<4 { #expect(window.end(true, self.start) == nil) }
        #expect(window.end(true, self.start) == .init(wrong: 5, calls: 40))
        // Then counting starts over.
        for _ in 0..<39 { #expect(window.end(true, self.start) == nil) }
        #expect(window.end(true, self.start) == .init(wrong: 40, calls: 40))
    }

    @Test func lessThanATenthIsNot() {
        var window = ErrorRateWindow(ErrorRatePolicy())
        for number in 1...10_000 { #expect(window.end(number % 12 == 0, self.start) == nil) }
    }

    @Test func onlyTheLatestCallsCount() {
        var window = ErrorRateWindow(ErrorRatePolicy(windowLength: 100))
        for _ in 0..<3 { #expect(window.end(true, self.start) == nil) }
        for _ in 0..<100 { #expect(window.end(false, self.start) == nil) }
        // The three are forgotten: nine more are less than a tenth.
        for _ in 0..<9 { #expect(window.end(true, self.start) == nil) }
        #expect(window.end(true, self.start) == .init(wrong: 10, calls: 100))
    }

    @Test func oldCallsAreForgotten() {
        var window = ErrorRateWindow(ErrorRatePolicy())
        for _ in 0..<39 { #expect(window.end(true, self.start) == nil) }
        let later = self.start + .seconds(301)
        for _ in 0..<39 { #expect(window.end(true, later) == nil) }
        #expect(window.end(true, later) == .init(wrong: 40, calls: 40))
    }

    @Test func foolishPoliciesDoNotTrap() {
        var window = ErrorRateWindow(
            ErrorRatePolicy(windowLength: 0, maximumAge: .seconds(-1), minimumCalls: -5, threshold: .nan)
        )
        for number in 0..<10 { #expect(window.end(number % 2 == 0, self.start + .seconds(Int64(number))) == nil) }
    }

    @Test func failuresThatCountForTheServerAndOthers() {
        func judge(_ code: SocketError.Code, _ delivery: SocketError.Delivery) -> Bool? {
            ErrorRateWindow.judge(SocketError(code, message: "", delivery: delivery))
        }
        #expect(ErrorRateWindow.judge(nil) == false)
        #expect(judge(.unknown, .answered) == true)
        #expect(judge(.lostPacket, .answered) == true)
        #expect(judge(.checksumMismatch, .sentUnknown) == true)
        #expect(judge(.timeout, .sentUnknown) == true)
        #expect(judge(.timeout, .notSent) == nil)
        #expect(judge(.noPermission, .answered) == false)
        #expect(judge(.overloaded, .answered) == nil)
        #expect(judge(.undefinedType, .answered) == nil)
        #expect(judge(.cancelled, .sentUnknown) == nil)
        #expect(judge(.connectionLost, .sentUnknown) == nil)
    }
}

extension ErrorRateWindow {
    fileprivate mutating func end(_ isWrong: Bool, _ now: NIODeadline) -> Verdict? {
        self.ended(isWrong: isWrong, now: now)
    }
}
