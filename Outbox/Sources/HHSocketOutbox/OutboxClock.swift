// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation

/// The source of time for an outbox.
struct OutboxClock: Sendable {
    var now: @Sendable () -> OutboxMachine.Moment
    var sleep: @Sendable (Duration) async throws -> Void

    static let system = OutboxClock(
        now: { OutboxMachine.Moment(date: Date(), uptime: .now()) },
        sleep: { try await Task.sleep(for: $0) }
    )
}
#endif
