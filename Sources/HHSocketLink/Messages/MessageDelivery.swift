// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A receiver of messages that may fall behind.
package protocol MessageTaking<Message>: AnyObject, Sendable {
    associatedtype Message: InboxElement

    /// Whether nothing more should be read for now.
    var isFull: Bool { get }
    /// Calls `body` once it is not full.
    func whenRoom(_ body: @escaping @Sendable () -> Void)
    /// Delivers a message, on the socket's thread.
    ///
    /// - Returns: Whether no further messages should be delivered for now.
    func deliver(_ message: Message, on loop: SocketLoop) -> Bool
}

/// The place where messages go.
package enum MessageDelivery<Message: InboxElement> {
    case inbox(Inbox<Message>)
    /// Called on the socket's thread, among the handlers of a turn.
    case handler(@Sendable (Message) -> Void)
    case delegate(any MessageTaking<Message>)

    /// Whether nothing more should be read for now.
    package var isFull: Bool {
        switch self {
        case .inbox(let inbox): inbox.isFull
        case .delegate(let delegate): delegate.isFull
        case .handler: false
        }
    }

    /// - Parameter isLast: Whether the connection ends, so that the message would be lost if it were not accepted now.
    /// - Returns: Whether no further messages should be delivered for now.
    package func deliver(_ message: Message, isLast: Bool, on loop: SocketLoop, in turn: inout Turn) -> Bool {
        switch self {
        case .inbox(let inbox):
            return inbox.append(message, isLast: isLast)
        case .handler(let handler):
            turn.run(MessageHandler(handler: handler, message: message))
            return false
        case .delegate(let delegate):
            return delegate.deliver(message, on: loop)
        }
    }

    /// Calls `body` once the current messages were handled and the sends that they caused have been submitted.
    package func whenTaken(on loop: SocketLoop, _ body: @escaping @Sendable () -> Void) {
        switch self {
        case .handler: body()
        case .delegate: loop.callBack(.closure(body))
        case .inbox(let inbox): inbox.whenHandled(body)
        }
    }
}

/// A message for a handler, among the others of its turn.
private struct MessageHandler<Message: InboxElement>: TurnHandler {
    let handler: @Sendable (Message) -> Void
    let message: Message

    static func run(at pointer: UnsafeMutableRawPointer) {
        let this = pointer.takeHandler(Self.self)
        this.handler(this.message)
    }
}

extension Link {
    /// Defers received messages that were not taken: until their receiver has room, or until another turn.
    ///
    /// - Parameter isFull: Whether there is no room.
    /// - Returns: False if there is nothing to defer, or no later turn.
    package func deferRest<Message>(of delivery: MessageDelivery<Message>, isFull: Bool) -> Bool {
        guard self.mayDeferUnits, self.unfinishedBytes > 0 else { return false }
        self.deferUnits()
        let (loop, bound) = (self.loop, NIOLoopBound(self, eventLoop: self.loop.eventLoop))
        let resume: @Sendable () -> Void = {
            loop.submit { bound.value.takeDeferredUnits(in: &$0) }
        }
        switch delivery {
        case .inbox(let inbox) where isFull: inbox.whenRoom(resume)
        case .delegate(let delegate) where isFull: delegate.whenRoom(resume)
        default: resume()
        }
        return true
    }
}
