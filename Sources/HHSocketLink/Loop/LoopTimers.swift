// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The timers of a loop that have one clock, and the alarm that wakes it for the next.
final class LoopTimers<Action> {
    private enum Alarm {
        case none
        case set(NIODeadline, TimeAlarm)
        /// The turn of due timers is in progress, and sets another alarm when it ends.
        case ringing
    }

    let time: SocketTime
    var table: TimerTable<Action>
    private var alarm = Alarm.none

    /// - Parameters:
    ///   - time: The clock of the deadlines.
    ///   - number: The number before that of the first timer; 0 by default.
    init(_ time: SocketTime, numberedFrom number: UInt64 = 0) {
        self.time = time
        self.table = TimerTable(numberedFrom: number)
    }

    /// The time at which the loop should wake; nil if the wake-up is scheduled.
    func deadlineToSet(notBefore earliest: NIODeadline) -> NIODeadline? {
        guard let deadline = self.table.nextDeadline.map({ max($0, earliest) }) else { return nil }
        return switch self.alarm {
        case .none: deadline
        // One that is due before is set again when it is.
        case .set(let earlier, _): earlier <= deadline ? nil : deadline
        case .ringing: nil
        }
    }

    func alarmIsSet(_ timer: TimeAlarm, _ deadline: NIODeadline) {
        self.cancelAlarm()
        self.alarm = .set(deadline, timer)
    }

    func alarmRings() { self.alarm = .ringing }

    func alarmRang() {
        if case .ringing = self.alarm { self.alarm = .none }
    }

    func removeAll() {
        self.cancelAlarm()
        self.alarm = .none
        self.table.removeAll()
    }

    func remove(_ id: TimerTable<Action>.ID) {
        self.table.remove(id)
        // While an alarm is set, each turn of the event loop reads the clock.
        if self.table.count == 0 { self.cancelAlarm() }
    }

    private func cancelAlarm() {
        guard case .set(_, let timer) = self.alarm else { return }
        timer.cancel()
        self.alarm = .none
    }
}
