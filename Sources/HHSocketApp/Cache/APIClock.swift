import HHSocket
import NIOCore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
import Foundation
#endif

/// The clocks of a ``ResponseCache``: the date, from which the age of answers counts, so that it goes on while the
/// device sleeps and when the app is started again; and a clock that cannot be set, for timeouts.
public struct APIClock: Sendable {
    struct Moment: Sendable {
        var date: Date
        var time: NIODeadline
    }

    private let present: @Sendable () -> Moment
    private let sleeping: @Sendable (Duration) async throws -> Void

    /// The system's.
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

    /// A clock of a test's, such as `VirtualClock`.
    ///
    /// - Parameter start: The date now; it goes on with the clock.
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
