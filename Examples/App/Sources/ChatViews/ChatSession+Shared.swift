// SPDX-License-Identifier: Apache-2.0
#if canImport(SwiftUI)
import ChatModel
import Foundation
import HHSocketRPC

extension ChatSession {
    /// The app's one session: with the server of `swift run chat-example serve 7000`, which requires no token.
    static let shared: ChatSession = {
        let tokens = SessionTokens { SessionTokens.Token("anybody", expires: .distantFuture) }
        let folder = try? FileManager.default.url(
            for: .applicationSupportDirectory,
            in: .userDomainMask,
            appropriateFor: nil,
            create: true
        )
        return ChatSession(
            author: "me",
            configuration: .chat(servers: [Endpoint(host: "127.0.0.1", port: 7000)], tls: nil, tokens: tokens),
            tokens: tokens,
            file: folder.map { UnsentFile(at: $0.appendingPathComponent("unsent.json")) }
        )
    }()
}
#endif
