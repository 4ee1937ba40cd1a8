// SPDX-License-Identifier: Apache-2.0
/// The treatment of a connection when the app goes into the background. Systems that suspend apps end their connections
/// without notice, so an app need not rely on them. Cases may be added; have a default when you switch over it.
public enum BackgroundPolicy: Hashable, Sendable {
    /// Lets calls in flight finish, without pings, and does not reconnect before the app returns. The default.
    case finishTasks
    /// Fails calls in flight at once, and closes the connection until the app returns.
    case failTasks
    /// Nothing changes, but the heartbeat's strategy is notified. For apps that may run in the background, and
    /// for everything that is not an app.
    case keepConnected
}
