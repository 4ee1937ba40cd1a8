// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore
import Testing

@testable import HHSocketApp

/// The decisions on answers from the cache, on shared calls, and on kept answers, in virtual time.
@Suite(.timeLimit(.minutes(5))) struct CacheSharedCallTests {
    // MARK: Validity

    @Test func anAnswerIsGivenAgainWhileItIsValid() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello")
        world.pass(.seconds(59))
        world.ask(2)
        world.pass(.seconds(1))
        world.ask(3)
        #expect(world.texts == ["network hello", "cache(age: 59.0 seconds) hello"])
        world.answer("fresh")
        #expect(world.texts.last == "network fresh")
        #expect(world.begun.count == 2)
        let statistics = world.machine.statistics
        #expect(statistics.hits == 1 && statistics.misses == 2 && statistics.calls == 2)
    }

    @Test func callerDeterminesTheValidityOfAnAnswer() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello")
        world.pass(.seconds(10))
        world.ask(2, world.asking(validity: .seconds(5)))
        world.ask(3, world.asking(validity: .seconds(3_600)))
        #expect(world.texts(of: .init(manager: 1, number: 3)) == ["cache(age: 10.0 seconds) hello"])
        #expect(world.calls.count == 1)
    }

    @Test func anAnswerFromTheFutureIsNotValid() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello")
        world.now.date -= 3_600
        world.ask(2)
        #expect(world.calls.count == 1)
        #expect(world.completions.count == 1)
    }

    @Test func anInvalidDateIsNotValid() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello")
        let key = APIRequest(CacheWorld.request()).key
        for (number, seconds) in [Double.nan, -.infinity, .infinity, -1e300].enumerated() {
            world.kept[key]?.storedAt = Date(timeIntervalSinceReferenceDate: seconds)
            world.ask(10 + number)
            #expect(world.calls.count == 1)
            world.answer("hello")
        }
    }

    @Test func errorsAreNotKept() {
        var world = CacheWorld()
        world.ask(1)
        world.fail(.noPermission)
        #expect(world.texts == ["noPermission"])
        #expect(world.kept.isEmpty)
        world.ask(2)
        #expect(world.calls.count == 1)
    }

    @Test func callsThatIgnoreTheCacheAreNeitherKeptNorShared() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello")
        world.ask(2, world.asking(CacheWorld.request(), .ignoringCache))
        world.ask(3, world.asking(CacheWorld.request(), .ignoringCache))
        #expect(world.calls.count == 2)
        world.answer("done", call: world.begun[1])
        world.answer("done too", call: world.begun[2])
        #expect(world.texts == ["network hello", "network done", "network done too"])
        #expect(world.kept.values.map(\.response.string) == ["hello"])
        #expect(world.machine.statistics.calls == 1)
    }

    // MARK: Stale answers

    @Test func aStaleAnswerIsGivenAtOnceAndAFreshOneIsFetchedOnceInTheBackground() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("old")
        world.pass(.seconds(90))
        let patient = world.asking(CacheWorld.request(), .returningStale(upTo: .seconds(60)))
        let two = world.ask(2, patient)
        let three = world.ask(3, patient)
        #expect(world.texts.dropFirst() == ["stale(age: 90.0 seconds) old", "stale(age: 90.0 seconds) old"])
        #expect(world.calls.count == 1)
        world.answer("fresh")
        #expect(world.texts(of: two.refresh) == ["network fresh"])
        #expect(world.texts(of: three.refresh) == ["network fresh"])
        world.ask(4, patient)
        #expect(world.texts.last == "cache(age: 0.0 seconds) fresh")
        #expect(world.machine.callerCount == 0)
        let statistics = world.machine.statistics
        #expect(statistics.staleHits == 2 && statistics.calls == 2 && statistics.coalesced == 0)
    }

    @Test func tooStaleAnswersAreNotReturned() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("old")
        world.pass(.seconds(120))
        world.ask(2, world.asking(CacheWorld.request(), .returningStale(upTo: .seconds(60))))
        #expect(world.completions.count == 1)
        world.answer("fresh")
        #expect(world.texts.last == "network fresh")
    }

    @Test func aRefreshThatFailsIsCountedAndChangesNothing() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("old")
        world.pass(.seconds(90))
        world.ask(2, world.asking(CacheWorld.request(), .returningStale(upTo: .seconds(60))))
        world.fail(.overloaded)
        #expect(world.machine.statistics.failedRefreshes == 1)
        #expect(world.kept.values.map(\.response.string) == ["old"])
    }

    @Test func cancellingWhoGotAStaleAnswerCancelsItsRefresh() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("old")
        world.pass(.seconds(90))
        let caller = world.ask(2, world.asking(CacheWorld.request(), .returningStale(upTo: .seconds(60))))
        world.cancel(caller)
        #expect(world.calls.isEmpty && world.cancelled == [world.lastCall])
        #expect(world.machine.callerCount == 0)
        #expect(world.texts(of: caller) == ["stale(age: 90.0 seconds) old"])
    }

    // MARK: Reloading

    @Test func reloadingAsksWhateverIsKept() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("old")
        world.ask(2, world.asking(CacheWorld.request(), .reloading))
        world.answer("new")
        world.ask(3)
        #expect(world.texts == ["network old", "network new", "cache(age: 0.0 seconds) new"])
    }

    @Test func reloadDoesNotUseACallThatBeganBefore() {
        var world = CacheWorld()
        world.ask(1)
        let reload = world.asking(CacheWorld.request(), .reloading)
        world.ask(2, reload)
        world.ask(3, reload)
        #expect(world.calls.count == 1)
        world.answer("first", metadata: ["revision": "a"])
        #expect(world.texts == ["network first"])
        // Both share the next call, which has the revision of the answer that has just arrived.
        #expect(world.calls.count == 1 && world.begun.count == 2)
        #expect(world.lastRequest?.metadata == ["revision": "a"])
        world.answer("second")
        #expect(world.texts == ["network first", "network second", "network second"])
    }

    @Test func whenTheCallBeforeIsCancelledWhoReloadsNeedNotWaitForItsEnd() {
        var world = CacheWorld()
        let first = world.ask(1, world.asking())
        world.ask(2, world.asking(CacheWorld.request(), .reloading))
        world.cancel(first)
        #expect(world.cancelled == [world.begun[0]])
        #expect(world.begun.count == 2 && world.calls.count == 1)
        world.answer("late", call: world.begun[0])
        world.answer("second")
        #expect(world.texts == ["cancelled", "network second"])
    }

    // MARK: Revisions

    @Test func anAnswerOfARevisionIsAskedForAgainByIt() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello", metadata: ["revision": "a", "region": "eu"])
        world.pass(.seconds(90))
        world.ask(2)
        #expect(world.lastRequest?.metadata == ["revision": "a"])
        world.fail(.notModified, metadata: ["region": "us"])
        #expect(world.texts.last == "revalidated hello")
        // Its validity starts over.
        world.pass(.seconds(59))
        world.ask(3)
        #expect(world.texts.last == "cache(age: 59.0 seconds) hello")
        #expect(world.kept.values.first?.response.metadata == ["revision": "a", "region": "us"])
        #expect(world.machine.statistics.revalidations == 1)
        world.pass(.seconds(1))
        world.ask(4)
        world.answer("changed", metadata: ["revision": "b"])
        #expect(world.texts.last == "network changed")
    }

    @Test(arguments: [SocketError.Code.featureNotAgreed, .invalidArgument])
    func whereThereIsNoMetadataItIsAskedForWithoutTheRevision(_ code: SocketError.Code) {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello", metadata: ["revision": "a"])
        world.pass(.seconds(90))
        world.ask(2)
        world.fail(code)
        #expect(world.lastRequest?.metadata == [:])
        #expect(world.calls.count == 1)
        world.answer("hello again")
        #expect(world.texts == ["network hello", "network hello again"])
        // A request that was not made conditional fails with the error.
        world.ask(3, world.asking(CacheWorld.request("8")))
        world.fail(code)
        #expect(world.texts.last == "\(code)")
    }

    @Test func aRevisionOfTheRequestItselfIsKept() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello", metadata: ["revision": "a"])
        world.pass(.seconds(90))
        var request = CacheWorld.request()
        request.metadata = ["revision": "mine"]
        world.ask(2, world.asking(request))
        #expect(world.lastRequest?.metadata == ["revision": "mine"])
        world.fail(.notModified)
        #expect(world.texts.last == "notModified")
    }

    @Test func aRevisionThatIsTooLongIsNotSentBack() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello", metadata: ["revision": String(repeating: "x", count: 257)])
        world.pass(.seconds(90))
        world.ask(2)
        #expect(world.lastRequest?.metadata == [:])
    }

    @Test func answerClearedDuringRevalidationIsRequestedAgainAndNotKept() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("hello", metadata: ["revision": "a"])
        world.pass(.seconds(90))
        world.ask(2)
        world.remove(.all)
        world.fail(.notModified)
        #expect(world.calls.count == 1)
        #expect(world.lastRequest?.metadata == [:])
        world.answer("hello again", metadata: ["revision": "a"])
        #expect(world.texts.last == "network hello again")
        #expect(world.kept.isEmpty)
    }

    // MARK: Sharing

    @Test func identicalRequestsInFlightShareOneCall() {
        var world = CacheWorld()
        for number in 1...1_000 { world.ask(number) }
        #expect(world.begun.count == 1)
        world.answer("hello")
        #expect(world.texts == Array(repeating: "network hello", count: 1_000))
        #expect(world.completions.map(\.caller.number) == Array(1...1_000))
        #expect(world.machine.statistics.coalesced == 999)
        #expect(world.machine.statistics.misses == 1_000)
    }

    @Test func cancellingOneCallerSparesTheOthers() {
        var world = CacheWorld()
        let callers = (1...3).map { world.ask($0, world.asking()) }
        world.cancel(callers[0])
        #expect(world.calls.count == 1)
        world.answer("hello")
        #expect(callers.map { world.texts(of: $0) } == [["cancelled"], ["network hello"], ["network hello"]])
    }

    @Test func theCallIsCancelledWithTheLastCallerAndWhoAsksThenBeginsAnother() {
        var world = CacheWorld()
        let callers = (1...2).map { world.ask($0, world.asking()) }
        for caller in callers { world.cancel(caller) }
        #expect(world.cancelled == world.begun && world.calls.isEmpty)
        world.ask(3)
        #expect(world.begun.count == 2)
        // The result of the first call has no effect.
        world.answer("late", call: world.begun[0])
        #expect(world.kept.isEmpty && world.completions.count == 2)
        world.answer("hello")
        #expect(world.texts == ["cancelled", "cancelled", "network hello"])
    }

    @Test func everyCallerGetsTheSharedCallsError() {
        var world = CacheWorld()
        for number in 1...3 { world.ask(number) }
        world.fail(.connectionLost)
        #expect(world.texts == ["connectionLost", "connectionLost", "connectionLost"])
        #expect(world.begun.count == 1)
    }

    @Test func callsByAnotherClientAreNotShared() {
        var world = CacheWorld()
        world.ask(1)
        var asking = world.asking()
        asking.transport = world.otherTransport
        world.ask(2, asking)
        #expect(world.calls.count == 2)
    }

    @Test func callerDuringASearchSharesIt() {
        var world = CacheWorld()
        _ = world.askOnly(1, world.asking())
        _ = world.askOnly(2, world.asking(CacheWorld.request(), .reloading))
        #expect(world.operations.count == 1)
        world.runStore()
        // Both have asked before the call began.
        world.answer("hello")
        #expect(world.texts == ["network hello", "network hello"])
        #expect(world.begun.count == 1)
    }

    @Test func waitingCallersAreBounded() {
        var world = CacheWorld()
        world.machine = SharedCallMachine(maximumCallers: 2)
        for number in 1...3 { world.ask(number) }
        #expect(world.texts == ["tooManyInFlight"])
        world.answer("hello")
        world.ask(4)
        #expect(world.texts.last == "cache(age: 0.0 seconds) hello")
    }

    @Test func cancellingAManagerSparesThoseOfOthers() {
        var world = CacheWorld()
        world.ask(1, world.asking(), manager: 1)
        world.ask(2, world.asking(CacheWorld.request("8")), manager: 1)
        world.ask(1, world.asking(), manager: 2)
        let now = world.now
        world.perform { $0.cancelAll(ofManager: 1, at: now, into: &$1) }
        #expect(world.texts == ["cancelled", "cancelled"])
        #expect(world.calls.count == 1)
        world.answer("hello", call: world.begun[0])
        #expect(world.texts.last == "network hello")
        #expect(world.machine.callerCount == 0 && world.machine.callCount == 0)
    }

    // MARK: Time

    @Test func theCallHasTheTimeoutOfItsCaller() {
        var world = CacheWorld()
        var request = CacheWorld.request()
        request.deadline = world.now.time + .seconds(3)
        world.ask(1, world.asking(timeout: .seconds(5)))
        #expect(world.lastRequest?.timeout == .seconds(5))
        #expect(world.lastRequest?.deadline == nil)
        world.ask(2, world.asking(request, .ignoringCache, timeout: .seconds(5)))
        #expect(world.lastRequest?.timeout == .seconds(3))
        #expect(world.lastRequest?.deadline == request.deadline)
    }

    @Test func callerWithLessTimeThanTheCallTimesOutAlone() {
        var world = CacheWorld()
        world.ask(1, world.asking(timeout: .seconds(8)))
        world.ask(2, world.asking(timeout: .seconds(2)))
        world.pass(.milliseconds(1_999))
        #expect(world.texts == [])
        world.pass(.milliseconds(1))
        #expect(world.texts == ["timeout"])
        #expect(world.calls.count == 1)
        world.answer("hello")
        #expect(world.texts == ["timeout", "network hello"])
    }

    @Test func callerWithMoreTimeThanTheCallKeepsItsTime() {
        var world = CacheWorld()
        world.ask(1, world.asking(timeout: .seconds(8)))
        world.pass(.seconds(6))
        world.ask(2, world.asking(timeout: .seconds(8)))
        world.pass(.seconds(2))
        world.fail(.timeout)
        #expect(world.texts == ["timeout"])
        // The request is made again with the rest of its time.
        #expect(world.calls.count == 1)
        #expect(world.lastRequest?.timeout == .seconds(6))
        world.pass(.seconds(1))
        world.answer("hello")
        #expect(world.texts == ["timeout", "network hello"])
        #expect(world.machine.statistics.coalesced == 1)
    }

    @Test func aTransportThatForgetsTheTimeoutIsNotWaitedForLonger() {
        var world = CacheWorld()
        world.ask(1, world.asking(timeout: .seconds(8)))
        world.pass(.milliseconds(8_999))
        #expect(world.texts == [])
        world.pass(.milliseconds(1))
        #expect(world.texts == ["timeout"])
        #expect(world.cancelled == world.begun)
    }

    @Test func aStoreThatDoesNotAnswerIsNotWaitedFor() {
        var world = CacheWorld()
        let caller = world.askOnly(1, world.asking(timeout: .seconds(8)))
        world.pass(.seconds(8))
        #expect(world.texts(of: caller) == ["timeout"])
        world.runStore()
        #expect(world.begun.isEmpty && world.completions.count == 1)
        #expect(world.machine.searchCount == 0)
    }

    @Test func callersThatHaveGoneHaveNoAlarms() {
        var world = CacheWorld()
        for number in 1...1_000 {
            let caller = world.ask(number, world.asking())
            world.cancel(caller)
        }
        #expect(world.machine.nextAlarm == nil)
        #expect(world.machine.callerCount == 0 && world.machine.callCount == 0)
    }

    // MARK: Clearing

    @Test func answersRequestedBeforeALogoutAreNotKeptAfterIt() {
        var world = CacheWorld()
        world.ask(1)
        world.remove(.all)
        world.answer("the old user's")
        #expect(world.texts == ["network the old user's"])
        #expect(world.kept.isEmpty)
        #expect(world.machine.statistics.clearedAnswers == 1)
    }

    @Test func callerAfterALogoutDoesNotJoinAnEarlierCall() {
        var world = CacheWorld()
        world.ask(1)
        world.remove(.all)
        world.ask(2)
        #expect(world.begun.count == 2)
        world.answer("the new user's")
        world.answer("the old user's", call: world.begun[0])
        #expect(world.texts == ["network the new user's", "network the old user's"])
        #expect(world.kept.values.map(\.response.string) == ["the new user's"])
    }

    @Test func searchDuringALogoutFindsNothing() {
        var world = CacheWorld()
        world.ask(1)
        world.answer("the old user's")
        _ = world.askOnly(2, world.asking())
        // The cache is cleared when the store has read the answer, but not delivered it yet.
        guard case .find(let number, let key)? = world.operations.popLast() else {
            Issue.record("nothing was searched for")
            return
        }
        let read = world.kept[key]
        world.remove(.all)
        let now = world.now
        world.perform { $0.found(read, by: number, at: now, into: &$1) }
        #expect(world.completions.count == 1)
        // A new request does not share this call, and its answer is not kept.
        world.ask(3)
        #expect(world.begun.count == 3)
        world.answer("the old user's again", call: world.begun[1])
        #expect(world.kept.isEmpty)
        world.answer("the new user's", call: world.begun[2])
        #expect(world.kept.values.map(\.response.string) == ["the new user's"])
    }

    @Test func clearingATypeSparesOthers() {
        var world = CacheWorld()
        let other = CacheWorld.request(type: 102)
        world.ask(1)
        world.answer("one")
        world.ask(2, world.asking(other))
        world.answer("two")
        world.ask(3, world.asking(CacheWorld.request("8")))
        world.ask(4, world.asking(CacheWorld.request("8", type: 102)))
        world.remove(.ofType(101))
        world.answer("three", call: world.begun[2])
        world.answer("four", call: world.begun[3])
        #expect(Set(world.kept.values.map(\.response.string)) == ["two", "four"])
    }

    @Test func clearingAManagersAnswersSparesThoseOfOthers() {
        var world = CacheWorld()
        world.ask(1, world.asking(owner: "a"))
        world.answer("a's")
        world.ask(2, world.asking(CacheWorld.request("8"), owner: "b"))
        world.answer("b's")
        world.ask(3, world.asking(CacheWorld.request("9"), owner: "a"))
        world.ask(4, world.asking(CacheWorld.request("9"), owner: "b"))
        let last = world.askOnly(5, world.asking(CacheWorld.request("7"), owner: "b"))
        world.remove(.ofOwner("a"))
        world.runStore()
        world.answer("both's", call: world.begun[2])
        #expect(world.kept.values.map(\.response.string) == ["b's"])
        // Another manager's search does not find the cleared manager's answer either.
        #expect(world.texts(of: last) == [])
        world.answer("b's own", call: world.begun[3])
        #expect(Set(world.kept.values.map(\.response.string)) == ["b's", "b's own"])
    }
}
