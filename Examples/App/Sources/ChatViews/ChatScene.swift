// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.
#if canImport(SwiftUI)
import ChatModel
import SwiftUI

/// The chat, for an app's `body`. It notifies the client when the app enters the background or returns.
public struct ChatScene: Scene {
    @Environment(\.scenePhase) private var phase
    private let session = ChatSession.shared

    public init() {}

    public var body: some Scene {
        WindowGroup {
            ChatView(model: self.session.model)
                // Not ended with the view: the connection is the app's.
                .task { self.session.start() }
        }
        .onChange(of: self.phase) { old, new in
            if new == .background {
                Task { await self.session.didEnterBackground() }
            } else if old == .background {
                self.session.willEnterForeground()
            }
        }
    }
}
#endif
