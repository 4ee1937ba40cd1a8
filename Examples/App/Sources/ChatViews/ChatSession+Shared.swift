#if canImport(SwiftUI)
import ChatModel
import Foundation
import HHSocketRPC

extension ChatSession {
    /// The app's one session: with the server of `swift run chat-example serve 7000`, which asks nobody for a token.
    static let shared: ChatSession = {
        let tokens = SessionTokens { SessionTokens.Token("anybody", expires: .distantFuture) }
        return ChatSession(
            author: "me",
            configuration: .chat(servers: [Endpoint(host: "127.0.0.1", port: 7000)], tls: nil, tokens: tokens),
            tokens: tokens,
            file: UnsentFile(at: URL.documentsDirectory.appending(path: "unsent.json"))
        )
    }()
}
#endif
