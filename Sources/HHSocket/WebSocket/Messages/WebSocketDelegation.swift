import NIOConcurrencyHelpers
import NIOCore

/// The way to a link's delegate: by the callback queue, and with reading suspended while that is behind. On the
/// socket's thread, but for the delegate itself.
package final class WebSocketDelegation: Sendable {
    private struct State {
        weak var link: WebSocketLink?
        weak var delegate: (any WebSocketLinkDelegate)?
    }

    private let state = NIOLockedValueBox(State())
    /// Called when it is not full any more.
    private let whenRoom = NIOLockedValueBox<(@Sendable () -> Void)?>(nil)
    private let backlog = CallbackBacklog()
    /// Called when ``isFull`` has changed; on any thread.
    private let fullnessChanged: @Sendable () -> Void

    init(fullnessChanged: @escaping @Sendable () -> Void) {
        self.fullnessChanged = fullnessChanged
    }

    /// Whether nothing more should be read for now.
    var isFull: Bool { self.backlog.isFull }

    func setLink(_ link: WebSocketLink) {
        self.state.withLockedValue { $0.link = link }
    }

    var delegate: (any WebSocketLinkDelegate)? {
        get { self.state.withLockedValue { $0.delegate } }
        set { self.state.withLockedValue { $0.delegate = newValue } }
    }

    private var receiver: (delegate: any WebSocketLinkDelegate, link: WebSocketLink)? {
        let (delegate, link) = self.state.withLockedValue { ($0.delegate, $0.link) }
        guard let delegate, let link else { return nil }
        return (delegate, link)
    }

    /// Notifies the delegate, if there is one.
    func notify(
        on loop: SocketLoop,
        _ body: @escaping @Sendable (any WebSocketLinkDelegate, WebSocketLink) -> Void
    ) {
        guard let receiver = self.receiver else { return }
        loop.callBack(.closure { body(receiver.delegate, receiver.link) })
    }

    /// Notifies the delegate of an event, if it is one of the delegate's.
    func notify(of event: WebSocketLink.Event, on loop: SocketLoop) {
        switch event {
        case .opened(let endpoint, let subprotocol, let headers):
            self.notify(on: loop) { delegate, link in
                delegate.webSocketLink(link, didOpenTo: endpoint, subprotocol: subprotocol, headers: headers)
            }
        case .closed(let closure):
            self.notify(on: loop) { $0.webSocketLink($1, didCloseWith: closure) }
        case .connection(.connectFailed(let error)):
            self.notify(on: loop) { $0.webSocketLink($1, didFailToConnectWith: error) }
        case .connection(.gaveUp(let error)):
            self.notify(on: loop) { $0.webSocketLink($1, didGiveUpWith: error) }
        case .connection:
            break
        }
    }

    /// Calls `body` once it is not full.
    func whenRoom(_ body: @escaping @Sendable () -> Void) {
        self.whenRoom.withLockedValue { $0 = body }
        // Asked afterwards: there may be room since.
        if !self.isFull { self.hasRoom() }
    }

    private func hasRoom() {
        self.whenRoom.withLockedValue { $0.take() }?()
    }

    /// Hands a message over.
    ///
    /// - Returns: Whether nothing more should come for now.
    func deliver(_ message: WebSocketMessage, on loop: SocketLoop) -> Bool {
        guard let receiver = self.receiver else { return false }
        let length = message.payload.readableBytes
        if self.backlog.add(bytes: length) { self.fullnessChanged() }
        loop.callBack(
            .closure {
                receiver.delegate.webSocketLink(receiver.link, didReceive: message)
                guard self.backlog.remove(bytes: length) else { return }
                self.hasRoom()
                self.fullnessChanged()
            }
        )
        return self.isFull
    }
}
