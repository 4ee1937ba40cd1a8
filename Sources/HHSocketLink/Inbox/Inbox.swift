// SPDX-License-Identifier: Apache-2.0
public import DequeModule
public import NIOConcurrencyHelpers

/// Elements that have arrived and wait for their readers: a locked queue with bounds. Any thread.
///
/// A reader takes elements in batches, returns those of a batch without locks, and gives the rest back when it is
/// released. An element that it has returned is handled when it requests the next one, ends, or is released.
///
/// Inlinable as far as it touches elements, since other modules have inboxes of their own types.
@usableFromInline
package final class Inbox<Element: InboxElement>: Sendable {
    /// The elements of a reader.
    @usableFromInline
    struct Hand {
        /// The elements that were taken and not returned: one that was taken alone, or a batch.
        @usableFromInline var single: Element?
        @usableFromInline var batch: Deque<Element> = []
        /// The number of elements that are not handled, and their cost.
        @usableFromInline var unhandled = 0
        @usableFromInline var cost = 0
        @usableFromInline var absence = Absence.over

        @inlinable
        init() {}

        @inlinable var isEmpty: Bool { self.single == nil && self.batch.isEmpty }

        @inlinable
        mutating func pop() -> Element? { self.batch.popFirst() ?? self.single.take() }

        @inlinable
        mutating func drop() {
            self.single = nil
            self.batch = []
        }
    }

    /// The reason why a reader gets no element.
    @usableFromInline
    package enum Absence: Sendable {
        /// There will be no more.
        case over
        /// Its task was cancelled.
        case cancelled
        /// Another reader waits, and the inbox is for one.
        case busy
    }

    /// One reader, for one task at a time.
    @usableFromInline
    package final class Reader: @unchecked Sendable {
        // Proof of Sendable: the inbox is Sendable itself; the hand is accessed by the task that reads, by others under
        // the inbox's lock while that task waits, and by the last reference.
        @usableFromInline let inbox: Inbox
        #if !DEBUG && !CHECKED_EXCLUSIVITY
        @exclusivity(unchecked)
        #endif
        @usableFromInline var hand = Hand()

        @inlinable
        init(_ inbox: Inbox) { self.inbox = inbox }

        deinit {
            if self.hand.unhandled > 0 { self.inbox.giveBack(&self.hand) }
        }

        /// Whether an element can be returned without the inbox.
        @inlinable package var hasElement: Bool { !self.hand.isEmpty }
        /// The reason why ``waitForElement(isolation:)`` has returned nil.
        @inlinable package var absence: Absence { self.hand.absence }

        /// The next element of the batch; nil at its end.
        @inlinable
        package func pop() -> Element? { self.hand.pop() }

        /// The next element; nil if none waits.
        @inlinable
        package func take() -> Element? {
            if let element = self.hand.pop() { return element }
            _ = self.inbox.fill(self)
            return self.hand.pop()
        }

        /// Drops the rest of the batch.
        @inlinable
        package func drop() { self.hand.drop() }

        /// Gives back the rest of the batch.
        package func giveBack() { self.inbox.giveBack(&self.hand) }

        /// Waits for and returns the next element; nil if there are no more, or if the calling task was cancelled.
        ///
        /// - Parameter isolation: The caller's.
        @inlinable
        package func next(isolation: isolated (any Actor)?) async -> Element? {
            guard self.inbox.endsWithTask else {
                if let element = self.take() { return element }
                return await self.waitForElement(isolation: isolation)
            }
            if !Task.isCancelled {
                if let element = self.take() { return element }
                if let element = await self.waitForElement(isolation: isolation) { return element }
                guard self.absence == .cancelled else { return nil }
            }
            self.drop()
            self.inbox.cancel()
            return nil
        }

        /// Waits for and returns the next element, once ``take()`` has returned nil.
        @inlinable
        package func waitForElement(isolation: isolated (any Actor)?) async -> Element? {
            await withTaskCancellationHandler {
                // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
                _ = isolation
                await withUnsafeContinuation { (continuation: UnsafeContinuation<Void, Never>) in
                    if !self.inbox.fill(self, for: self.inbox.waiter(continuation)) { continuation.resume() }
                }
            } onCancel: {
                self.inbox.stopWaiting(self)
            }
            // The resuming thread has held the lock before, which the thread sanitizer sees.
            if ThreadSanitizer.isRunning { _ = self.inbox.isFull }
            return self.hand.pop()
        }
    }

    @usableFromInline
    struct State: Sendable {
        @usableFromInline let bounds: InboxBounds
        /// Whether the cost of elements is counted.
        @usableFromInline let countsBytes: Bool
        @usableFromInline var elements: Deque<Element> = []
        /// The remaining bytes of ended connections, each after a number of the elements.
        fileprivate var rests: Deque<(count: Int, rest: any InboxRest<Element>)> = []
        @usableFromInline var hasRests = false
        /// The cost of all of them.
        @usableFromInline var bytes = 0
        /// The largest number of elements since none waited, where they are taken one by one.
        @usableFromInline var highest = 0
        /// The readers that wait, in the order of arrival. While there are any, no element does.
        @usableFromInline var waiting: Deque<(reader: Reader, waiter: TurnWaiter)> = []
        /// The number of elements that readers have, and their cost.
        @usableFromInline var unhandled = 0
        @usableFromInline var unhandledBytes = 0
        /// The number of bytes charged to the account.
        fileprivate var charged = 0
        @usableFromInline var isFull = false
        @usableFromInline var isOver = false
        /// Whether elements are dropped.
        @usableFromInline var drops = false
        /// Called when all elements have been handled.
        @usableFromInline var whenHandled: (@Sendable () -> Void)?
        /// Called when it is no longer full.
        @usableFromInline var whenRoom: (@Sendable () -> Void)?

        init(_ bounds: InboxBounds, countsBytes: Bool) {
            self.bounds = bounds
            self.countsBytes = countsBytes
        }

        @inlinable var isEmpty: Bool { self.elements.isEmpty && !self.hasRests }

        @inlinable
        func cost(of element: Element) -> Int { self.countsBytes ? element.memory + Inbox.slotCost : 0 }

        @inlinable
        func cost(of elements: Deque<Element>) -> Int {
            self.countsBytes ? elements.reduce(0) { $0 + self.cost(of: $1) } : 0
        }

        /// Gives elements to the readers that wait: a batch to the only one, one each to several.
        @inlinable
        mutating func serve(_ arrived: inout Deque<Element>, _ outcome: inout InboxAppended) {
            while !arrived.isEmpty, let (reader, waiter) = self.waiting.popFirst() {
                if self.bounds.isForOneReader {
                    swap(&reader.hand.batch, &arrived)
                } else {
                    reader.hand.single = arrived.popFirst()
                }
                self.handed(to: reader)
                outcome.serves(waiter)
            }
        }

        /// Gives an element to the first reader that waits. Returns false if there is none.
        mutating func serve(_ element: Element, _ outcome: inout InboxAppended) -> Bool {
            guard let (reader, waiter) = self.waiting.popFirst() else { return false }
            reader.hand.single = element
            self.handed(to: reader)
            outcome.serves(waiter)
            return true
        }

        /// A reader has got elements.
        @inlinable
        mutating func handed(to reader: Reader) {
            reader.hand.unhandled = reader.hand.batch.count
            reader.hand.cost = self.cost(of: reader.hand.batch)
            if let single = reader.hand.single {
                reader.hand.unhandled += 1
                reader.hand.cost += self.cost(of: single)
            }
            self.unhandled += reader.hand.unhandled
            self.unhandledBytes += reader.hand.cost
        }

        /// A reader has handled its elements.
        @inlinable
        mutating func release(_ hand: inout Hand) {
            self.unhandled -= hand.unhandled
            self.unhandledBytes -= hand.cost
            hand.unhandled = 0
            hand.cost = 0
        }

        @inlinable
        mutating func append(contentsOf arrived: inout Deque<Element>, _ outcome: inout InboxAppended) {
            if !self.countsBytes, self.elements.isEmpty, arrived.count < self.bounds.count {
                swap(&self.elements, &arrived)
            } else if !self.countsBytes, self.bounds.atLimit == .unbounded {
                self.elements.append(contentsOf: arrived)
            } else {
                while let element = arrived.popFirst() {
                    self.append(element, cost: self.cost(of: element), &outcome)
                }
            }
        }

        @inlinable
        mutating func append(_ element: Element, cost: Int, _ outcome: inout InboxAppended) {
            if self.bounds.atLimit == .dropNewest, self.isAtLimit { return outcome.dropped += 1 }
            if self.bounds.atLimit == .dropOldest, self.isAtLimit, let oldest = self.elements.popFirst() {
                self.bytes -= self.cost(of: oldest)
                outcome.dropped += 1
            }
            self.elements.append(element)
            self.bytes += cost
            self.highest = max(self.highest, self.elements.count)
            guard self.bounds.atLimit == .hold, !self.isFull, self.isAtLimit else { return }
            self.isFull = true
            outcome.holds = true
        }

        @inlinable var isAtLimit: Bool {
            self.elements.count >= self.bounds.count || self.bytes >= self.bounds.bytes
        }

        /// Gives the next elements to a reader that has none.
        ///
        /// - Returns: Whether the inbox is no longer full.
        @inlinable
        mutating func fill(_ reader: Reader) -> Bool {
            if self.hasRests || self.bounds.batch == 1 {
                reader.hand.single = self.popFirst()
                self.handed(to: reader)
            } else {
                if self.elements.count <= self.bounds.batch {
                    swap(&reader.hand.batch, &self.elements)
                } else {
                    for _ in 0..<self.bounds.batch {
                        if let element = self.elements.popFirst() { reader.hand.batch.append(element) }
                    }
                }
                self.handed(to: reader)
                self.bytes -= reader.hand.cost
            }
            guard self.isFull, !self.hasRests, self.elements.count <= self.bounds.count / 2,
                self.bytes <= self.bounds.bytes / 2
            else { return false }
            self.isFull = false
            return true
        }

        /// Removes the oldest element, where they are taken one by one.
        @usableFromInline
        mutating func popFirst() -> Element? {
            while self.rests.first?.count == 0 {
                let memory = self.rests[0].rest.memory
                if let element = self.rests[0].rest.next() {
                    self.bytes -= memory - self.rests[0].rest.memory
                    return element
                }
                self.bytes -= memory
                self.rests.removeFirst()
                self.hasRests = !self.rests.isEmpty
            }
            guard let element = self.elements.popFirst() else { return nil }
            for index in self.rests.indices { self.rests[index].count -= 1 }
            self.bytes -= self.cost(of: element)
            if self.elements.isEmpty {
                if self.highest > Inbox.largestKept { self.elements = [] }
                self.highest = 0
            }
            return element
        }

        /// Removes the callback if all elements have been handled.
        @inlinable
        mutating func takeWhenHandled() -> (@Sendable () -> Void)? {
            self.isEmpty && self.unhandled == 0 ? self.whenHandled.take() : nil
        }
    }

    /// The number of elements, and their cost in bytes, above which elements at the end of a connection are dropped,
    /// when they cannot stay with it. An account may have room for fewer.
    private static var maximumLastCount: Int { 65_536 }
    private static var maximumLastBytes: Int { 32 << 20 }

    /// The largest capacity that is kept where elements are taken one by one.
    private static var largestKept: Int { 8 }
    /// The number of waiting elements above which those that follow are very many.
    @usableFromInline static var manyElements: Int { 1_024 }
    /// The memory of an element that waits, beside its bytes: its place in a growing queue, and the header of its
    /// allocation.
    @usableFromInline static var slotCost: Int { 128 }

    @usableFromInline let state: NIOLockedValueBox<State>
    @usableFromInline let endsWithTask: Bool
    /// The loop in whose turns readers continue; nil if they are resumed at once.
    private let loop: SocketLoop?
    /// The account that is charged for the elements that wait, and for those that readers have.
    private let account: (any LinkAccount)?
    @usableFromInline let hasAccount: Bool
    private let changed: @Sendable (Inbox, InboxChange) -> Void

    /// - Parameter changed: Called outside the lock, on any thread. Two calls may arrive in either order.
    package init(
        _ bounds: InboxBounds,
        account: (any LinkAccount)?,
        loop: SocketLoop? = nil,
        changed: @escaping @Sendable (Inbox, InboxChange) -> Void = { _, _ in }
    ) {
        self.state = NIOLockedValueBox(State(bounds, countsBytes: account != nil || bounds.bytes < .max))
        self.endsWithTask = bounds.endsWithTask
        self.loop = loop
        self.account = account
        self.hasAccount = account != nil
        self.changed = changed
    }

    deinit {
        let charged = self.state.withLockedValue { $0.charged }
        if charged != 0 { self.account?.held(-charged) }
    }

    /// Changes the state, and charges the account for its memory.
    @inlinable
    func withState<Result>(_ body: (inout State) -> Result) -> Result {
        self.hasAccount ? self.withChargedState(body) : self.state.withLockedValue(body)
    }

    @usableFromInline
    func withChargedState<Result>(_ body: (inout State) -> Result) -> Result {
        let (result, change) = self.state.withLockedValue { state in
            let result = body(&state)
            let held = state.bytes + state.unhandledBytes
            defer { state.charged = held }
            return (result, held - state.charged)
        }
        if change != 0 { self.account?.held(change) }
        return result
    }

    /// Whether nothing more should be read for now.
    @usableFromInline package var isFull: Bool { self.state.withLockedValue { $0.isFull } }
    /// Whether no more elements are accepted.
    package var isOver: Bool { self.state.withLockedValue { $0.isOver } }
    /// Whether no element waits.
    package var isEmpty: Bool { self.state.withLockedValue { $0.isEmpty } }
    package var hasWaitingReader: Bool { self.state.withLockedValue { !$0.waiting.isEmpty } }
    /// The cost of the elements that wait to be read, in bytes, where it is counted.
    package var bufferedBytes: Int { self.state.withLockedValue { $0.bytes } }

    /// Calls `body` once it is not full.
    package func whenRoom(_ body: @escaping @Sendable () -> Void) {
        let hasRoom = self.state.withLockedValue { state in
            guard state.isFull, !state.isOver else { return true }
            state.whenRoom = body
            return false
        }
        if hasRoom { body() }
    }

    /// Calls `body` once all present elements have been handled: none remains, and no reader has one.
    package func whenHandled(_ body: @escaping @Sendable () -> Void) {
        let isHandled = self.state.withLockedValue { state in
            if state.isOver || (state.isEmpty && state.unhandled == 0) { return true }
            state.whenHandled = body
            return false
        }
        if isHandled { body() }
    }

    // MARK: Elements that arrive

    /// Stores elements that arrived together, and removes them from `arrived`. They are dropped if no more are
    /// accepted.
    ///
    /// - Parameter resume: Resumes a reader that has got elements.
    @inlinable
    @discardableResult
    package func append(
        contentsOf arrived: inout Deque<Element>,
        resume: (TurnWaiter) -> Void = { $0.resume() }
    ) -> InboxAppended {
        let outcome = self.withState { state in
            var outcome = InboxAppended()
            guard !state.isOver, !state.drops else { return outcome }
            if state.bounds.detaching == .all { Element.detach(&arrived, isOneOfMany: true) }
            if !state.waiting.isEmpty { state.serve(&arrived, &outcome) }
            if state.bounds.detaching == .waiting || state.bounds.detaching == .behind && !state.elements.isEmpty {
                Element.detach(&arrived, isOneOfMany: state.elements.count > Self.manyElements)
            }
            state.append(contentsOf: &arrived, &outcome)
            return outcome
        }
        arrived.removeAll(keepingCapacity: true)
        outcome.resume(resume)
        return outcome
    }

    /// Stores an element for the next reader.
    ///
    /// - Parameter isLast: Whether the connection ends, so that the element would be lost if it were not accepted now.
    /// - Returns: Whether no further elements should be delivered for now.
    @discardableResult
    package func append(_ element: Element, isLast: Bool = false) -> Bool {
        var outcome = InboxAppended()
        let isFull = self.withState { state in
            guard !state.isOver, !state.drops else { return false }
            guard !state.serve(element, &outcome) else { return false }
            var element = element
            element.detach(isOneOfMany: isLast)
            let cost = state.cost(of: element)
            guard !isLast || self.admitsLast(cost, state) else { return true }
            state.append(element, cost: cost, &outcome)
            return state.isFull
        }
        outcome.resume { $0.resume() }
        if outcome.holds { self.changed(self, .holds) }
        return isFull
    }

    /// Whether an element of an ending connection may wait. The peer cannot be closed to free its memory any more, so
    /// it must not fill the account.
    private func admitsLast(_ cost: Int, _ state: borrowing State) -> Bool {
        state.bytes < Self.maximumLastBytes && state.elements.count < Self.maximumLastCount
            && self.account?.hasRoom(forLast: cost) ?? true
    }

    /// Stores the remaining bytes of an ended connection. If there are very many bytes of others, they are dropped.
    package func append(rest: some InboxRest<Element>) {
        var (rest, outcome) = (rest, InboxAppended())
        self.withState { state in
            guard !state.isOver, state.bytes < Self.maximumLastBytes else { return }
            while !state.waiting.isEmpty {
                guard let element = rest.next() else { return }
                _ = state.serve(element, &outcome)
            }
            guard rest.memory > 0 else { return }
            state.rests.append((state.elements.count, rest))
            state.hasRests = true
            state.bytes += rest.memory
            outcome.holds = !state.isFull
            state.isFull = true
        }
        outcome.resume { $0.resume() }
        if outcome.holds { self.changed(self, .holds) }
    }

    // MARK: The end

    /// Accepts no more elements. Those that wait can still be read.
    ///
    /// - Parameter resume: Resumes a reader that waits, for which there is none.
    package func finish(resume: (TurnWaiter) -> Void = { $0.resume() }) {
        _ = self.end(isOver: true, drops: false, resume)
    }

    /// Drops the elements that wait, and those that arrive. Its readers wait for the end.
    package func discard() { _ = self.end(isOver: false, drops: true) { _ in } }

    /// Ends the inbox, and drops the elements that wait. May be called any number of times.
    @usableFromInline
    package func cancel() {
        if self.end(isOver: true, drops: true, { $0.resume() }) { self.changed(self, .releases) }
        self.changed(self, .over)
    }

    /// - Returns: Whether it held reading until now.
    private func end(isOver: Bool, drops: Bool, _ resume: (TurnWaiter) -> Void) -> Bool {
        var outcome = InboxAppended()
        let (wasHolding, whenHandled) = self.withState { state in
            let wasHolding = state.isFull && !state.isOver
            if isOver {
                state.isOver = true
                while let (_, waiter) = state.waiting.popFirst() { outcome.serves(waiter) }
            }
            if drops {
                (state.elements, state.rests, state.hasRests, state.bytes) = ([], [], false, 0)
                (state.drops, state.isFull) = (true, false)
            }
            return (wasHolding, state.takeWhenHandled())
        }
        outcome.resume(resume)
        whenHandled?()
        return wasHolding
    }

    // MARK: Readers

    @inlinable
    package func makeReader() -> Reader { Reader(self) }

    @usableFromInline
    func waiter(_ continuation: UnsafeContinuation<Void, Never>) -> TurnWaiter {
        TurnWaiter(continuation, isHere: self.loop?.isCurrent ?? false)
    }

    /// Gives the next elements to a reader, which has handled the last ones. If there are none, it waits for them if
    /// `waiter` is given.
    ///
    /// - Returns: Whether it waits.
    @inlinable
    func fill(_ reader: Reader, for waiter: TurnWaiter? = nil) -> Bool {
        let (waits, releases, whenHandled) = self.withState { state in
            state.release(&reader.hand)
            if waiter == nil { reader.hand.absence = .over }
            let releases = state.fill(reader)
            var waits = false
            if let waiter, reader.hand.isEmpty, !state.isOver, reader.hand.absence != .cancelled {
                waits = !state.bounds.isForOneReader || state.waiting.isEmpty
                if waits { state.waiting.append((reader, waiter)) } else { reader.hand.absence = .busy }
            }
            return (waits, releases, state.takeWhenHandled())
        }
        if releases { self.hasRoom() }
        whenHandled?()
        return waits
    }

    @usableFromInline
    func hasRoom() {
        self.state.withLockedValue { $0.isFull ? nil : $0.whenRoom.take() }?()
        self.changed(self, .releases)
    }

    /// The task of a reader was cancelled.
    @usableFromInline
    func stopWaiting(_ reader: Reader) {
        let waiter: TurnWaiter? = self.state.withLockedValue { state in
            reader.hand.absence = .cancelled
            return state.waiting.firstIndex { $0.reader === reader }.map { state.waiting.remove(at: $0).waiter }
        }
        waiter?.resume()
    }

    /// Takes back the elements that a reader has not returned. It has handled the others.
    @usableFromInline
    func giveBack(_ hand: inout Hand) {
        var rest = hand.batch
        if let single = hand.single { rest.prepend(single) }
        hand.drop()
        var outcome = InboxAppended()
        let whenHandled = self.withState { state in
            state.release(&hand)
            if !rest.isEmpty, !state.drops {
                state.serve(&rest, &outcome)
                state.bytes += state.cost(of: rest)
                rest.append(contentsOf: state.elements)
                state.elements = rest
            }
            return state.takeWhenHandled()
        }
        outcome.resume { $0.resume() }
        whenHandled?()
    }
}

extension Inbox {
    /// Creates an inbox of messages, which are taken one by one. While 256 of them wait, or 1 MiB, nothing more should
    /// be read, until half of them are.
    ///
    /// - Parameter fullnessChanged: Called when ``isFull`` has changed, on any thread. The value is read again when
    ///   reading is suspended, since two calls may arrive in either order.
    package convenience init(account: (any LinkAccount)?, fullnessChanged: @escaping @Sendable () -> Void) {
        var bounds = InboxBounds(.hold, batch: 1, detaching: .waiting)
        bounds.count = 256
        bounds.bytes = 1 << 20
        self.init(bounds, account: account) { _, _ in fullnessChanged() }
    }
}
