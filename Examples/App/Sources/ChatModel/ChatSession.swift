// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.

import HHSocketRPC

/// The objects that live as long as the app: the client with its connection, and the model of its screen.
@MainActor package final class ChatSession {
    package let client: SocketClient
    package let model: ChatModel
    private let tokens: SessionTokens
    private var running: Task<Void, Never>?

    package init(
        author: String,
        configuration: SocketClient.Configuration,
        tokens: SessionTokens,
        file: UnsentFile? = nil
    ) {
        self.client = SocketClient(configuration: configuration)
        self.model = ChatModel(author: author, chat: Chat_Chat.Client(self.client), file: file)
        self.tokens = tokens
    }

    /// Connects, and follows the connection until ``close()``. Each window may call it: only the first call counts.
    package func start() {
        guard self.running == nil else { return }
        // Each access creates a new stream, which has all events from now on.
        let (forModel, forTokens) = (self.client.events, self.client.events)
        self.client.connect()
        self.running = Task {
            async let tokens: Void = self.followRefusals(in: forTokens)
            await self.model.run(events: forModel)
            await tokens
        }
    }

    /// Disconnects, for example when the user signs out. Returns when the connection is closed.
    package func close() async {
        self.running?.cancel()
        await self.running?.value
        self.running = nil
        await self.client.close()
    }

    /// Forgets a token that a server has rejected: a later attempt gets another one.
    private func followRefusals(in events: AsyncStream<SocketEvent>) async {
        for await event in events {
            if case .connectFailed(let error) = event, error.code == .handshakeRefused {
                await self.tokens.invalidate()
            }
        }
    }

    /// Called when the app has entered the background. Returns when everything that could be sent has been sent.
    package func didEnterBackground() async {
        self.client.applicationDidEnterBackground()
        await self.model.sendUnsent()
    }

    /// Called when the app is about to return: a connection that was lost meanwhile is replaced immediately.
    package func willEnterForeground() {
        self.client.applicationWillEnterForeground()
    }
}
