// SPDX-License-Identifier: Apache-2.0
// What Examples/App uses of UIKit, whose classes are main-actor-isolated.
@_exported public import Foundation

@MainActor open class UIResponder {
    public nonisolated init() {}
}

@MainActor open class UIView: UIResponder {
    open func addSubview(_ view: UIView) {}
}

@MainActor open class UILabel: UIView {
    open var text: String?
}

@MainActor open class UIViewController: UIResponder {
    public init(nibName: String?, bundle: Bundle?) {}
    public required init?(coder: NSCoder) {}
    open var view: UIView! { fatalError() }
    open func viewDidLoad() {}
}

@MainActor open class UIWindow: UIView {
    public init(windowScene: UIWindowScene) {}
    open var rootViewController: UIViewController?
    open func makeKeyAndVisible() {}
}

@MainActor open class UIScene: UIResponder {
    @MainActor open class ConnectionOptions {}
}

@MainActor open class UIWindowScene: UIScene {}
@MainActor open class UISceneSession {}

@MainActor public protocol UISceneDelegate: AnyObject {
    func scene(_ scene: UIScene, willConnectTo session: UISceneSession, options: UIScene.ConnectionOptions)
    func sceneDidEnterBackground(_ scene: UIScene)
    func sceneWillEnterForeground(_ scene: UIScene)
}

@MainActor public protocol UIWindowSceneDelegate: UISceneDelegate {
    var window: UIWindow? { get set }
}

public struct UIBackgroundTaskIdentifier: RawRepresentable, Hashable, Sendable {
    public var rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }
    public static let invalid = UIBackgroundTaskIdentifier(rawValue: 0)
}

@MainActor open class UIApplication: UIResponder {
    open class var shared: UIApplication { fatalError() }
    open func beginBackgroundTask(
        withName name: String?,
        expirationHandler handler: (@MainActor @Sendable () -> Void)? = nil
    ) -> UIBackgroundTaskIdentifier { fatalError() }
    open func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) {}
}
