// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The TLS handshakes of one event loop: those in progress, and the connections that wait in line, in which
/// addresses alternate: one with many does not delay the others. The time is passed in.
///
/// The scarce resource is the event loop's time, so a handshake counts only as long as its client keeps up: one that
/// keeps the server waiting for ``patience`` takes no slot from others, because otherwise a few hundred silent clients
/// could exclude all others. If the event loop is late, handshakes get that time in addition: those in progress finish
/// before more are begun.
struct HandshakeQueue<Element> {
    typealias Number = UInt64

    /// The time for which a handshake counts at most.
    static var patience: TimeAmount { .milliseconds(250) }
    /// The number of handshakes that begin together; then other connections have their turn for ``pause``.
    static var startsTogether: Int { 16 }
    static var pause: TimeAmount { .milliseconds(5) }

    private let maximum: Int
    private var waiting: [Number: (element: Element, ticket: UInt64)] = [:]
    private var line = FairQueue<Number>()
    private var counting: Set<Number> = []
    /// The counted handshakes, in the order of their start, with its time; some entries may be over.
    private var begun = CircularBuffer<(number: Number, at: NIODeadline)>()
    private var lastNumber: Number = 0
    private var starts = (since: NIODeadline.uptimeNanoseconds(0), count: 0)
    /// The total time by which the event loop was late.
    private var lateness = TimeAmount.zero

    init(maximum: Int) {
        self.maximum = maximum
    }

    var waitingCount: Int { self.waiting.count }
    var allWaiting: [Element] { self.waiting.values.map(\.element) }

    /// The number of handshakes in progress that count.
    var countingCount: Int { self.counting.count }

    /// Adds a connection.
    ///
    /// - Returns: Its handshake's number, if it may begin at once; nil if it must ``wait(_:of:)``.
    mutating func enter(now: NIODeadline) -> Number? {
        guard self.waiting.isEmpty else { return nil }
        if now - self.starts.since >= Self.pause { self.starts = (now, 0) }
        guard self.mayStart(now: now) else { return nil }
        return self.start(self.makeNumber(), now: now)
    }

    /// - Parameter origin: The address of the client, or what else alternates.
    mutating func wait(_ element: Element, of origin: UInt64) -> Number {
        let number = self.makeNumber()
        self.waiting[number] = (element, self.line.append(number, of: origin))
        return number
    }

    /// A handshake has ended, or a waiting connection has gone.
    mutating func remove(_ number: Number) {
        guard let waiting = self.waiting.removeValue(forKey: number) else {
            self.counting.remove(number)
            return
        }
        _ = self.line.withdraw(waiting.ticket)
    }

    /// The next connection; nil if there is none.
    mutating func next(now: NIODeadline) -> (number: Number, element: Element)? {
        guard !self.waiting.isEmpty, self.mayStart(now: now), let number = self.line.popFirst(),
            let waiting = self.waiting.removeValue(forKey: number)
        else { return nil }
        return (self.start(number, now: now), waiting.element)
    }

    /// The time at which ``next(now:)`` should be called again, unless a handshake ends before; nil if none waits.
    var wakesAt: NIODeadline? {
        guard !self.waiting.isEmpty else { return nil }
        let pauseEnds = self.starts.since + Self.pause
        guard self.counting.count >= self.maximum, let first = self.begun.first else { return pauseEnds }
        return max(pauseEnds, first.at + Self.patience + self.lateness)
    }

    /// The event loop was due to check the queue at `deadline`, and does so now: some more may begin together. This
    /// does not depend only on time, which also passes while one turn of the event loop takes long.
    mutating func woke(for deadline: NIODeadline, now: NIODeadline) {
        if now > deadline { self.lateness = self.lateness + (now - deadline) }
        self.starts = (now, 0)
    }

    private mutating func makeNumber() -> Number {
        self.lastNumber += 1
        return self.lastNumber
    }

    private mutating func start(_ number: Number, now: NIODeadline) -> Number {
        self.counting.insert(number)
        self.begun.append((number, now - self.lateness))
        self.starts.count += 1
        return number
    }

    private mutating func mayStart(now: NIODeadline) -> Bool {
        while let first = self.begun.first {
            guard !self.counting.contains(first.number) || now - self.lateness - first.at >= Self.patience else {
                break
            }
            self.counting.remove(first.number)
            self.begun.removeFirst()
        }
        return self.counting.count < self.maximum && self.starts.count < Self.startsTogether
    }
}
