// SPDX-License-Identifier: Apache-2.0
/// Decides how often to ping.
public protocol HeartbeatStrategy: Sendable {
    /// Returns the interval to use after `history`. Called on the socket thread when a connection is ready and whenever
    /// the history changed, and first on the thread that makes the socket or client, so it must be quick. Less than 1
    /// ms counts as 1 ms.
    func interval(for history: HeartbeatHistory) -> Duration
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

extension HeartbeatStrategy where Self == CustomHeartbeat {
    /// A constant interval, or one for the foreground and one for the background.
    ///
    /// - Parameters:
    ///   - interval: The interval.
    ///   - inBackground: The interval while the app is not active, which always applies in a process that is not an
    ///     app; nil, the default, for `interval`.
    public static func fixed(_ interval: Duration, inBackground: Duration? = nil) -> CustomHeartbeat {
        CustomHeartbeat { $0.isApplicationActive ? interval : inBackground ?? interval }
    }

    /// The longest interval for which the network keeps an idle connection alive, so that the radio is woken as seldom
    /// as possible. Routers with network address translation forget connections that are idle for longer than some
    /// undisclosed time, and silently drop later packets.
    ///
    /// It starts at `minimum`, grows by `step` after enough answered pings, and falls back by a step when pings stay
    /// unanswered; so it settles within one step below the network's limit. While the app is active the interval is
    /// `minimum`: a dead connection then costs more than the energy of a ping.
    ///
    /// - Parameters:
    ///   - minimum: The shortest interval, with which the search starts; 210 s by default, as in Tencent Mars.
    ///   - maximum: The longest interval; 600 s by default. Less than `minimum` counts as `minimum`.
    ///   - step: The step by which the interval grows and falls back; 60 s by default. With zero or less it stays at
    ///     `minimum`.
    public static func adaptive(
        minimum: Duration = .seconds(210),
        maximum: Duration = .seconds(600),
        step: Duration = .seconds(60)
    ) -> CustomHeartbeat {
        let strategy = AdaptiveHeartbeat(minimum: minimum, maximum: maximum, step: step)
        return CustomHeartbeat { strategy.interval(for: $0) }
    }

    /// The interval that the closure computes.
    package static func custom(_ interval: @escaping @Sendable (HeartbeatHistory) -> Duration) -> CustomHeartbeat {
        CustomHeartbeat(interval)
    }
}
