// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOConcurrencyHelpers

/// Ends a process whose wait does not end.
///
/// `withDeadline` cancels a body that takes too long, and then waits for it: a body that ignores cancellation, such as
/// `await task.value`, would wait forever without a report of its place. The watchdog has a thread of its own, so that
/// it works although no thread of Swift's tasks is free.
package final class Watchdog: Sendable {
    package static let shared = Watchdog { report in
        FileHandle.standardError.write(Data("\(report)\n".utf8))
        // On Linux the runtime then prints the stack of each thread.
        abort()
    }

    /// An expected event, and the line that waits for it.
    package struct Wait: Sendable, Equatable, CustomStringConvertible {
        package var what: String
        package var fileID: String
        package var line: Int

        package init(_ what: String, _ fileID: String, _ line: Int) {
            self.what = what
            self.fileID = fileID
            self.line = line
        }

        package var description: String { "\(self.what) (\(self.fileID):\(self.line))" }
    }

    /// The current waits, and the time that each has left.
    ///
    /// Ticks measure that time, and a late tick does not count: the process was stopped, or the machine was so busy
    /// that the thread could not run. A wait is overdue only if the process has run regularly for all of its time.
    package struct Ledger: Sendable {
        /// The time between two ticks.
        package static let interval = Duration.milliseconds(250)

        private var waits: [Int: (wait: Wait, left: Duration)] = [:]
        private var lastID = 0
        private var lastTick: ContinuousClock.Instant?

        package init() {}

        package var isEmpty: Bool { self.waits.isEmpty }

        /// All waits, the oldest first.
        package var all: [Wait] { self.waits.sorted { $0.key < $1.key }.map(\.value.wait) }

        /// Adds a wait, and returns its number.
        package mutating func begin(_ wait: Wait, lasting time: Duration) -> Int {
            self.lastID += 1
            self.waits[self.lastID] = (wait, time)
            return self.lastID
        }

        package mutating func end(_ id: Int) {
            self.waits[id] = nil
            // Nothing ticks until the next wait begins.
            if self.waits.isEmpty { self.lastTick = nil }
        }

        /// Subtracts the time since the last tick, and returns the oldest overdue wait, or nil.
        package mutating func tick(at now: ContinuousClock.Instant) -> Wait? {
            defer { self.lastTick = now }
            guard let lastTick = self.lastTick, now - lastTick <= Self.interval * 2 else { return nil }
            for id in self.waits.keys { self.waits[id]?.left -= Self.interval }
            return self.waits.filter { $0.value.left <= .zero }.min { $0.key < $1.key }?.value.wait
        }
    }

    private struct State {
        var ledger = Ledger()
        /// Whether the thread ticks, and does not sleep until the next wait begins.
        var isTicking = false
    }

    private let state = NIOLockedValueBox(State())
    private let begun = DispatchSemaphore(value: 0)
    private let bite: @Sendable (String) -> Void

    /// - Parameter bite: Ends the process. It gets a report of the overdue wait and all others.
    package init(bite: @escaping @Sendable (String) -> Void) {
        self.bite = bite
        Thread.detachNewThread { [self] in
            while true {
                self.begun.wait()
                self.tickWhileThereAreWaits()
            }
        }
    }

    /// Watches a wait until ``end(_:)`` is called with the returned number.
    package func begin(_ wait: Wait, lasting time: Duration) -> Int {
        let (id, isFirst) = self.state.withLockedValue { state in
            defer { state.isTicking = true }
            return (state.ledger.begin(wait, lasting: time), !state.isTicking)
        }
        if isFirst { self.begun.signal() }
        return id
    }

    package func end(_ id: Int) {
        self.state.withLockedValue { $0.ledger.end(id) }
    }

    private func tickWhileThereAreWaits() {
        while true {
            Thread.sleep(forTimeInterval: Ledger.interval / .seconds(1))
            let (overdue, all, continues) = self.state.withLockedValue { state in
                let overdue = state.ledger.tick(at: .now)
                state.isTicking = !state.ledger.isEmpty
                return (overdue, overdue == nil ? [] : state.ledger.all, state.isTicking)
            }
            if let overdue { self.bite(Self.report(overdue, all)) }
            guard continues else { return }
        }
    }

    private static func report(_ overdue: Wait, _ all: [Wait]) -> String {
        let others = all.filter { $0 != overdue }
        return "watchdog: \(overdue) did not end although its deadline is long past and it was cancelled."
            + (others.isEmpty ? "" : " Other waits: \(others.map(\.description).joined(separator: "; ")).")
    }
}
