// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

extension LineLink: ExchangedLink {
    func receive(_ take: @Sendable (Result<ByteBuffer, SocketError>) -> Bool) async {
        for await line in self.lines.results where !take(line.map { ByteBuffer(string: $0) }) { return }
    }

    func finishReceiving() { self.finishLines() }

    func setHandler(_ handler: @escaping @Sendable (ByteBuffer) -> Void) { self.setLineHandler { handler($0.bytes) } }

    static func message(ofInput text: ByteBuffer) -> ByteBuffer { text }

    static func content(of message: ByteBuffer) -> ExchangedContent { .text(message) }

    static func news(of event: Event) -> ExchangeNews {
        switch event {
        case .connection(.connectFailed(let error)): .attemptFailed(error)
        case .connection(.gaveUp): .gaveUp(nil)
        case .closed(let error): error.map { .lost($0) } ?? .nothing
        case .opened, .unreadable, .connection: .nothing
        }
    }
}
