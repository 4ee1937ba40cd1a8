// SPDX-License-Identifier: Apache-2.0
/// Decides how often to ping.
public protocol HeartbeatStrategy: Sendable {
    /// Returns the interval to use after `history`. Called on the socket thread when a connection is ready and whenever
    /// the history changed, and first on the thread that makes the socket or client, so it must be quick. Less than 1
    /// ms counts as 1 ms.
    func interval(for history: HeartbeatHistory) -> Duration
}

/// A constant interval, or one for the foreground and one for the background.
public struct FixedHeartbeat: HeartbeatStrategy, Hashable {
    /// The interval.
    public var interval: Duration
    /// The interval while the app is not active; nil for ``interval``.
    public var inBackground: Duration?

    /// - Parameters:
    ///   - interval: The interval.
    ///   - inBackground: The interval while the app is not active, which always applies in a process that is not an
    ///     app; nil, the default, for `interval`.
    public init(interval: Duration, inBackground: Duration? = nil) {
        self.interval = interval
        self.inBackground = inBackground
    }

    public func interval(for history: HeartbeatHistory) -> Duration {
        history.isApplicationActive ? self.interval : self.inBackground ?? self.interval
    }
}

/// An interval computed by a closure.
public struct CustomHeartbeat: HeartbeatStrategy {
    private let body: @Sendable (HeartbeatHistory) -> Duration

    /// - Parameter interval: Computes the interval; see ``HeartbeatStrategy/interval(for:)``.
    public init(_ interval: @escaping @Sendable (HeartbeatHistory) -> Duration) {
        self.body = interval
    }

    public func interval(for history: HeartbeatHistory) -> Duration {
        self.body(history)
    }
}

extension HeartbeatStrategy where Self == FixedHeartbeat {
    /// A constant interval, or another one while the app is not active.
    public static func fixed(_ interval: Duration, inBackground: Duration? = nil) -> FixedHeartbeat {
        FixedHeartbeat(interval: interval, inBackground: inBackground)
    }
}

extension HeartbeatStrategy where Self == AdaptiveHeartbeat {
    /// The longest interval for which the network keeps idle connections alive, between `minimum` (210 s by default)
    /// and `maximum` (600 s), found in steps (60 s).
    public static func adaptive(
        minimum: Duration = .seconds(210),
        maximum: Duration = .seconds(600),
        step: Duration = .seconds(60)
    ) -> AdaptiveHeartbeat {
        AdaptiveHeartbeat(minimum: minimum, maximum: maximum, step: step)
    }
}

extension HeartbeatStrategy where Self == CustomHeartbeat {
    /// The interval that the closure computes.
    public static func custom(_ interval: @escaping @Sendable (HeartbeatHistory) -> Duration) -> CustomHeartbeat {
        CustomHeartbeat(interval)
    }
}
