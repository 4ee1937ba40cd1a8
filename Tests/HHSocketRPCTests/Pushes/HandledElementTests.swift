// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink
@testable import HHSocketRPC

/// An element is handled when the reader that has got it requests the next one, ends, or is released: the same for
/// pushes, the items of streams, and messages.
@Suite(.timeLimit(.minutes(5))) struct HandledElementTests {
    enum Kind: CaseIterable { case push, item, itemOfServer, message, line }

    enum End: CaseIterable {
        /// The reader requests the next element, and waits for it.
        case next
        /// It gets nil, because there are no more.
        case finish
        /// It gives back the elements that it has not got.
        case giveBack
        case release
        /// Everything is dropped, and the reader requests another element.
        case cancel
    }

    private static let bytes = ByteBuffer(string: "element")

    @Test(arguments: Kind.allCases, End.allCases)
    func anElementIsHandledWhenItsReaderIsDoneWithIt(_ kind: Kind, _ end: End) async throws {
        let item = StreamItem(payload: Self.bytes, isCompressed: false, receipt: ItemReceipt())
        switch kind {
        case .push:
            let endpoint = Endpoint(host: "", port: 1)
            let push = SocketPush(type: 2_001, status: .ok, body: Self.bytes, endpoint: endpoint)
            try await self.check(Inbox(PushBufferingPolicy.dropOldest(64).bounds, account: nil), push, end)
        case .item: try await self.check(Inbox(.items(detaching: .behind), account: nil), item, end)
        case .itemOfServer: try await self.check(Inbox(.items(detaching: .all), account: nil), item, end)
        case .message: try await self.check(WebSocketInbox(account: nil) {}, WebSocketMessage("element"), end)
        case .line: try await self.check(Inbox(account: nil) {}, ReceivedLine(bytes: Self.bytes), end)
        }
    }

    private func check<Element: InboxElement>(_ inbox: Inbox<Element>, _ element: Element, _ end: End) async throws {
        let isHandled = NIOLockedValueBox(false)
        var elements: Deque = [element, element, element]
        inbox.append(contentsOf: &elements)
        var reader: Inbox<Element>.Reader? = inbox.makeReader()
        inbox.whenHandled { isHandled.withLockedValue { $0 = true } }
        for _ in 0..<3 {
            #expect(await reader?.next(isolation: #isolation) != nil)
            #expect(!isHandled.withLockedValue { $0 })
        }
        switch end {
        case .next:
            let waiting = Task { [reader] in await reader?.next(isolation: nil) == nil }
            try await eventually("the reader waits") { inbox.hasWaitingReader }
            #expect(isHandled.withLockedValue { $0 })
            inbox.finish()
            #expect(await waiting.value)
        case .finish:
            inbox.finish()
            #expect(!isHandled.withLockedValue { $0 })
            #expect(await reader?.next(isolation: #isolation) == nil)
        case .giveBack: reader?.giveBack()
        case .release: reader = nil
        case .cancel:
            inbox.cancel()
            #expect(!isHandled.withLockedValue { $0 })
            #expect(await reader?.next(isolation: #isolation) == nil)
        }
        #expect(isHandled.withLockedValue { $0 })
    }

    /// Elements that a reader has taken together, and not got, are not handled when it is released: another reader gets
    /// them.
    @Test func theRestOfABatchIsNotHandled() {
        let inbox = Inbox<StreamItem>(.items(detaching: .all), account: nil)
        let isHandled = NIOLockedValueBox(false)
        let item = StreamItem(payload: Self.bytes, isCompressed: false, receipt: ItemReceipt())
        var items: Deque = [item, item]
        inbox.append(contentsOf: &items)
        inbox.whenHandled { isHandled.withLockedValue { $0 = true } }
        #expect(inbox.makeReader().take() != nil)
        #expect(!isHandled.withLockedValue { $0 } && !inbox.isEmpty)
        #expect(inbox.makeReader().take() != nil)
        #expect(isHandled.withLockedValue { $0 } && inbox.isEmpty)
    }
}
