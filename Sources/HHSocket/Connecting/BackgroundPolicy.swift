// SPDX-License-Identifier: Apache-2.0
/// The treatment of a connection when the app goes into the background. Systems that suspend apps end their connections
/// without notice, so an app need not rely on them.
public struct BackgroundPolicy: Hashable, Sendable {
    enum Kind: Hashable, Sendable { case finishTasks, failTasks, keepConnected }
    let kind: Kind

    /// Lets calls in flight finish, without pings, and does not reconnect before the app returns. The default.
    public static let finishTasks = BackgroundPolicy(kind: .finishTasks)
    /// Fails calls in flight at once, and closes the connection until the app returns.
    public static let failTasks = BackgroundPolicy(kind: .failTasks)
    /// Nothing changes, but the heartbeat's strategy is notified. For apps that may run in the background, and
    /// for everything that is not an app.
    public static let keepConnected = BackgroundPolicy(kind: .keepConnected)
}
