// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketFoundation
import NIOCore

/// The clocks of a ``ResponseCache``: the date, for the age of answers, which keeps counting while the device sleeps
/// and across launches of the app; and a clock that cannot be set, for timeouts.
public struct APIClock: Sendable {
    struct Moment: Sendable {
        var date: Date
        var time: NIODeadline
    }

    private let present: @Sendable () -> Moment
    private let sleeping: @Sendable (Duration) async throws -> Void

    /// The system's clocks.
    public static let system = APIClock(
        present: { Moment(date: Date(), time: .now()) },
        sleeping: { try await Task.sleep(for: $0) }
    )

    private init(
        present: @escaping @Sendable () -> Moment,
        sleeping: @escaping @Sendable (Duration) async throws -> Void
    ) {
        self.present = present
        self.sleeping = sleeping
    }

    /// Creates a clock for tests from another clock, such as `VirtualClock`.
    ///
    /// - Parameters:
    ///   - clock: The clock.
    ///   - start: The date now; it advances with the clock.
    public init<Other: Clock<Duration>>(_ clock: Other, startingAt start: Date = Date(timeIntervalSince1970: 0)) {
        let first = clock.now
        // An hour after NIO's zero, so that moments before it can be expressed.
        let base = NIODeadline.uptimeNanoseconds(0) + .hours(1)
        self.init(
            present: {
                let passed = first.duration(to: clock.now)
                return Moment(
                    date: start.addingTimeInterval(passed.inSeconds),
                    time: base.advanced(clamping: TimeAmount(clamping: passed))
                )
            },
            sleeping: { try await clock.sleep(for: $0) }
        )
    }

    var now: Moment { self.present() }

    /// Sleeps until this moment, or a little longer.
    func sleep(until time: NIODeadline) async throws {
        let rest = time - self.now.time
        if rest > .zero { try await self.sleeping(Duration(rest)) }
    }
}
