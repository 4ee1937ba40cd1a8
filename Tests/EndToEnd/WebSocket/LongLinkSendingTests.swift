// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Messages of a long link, as apps expect them: sending is safe in every state and has an outcome in each; messages
/// sent without an open connection leave after the opening, in order and once; threads may send at the same time;
/// completions run on the app's queue; nothing of an old connection reaches the app after the next opening; an error
/// over a message that is too long names its length, the limit and the setting on both sides.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LongLinkSendingTests {
    typealias Server = ScriptedWebSocketServer

    // MARK: States

    @Test func sendingIsSafeInEveryStateAndHasAnOutcome() async throws {
        // The first two openings are never answered, nor is the close frame of the third.
        let server = try await Server { number, _ in
            number < 2 ? .silence : .accept
        } reaction: { number, frame in
            frame.isClose && number == 2 ? .silence : .usual
        }
        let link = try TestLink.make(server.url())
        let events = link.events
        let outcomes = Outcomes()
        func sendBothKinds(_ state: String) {
            outcomes.send(state, on: link)
            link.send(WebSocketMessage([1, 2, 3]), completion: nil)
        }
        // Messages wait before `connect()`.
        sendBothKinds("idle")
        link.connect()
        sendBothKinds("connecting")
        try await server.wait("the first request") { !$0.request.isEmpty }
        sendBothKinds("opening")
        server.cut()
        try await server.wait("the second request", of: 1) { !$0.request.isEmpty }
        sendBothKinds("opening again")
        #expect(outcomes.all.isEmpty)
        server.cut(1)
        try await TestLink.waitForOpening(events)
        sendBothKinds("open")
        try await outcomes.wait(for: 5)
        #expect(outcomes.sent == ["idle", "connecting", "opening", "opening again", "open"])
        try await server.wait("all messages", of: 2) { $0.frames.count == 10 }
        #expect(server.connections.current[2].texts == outcomes.sent)
        #expect(server.connections.current[2].frames.filter { $0.first == 0x82 }.count == 5)
        // The close frame is not answered: the link is closing for a while.
        link.disconnect()
        sendBothKinds("closing")
        try await outcomes.wait(for: 6)
        #expect(outcomes.error(of: "closing")?.code == .notConnected)
        server.cut(2)
        await link.waitUntilClosed()
        sendBothKinds("closed")
        try await outcomes.wait(for: 7)
        #expect(outcomes.error(of: "closed")?.code == .notConnected)
        link.connect()
        try await link.send(WebSocketMessage("once more"))
        try await server.wait("the last message", of: 3) { $0.texts == ["once more"] }
        #expect(outcomes.all.count == 7)
        link.disconnect()
        await server.close()
    }

    @Test func messageSentDuringAWaitFollowsItAndIsNotSentTwice() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) {
            $0.socket.backoff = Backoff(base: .milliseconds(100), cap: .milliseconds(100), jitter: 0)
        }
        let (outcomes, events) = (Outcomes(), link.events)
        link.connect()
        for number in 0..<4 {
            try await TestLink.waitForOpening(events)
            outcomes.send("open \(number)", on: link)
            try await server.wait("the message", of: number) { $0.texts.last == "open \(number)" }
            server.cut(number)
            try await TestLink.event(events, "a wait") { if case .waiting = $0 { true } else { false } }
            outcomes.send("waiting \(number)", on: link)
        }
        try await outcomes.wait(for: 8)
        try await server.wait("the last message", of: 4) { !$0.texts.isEmpty }
        let texts = server.connections.current.flatMap(\.texts)
        #expect(texts == (0..<4).flatMap { ["open \($0)", "waiting \($0)"] })
        #expect(outcomes.sent == texts)
        link.disconnect()
        await server.close()
    }

    @Test func messagesThatWaitFailWhenTheUserCloses() async throws {
        let port = try await TestLink.freePort()
        let link = try TestLink.make("ws://127.0.0.1:\(port)/")
        let outcomes = Outcomes()
        link.connect()
        for number in 0..<20 { outcomes.send("\(number)", on: link) }
        link.disconnect()
        try await outcomes.wait(for: 20)
        #expect(outcomes.all.allSatisfy { $0.error?.code == .cancelled && $0.error?.delivery == .notSent })
    }

    @Test func messagesThatWaitFailWhenTheLinkIsReleased() async throws {
        let port = try await TestLink.freePort()
        let outcomes = Outcomes()
        do {
            let link = try TestLink.make("ws://127.0.0.1:\(port)/")
            link.connect()
            for number in 0..<20 { outcomes.send("\(number)", on: link) }
        }
        try await outcomes.wait(for: 20)
        #expect(outcomes.sent == [])
    }

    // MARK: Threads

    @Test func threadsMaySendAtTheSameTimeAndEachKeepsItsOrder() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        link.connect()
        let (threads, count) = (8, 200)
        // Threads of the system, some of which begin before the link is open.
        DispatchQueue.concurrentPerform(iterations: threads) { thread in
            for number in 0..<count { link.send(WebSocketMessage("\(thread) \(number)"), completion: nil) }
        }
        let texts = try await server.value("all messages") { $0.texts.count == threads * count ? $0.texts : nil }
        for thread in 0..<threads {
            let mine = texts.filter { $0.hasPrefix("\(thread) ") }
            #expect(mine == (0..<count).map { "\(thread) \($0)" })
        }
        link.disconnect()
        await server.close()
    }

    @Test func completionsRunOnTheAppsQueueInOrder() async throws {
        let server = try await Server()
        let key = DispatchSpecificKey<Bool>()
        let queue = DispatchQueue(label: "the app's")
        queue.setSpecific(key: key, value: true)
        let link = try TestLink.make(server.url()) { $0.socket.callbackQueue = .queue(queue) }
        let completed = Watched<[Int]>([])
        link.connect()
        for number in 0..<100 {
            link.send(WebSocketMessage("\(number)")) { _ in
                if DispatchQueue.getSpecific(key: key) == true { completed.withLockedValue { $0.append(number) } }
            }
        }
        try await completed.wait("all completions") { $0 == Array(0..<100) }
        link.disconnect()
        await server.close()
    }

    /// A caller may hold a lock that its completion takes.
    @Test(arguments: [true, false]) func completionRunsAfterItsFunctionHasReturned(
        isOnTheSocketsThread: Bool
    ) async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) {
            $0.socket.callbackQueue = .socketThread
            $0.maximumWaitingMessages = 1
        }
        let completions = Completions()
        // No connection is wanted yet: one message may wait, and others are refused at once.
        let sendAll: @Sendable () -> Void = {
            for name in ["waits", "refused", "refused as well"] {
                completions.of(name) { link.send(WebSocketMessage(name), completion: $0) }
            }
        }
        if isOnTheSocketsThread { await Task(executorPreference: link.executor) { sendAll() }.value } else { sendAll() }
        let refused = [Completions.Completion.refused(.queueFull)]
        #expect(try await completions.wait(for: 2) == ["refused": refused, "refused as well": refused])
        link.connect()
        #expect(try await completions.wait(for: 3)["waits"] == [.sent])
        link.disconnect()
        await server.close()
    }

    // MARK: Receiving

    @Test func unfinishedMessageOfAnOldConnectionIsDropped() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        var messages = link.messages.makeAsyncIterator()
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        // A whole one, half a frame, and the first fragment of a message.
        try await server.send(Server.text("whole") + Server.frame(0x01, Array("old ".utf8)))
        #expect(await messages.next()?.text == "whole")
        server.cut()
        try await TestLink.waitForOpening(events)
        try await server.send(Server.text("new"), on: 1)
        #expect(await messages.next()?.text == "new")
        #expect(server.count == 2)
        link.disconnect()
        await server.close()
    }

    @Test func nextConnectionBeginsWhenTheOldOneIsGone() async throws {
        // The close frame of the first connection is not answered: it stays open for a while after the user's close.
        let server = try await Server { _, _ in
            .accept
        } reaction: { number, frame in
            frame.isClose && number == 0 ? .silence : .usual
        }
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        link.disconnect()
        link.connect()
        try await server.wait("the close frame") { $0.close != nil }
        // Messages that still arrive are the old connection's, and precede the next one's.
        try await server.send(Server.text("late"))
        var messages = link.messages.makeAsyncIterator()
        #expect(await messages.next()?.text == "late")
        #expect(server.count == 1)
        server.cut()
        try await TestLink.waitForOpening(events)
        try await server.send(Server.text("new"), on: 1)
        #expect(await messages.next()?.text == "new")
        link.disconnect()
        await server.close()
    }

    @Test func readerThatDoesNotReadHoldsUpTheServer() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url())
        let events = link.events
        link.connect()
        try await TestLink.waitForOpening(events)
        let (count, length) = (4_096, 32 << 10)
        let written = NIOLockedValueBox(0)
        let message = Server.frame(0x82, [UInt8](repeating: 7, count: length))
        let writing = Task {
            for _ in 0..<count {
                try await server.send(message)
                written.withLockedValue { $0 += 1 }
            }
        }
        // Waits until nothing moves: 128 MiB are more than the kernel's buffers and ours hold.
        let last = NIOLockedValueBox((count: 0, times: 0))
        try await eventually("a server that is held up") {
            let now = written.withLockedValue { $0 }
            return last.withLockedValue { last in
                last = now == last.count ? (now, last.times + 1) : (now, 0)
                return last.times >= 100 && now > 0
            }
        }
        #expect(written.withLockedValue { $0 } < count)
        var messages = link.messages.makeAsyncIterator()
        for _ in 0..<count { #expect(await messages.next()?.payload.readableBytes == length) }
        try await writing.value
        #expect(server.count == 1)
        link.disconnect()
        await server.close()
    }

    // MARK: Messages that are too long

    @Test func clientsErrorOverALongMessageNamesLengthLimitAndSetting() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) { $0.maximumMessageLength = 1_000 }
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        try await server.send(Server.frame(0x82, [UInt8](repeating: 7, count: 1_001)))
        let closure = try await TestLink.closure(events)
        #expect(!closure.wasClean)
        #expect(closure.error?.code == .protocolViolation)
        for word in ["1001", "1000", "maximumMessageLength"] {
            #expect(closure.error?.message.contains(word) == true, "\(closure)")
        }
        // The server is notified too. A reconnect would fail again.
        let close = try await server.value("the close frame") { $0.close }
        #expect(Array(close.payload.prefix(2)) == [0x03, 0xF1])
        #expect(String(decoding: close.payload.dropFirst(2), as: UTF8.self).contains("maximumMessageLength"))
        try await TestLink.waitUntilItGivesUp(events)
        #expect(server.count == 1)
        await server.close()
    }

    @Test func clientsErrorOverFragmentsNamesTheSetting() async throws {
        let server = try await Server()
        let link = try TestLink.make(server.url()) { $0.maximumFragments = 3 }
        let events = link.events
        link.connect()
        try await link.send(WebSocketMessage("hello"))
        let more = Server.frame(0x00, [7])
        try await server.send(Server.frame(0x02, [7]) + more + more + more)
        let closure = try await TestLink.closure(events)
        #expect(closure.error?.message.contains("more than 3 fragments (maximumFragments)") == true, "\(closure)")
        let close = try await server.value("the close frame") { $0.close }
        #expect(Array(close.payload.prefix(2)) == [0x03, 0xF1])
        await server.close()
    }
}
