// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WebSocketInboxTests {
    private func message(_ text: String) -> WebSocketMessage { WebSocketMessage(text) }

    @Test func cancellingOneReaderSparesTheOthers() async throws {
        let inbox = WebSocketInbox(account: nil) {}
        let texts = NIOLockedValueBox<[String]>([])
        func reader() -> Task<Bool, Never> {
            Task {
                for await message in WebSocketMessages(inbox) {
                    texts.withLockedValue { $0.append(message.text ?? "") }
                }
                return Task.isCancelled
            }
        }
        let (first, second) = (reader(), reader())
        inbox.append(self.message("a"))
        try await eventually("the first message") { texts.withLockedValue { $0 } == ["a"] }
        first.cancel()
        #expect(await first.value)
        for text in ["b", "c"] { inbox.append(self.message(text)) }
        try await eventually("all messages") { texts.withLockedValue { $0 } == ["a", "b", "c"] }
        inbox.finish()
        #expect(await second.value == false)
    }

    @Test func cancellationIsNeverMissed() async throws {
        let inbox = WebSocketInbox(account: nil) {}
        for _ in 0..<500 {
            let reader = Task { for await _ in WebSocketMessages(inbox) {} }
            if Bool.random() { await Task.yield() }
            reader.cancel()
            try await waitForValue(of: reader, "the end of a cancelled reader")
        }
    }

    @Test func messagesAreReadWhenEveryReaderHasComeBackOrIsGone() async throws {
        let inbox = WebSocketInbox(account: nil) {}
        let isRead = NIOLockedValueBox(false)
        for text in ["a", "b"] { inbox.append(self.message(text)) }
        var first: WebSocketMessages.AsyncIterator? = WebSocketMessages(inbox).makeAsyncIterator()
        var second = WebSocketMessages(inbox).makeAsyncIterator()
        #expect(await first?.next(isolation: #isolation)?.text == "a")
        #expect(await second.next(isolation: #isolation)?.text == "b")
        inbox.whenHandled { isRead.withLockedValue { $0 = true } }
        // The second reader comes back for more, and the first still has a message.
        inbox.append(self.message("c"))
        #expect(await second.next(isolation: #isolation)?.text == "c")
        #expect(!isRead.withLockedValue { $0 })
        first = nil
        #expect(!isRead.withLockedValue { $0 })
        inbox.finish()
        #expect(await second.next(isolation: #isolation) == nil)
        #expect(isRead.withLockedValue { $0 })
    }

    @Test func readingIsSuspendedWhileTooMuchWaits() async throws {
        let calls = NIOLockedValueBox(0)
        let inbox = WebSocketInbox(account: nil) { calls.withLockedValue { $0 += 1 } }
        for number in 0..<256 {
            #expect(!inbox.isFull)
            inbox.append(self.message("\(number)"))
        }
        #expect(inbox.isFull && calls.withLockedValue { $0 } == 1)
        var messages = WebSocketMessages(inbox).makeAsyncIterator()
        for number in 0..<128 {
            #expect(inbox.isFull)
            #expect(await messages.next(isolation: #isolation)?.text == "\(number)")
        }
        #expect(!inbox.isFull && calls.withLockedValue { $0 } == 2)
        inbox.finish()
        for number in 128..<256 { #expect(await messages.next(isolation: #isolation)?.text == "\(number)") }
        #expect(await messages.next(isolation: #isolation) == nil)
        // A connection that ends delivers its remaining messages.
        let last = WebSocketInbox(account: nil) {}
        for _ in 0..<65_536 { last.append(self.message(""), isLast: true) }
        last.append(self.message("dropped"), isLast: true)
        last.finish()
        var count = 0
        for await _ in WebSocketMessages(last) { count += 1 }
        #expect(count == 65_536)
        let large = WebSocketInbox(account: nil) {}
        large.append(WebSocketMessage([UInt8](repeating: 0, count: 1 << 20)))
        #expect(large.isFull)
    }

    private struct Rest: InboxRest {
        var texts: [String]
        /// Trailing bytes that are not a message.
        var tail = 1

        var memory: Int { self.texts.map(\.utf8.count).reduce(self.tail, +) }

        mutating func next() -> WebSocketMessage? {
            self.texts.isEmpty ? nil : WebSocketMessage(self.texts.removeFirst())
        }
    }

    @Test func messagesOfEndedConnectionsAreReadInOrderAndSuspendReading() async throws {
        let calls = NIOLockedValueBox(0)
        let inbox = WebSocketInbox(account: nil) { calls.withLockedValue { $0 += 1 } }
        let isRead = NIOLockedValueBox(false)
        inbox.append(self.message("a"))
        inbox.append(rest: Rest(texts: ["b", "c"]))
        inbox.append(self.message("d"))
        inbox.append(rest: Rest(texts: []))
        inbox.append(rest: Rest(texts: ["e"]))
        #expect(inbox.isFull && calls.withLockedValue { $0 } == 1)
        inbox.whenHandled { isRead.withLockedValue { $0 = true } }
        var first: WebSocketMessages.AsyncIterator? = WebSocketMessages(inbox).makeAsyncIterator()
        for text in ["a", "b", "c", "d", "e"] {
            #expect(inbox.isFull)
            #expect(await first?.next(isolation: #isolation)?.text == text)
        }
        first = nil
        #expect(!isRead.withLockedValue { $0 })
        // The waiting reader finds that no message is left.
        let reader = Task {
            var messages = WebSocketMessages(inbox).makeAsyncIterator()
            return await messages.next(isolation: nil)?.text
        }
        try await eventually("room") { !inbox.isFull }
        #expect(calls.withLockedValue { $0 } == 2 && isRead.withLockedValue { $0 })
        // A waiting reader is served immediately.
        inbox.append(rest: Rest(texts: ["f", "g"]))
        #expect(await reader.value == "f")
        #expect(inbox.isFull)
        inbox.finish()
        var messages = WebSocketMessages(inbox).makeAsyncIterator()
        #expect(await messages.next(isolation: #isolation)?.text == "g")
        #expect(await messages.next(isolation: #isolation) == nil)
    }
}
