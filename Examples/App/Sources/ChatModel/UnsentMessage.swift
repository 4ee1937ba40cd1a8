// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketRPC

/// A message that the server has not confirmed.
package struct UnsentMessage: Codable, Hashable, Sendable, Identifiable {
    /// The idempotency key: however often the message is sent, the server takes it once.
    package var id = UUID().uuidString
    package var text: String
    /// The reason why it is no longer sent automatically; nil while it waits.
    package var failure: String?

    package init(_ text: String) {
        self.text = text
    }
}

/// The file with the messages that wait, in their order.
///
/// It suits some dozens of messages that may be lost with the power; HHSocketOutbox is for those that may not.
package struct UnsentFile: Sendable {
    private let url: URL

    package init(at url: URL) {
        self.url = url
    }

    /// The messages of the last run; none if there is no such file, or it is of another version of the app.
    package func load() -> [UnsentMessage] {
        guard let data = try? Data(contentsOf: self.url) else { return [] }
        return (try? JSONDecoder().decode([UnsentMessage].self, from: data)) ?? []
    }

    package func save(_ messages: [UnsentMessage]) throws {
        try JSONEncoder().encode(messages).write(to: self.url, options: .atomic)
    }
}
