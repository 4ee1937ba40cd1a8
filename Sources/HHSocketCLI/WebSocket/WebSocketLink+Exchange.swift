// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension WebSocketLink: ExchangedLink {
    func receive(_ take: @Sendable (Result<WebSocketMessage, SocketError>) -> Bool) async {
        for await message in self.messages where !take(.success(message)) { return }
    }

    func finishReceiving() { self.finishMessages() }

    func setHandler(_ handler: @escaping @Sendable (WebSocketMessage) -> Void) { self.setMessageHandler(handler) }

    static func message(ofInput text: ByteBuffer) -> WebSocketMessage { WebSocketMessage(.text, text) }

    static func content(of message: WebSocketMessage) -> ExchangedContent {
        message.kind == .text ? .text(message.payload) : .binary(message.payload)
    }

    static func news(of event: Event) -> ExchangeNews {
        switch event {
        case .connection(.connectFailed(let error)): return .attemptFailed(error)
        case .connection(.gaveUp(let error)): return .gaveUp(error.underlying as? WebSocketClosure)
        case .closed(let closure):
            guard let error = closure.error else { return .nothing }
            guard closure.wasClean else { return .lost(error) }
            return .closedByServer(WebSocketClosure(code: closure.code, reason: closure.reason))
        case .opened, .connection: return .nothing
        }
    }
}
