// SPDX-License-Identifier: Apache-2.0
// Docs/Apps.md quotes this file word for word.
#if canImport(UIKit)
import ChatModel
import UIKit

/// The lifecycle in an app of UIKit, in place of ``ChatScene``.
final class ChatSceneDelegate: UIResponder, UIWindowSceneDelegate {
    var window: UIWindow?
    private let session = ChatSession.shared
    private let backgroundTime = BackgroundTime()

    func scene(_ scene: UIScene, willConnectTo session: UISceneSession, options: UIScene.ConnectionOptions) {
        guard let scene = scene as? UIWindowScene else { return }
        let window = UIWindow(windowScene: scene)
        window.rootViewController = ChatViewController(model: self.session.model)
        window.makeKeyAndVisible()
        self.window = window
        self.session.start()
    }

    func sceneDidEnterBackground(_ scene: UIScene) {
        // Without it the system may suspend the app before calls in flight are answered.
        self.backgroundTime.begin()
        Task {
            await self.session.didEnterBackground()
            self.backgroundTime.end()
        }
    }

    func sceneWillEnterForeground(_ scene: UIScene) {
        self.session.willEnterForeground()
    }
}

/// Some seconds in which the system does not suspend the app.
@MainActor final class BackgroundTime {
    private var identifier = UIBackgroundTaskIdentifier.invalid

    func begin() {
        self.end()
        self.identifier = UIApplication.shared.beginBackgroundTask(withName: "calls") { [weak self] in self?.end() }
    }

    func end() {
        guard self.identifier != .invalid else { return }
        UIApplication.shared.endBackgroundTask(self.identifier)
        self.identifier = .invalid
    }
}
#endif
