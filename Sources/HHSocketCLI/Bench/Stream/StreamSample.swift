// SPDX-License-Identifier: Apache-2.0
/// The items and the CPU time of a measurement.
struct StreamSample: Sendable {
    /// In seconds; somewhat longer than the window if the machine is busy, and shorter if the measurement was
    /// interrupted.
    var seconds: Double
    /// The number of items in that time.
    var items: Int
    var cpu: CPUUse
    /// Whether it was ended early.
    var isInterrupted: Bool

    /// Measures what happens within `window`, or until the Swift task is cancelled.
    ///
    /// - Parameter count: Returns the number of items so far.
    static func measured(in window: MeasuredWindow, serverPID: Int32?, count: () -> Int) async -> StreamSample {
        func readings() -> (time: UInt64, items: Int, cpu: CPUUse) {
            (Uptime.now, count(), CPUUse.soFar(serverPID: serverPID))
        }
        try? await Uptime.sleep(until: window.begin)
        let begin = readings()
        // It lasts as long as requested, even if it began late.
        let due = max(begin.time, window.begin) + (window.end - window.begin)
        try? await Uptime.sleep(until: due)
        let end = readings()
        let hasBegun = begin.time >= window.begin
        return StreamSample(
            seconds: hasBegun ? Double(end.time - begin.time) * 1e-9 : 0,
            items: end.items - begin.items,
            cpu: end.cpu.since(begin.cpu),
            isInterrupted: end.time < due
        )
    }
}
