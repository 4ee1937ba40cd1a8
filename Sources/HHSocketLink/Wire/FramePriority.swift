// SPDX-License-Identifier: Apache-2.0
/// The priority of a frame that waits to be sent: 0 to 1, higher before lower, equals in order.
///
/// It matters only while frames wait, because the peer reads more slowly than they are sent. A frame whose sending has
/// begun is never interrupted. Heartbeats and cancellations are sent before all others.
public struct FramePriority: RawRepresentable, Hashable, Comparable, Sendable {
    /// 0 to 1.
    public let rawValue: Float

    /// - Parameter rawValue: 0 to 1. Other values are clamped, and a value that is not a number becomes 0.5.
    public init(rawValue: Float) {
        self.rawValue = rawValue.isNaN ? 0.5 : min(max(rawValue, 0), 1)
    }

    @inlinable
    init(unbounded rawValue: Float) {
        self.rawValue = rawValue
    }

    /// 0.25, as `URLSessionTask.lowPriority`.
    @inlinable public static var low: FramePriority { FramePriority(unbounded: 0.25) }
    /// 0.5, as `URLSessionTask.defaultPriority`.
    @inlinable public static var `default`: FramePriority { FramePriority(unbounded: 0.5) }
    /// 0.75, as `URLSessionTask.highPriority`.
    @inlinable public static var high: FramePriority { FramePriority(unbounded: 0.75) }
    /// Heartbeats and other frames that are not calls: before everything the user sends.
    package static let control = FramePriority(unbounded: 2)

    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
}

extension FramePriority: ExpressibleByFloatLiteral {
    public init(floatLiteral value: Float) { self.init(rawValue: value) }
}
