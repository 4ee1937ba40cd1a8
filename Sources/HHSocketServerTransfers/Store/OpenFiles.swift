// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import NIOConcurrencyHelpers
import NIOCore

/// The descriptor of a file that a store keeps open between two steps of a client, until its owner has closed it.
///
/// It is counted for the client whose request has opened it. Readers of one file share places, but no descriptor. A
/// writer that continues the open content of another leaves it counted for that one. What one step of the store opens
/// and closes is not counted: its few threads bound that.
final class OpenDescriptor: Sendable {
    let number: CInt
    private let hold: Hold

    /// - Parameter account: The client's; nil: the application has opened the file.
    init(_ number: CInt, of account: (any LinkAccount)?) {
        self.number = number
        self.hold = Hold(.descriptor, of: account)
    }
}

/// The files that stores keep open between two steps of their clients, which decide how long that is: as many as fit
/// into the reserve of descriptors, for all stores of the process.
///
/// A file that is read is closed when another needs its slot, and opened again for its next read: the one that was
/// used longest ago first. One that is written is locked against other processes, so it cannot be closed meanwhile:
/// writers have half of the slots, which those give up that are idle or have more than others (``takeSlot(for:)``).
final class OpenFiles: Sendable {
    /// The files of this process.
    static let shared = OpenFiles { DescriptorLimit.files(of: DescriptorLimit.current ?? 1_024) }

    /// A writer's slot, until it is released.
    final class Slot: Sendable {
        fileprivate let owner: String
        private let files: OpenFiles
        private struct State {
            var used: NIODeadline
            /// The number of bytes that have come since then.
            var bytes = 0
            var end: (@Sendable () -> Void)?
        }

        private let state: NIOLockedValueBox<State>

        fileprivate init(_ owner: String, _ files: OpenFiles) {
            self.owner = owner
            self.files = files
            self.state = NIOLockedValueBox(State(used: files.now()))
        }

        deinit { self.files.released(self.owner, ObjectIdentifier(self)) }

        fileprivate var used: NIODeadline { self.state.withLockedValue { $0.used } }

        /// Records that the writer gets content. A trickle is no use: with a byte now and then a writer would keep its
        /// slot, and what it has announced, for ever.
        func use(_ bytes: Int) {
            let now = self.files.now()
            self.state.withLockedValue { state in
                state.bytes += bytes
                guard state.bytes >= OpenFiles.leastUse else { return }
                (state.used, state.bytes) = (now, 0)
            }
        }

        /// Sets the way to end the writer, which then continues in another attempt. It is called once at most.
        func onEnd(_ end: @escaping @Sendable () -> Void) { self.state.withLockedValue { $0.end = end } }

        fileprivate func end() {
            let end = self.state.withLockedValue { state in
                defer { state.end = nil }
                return state.end
            }
            end?()
        }
    }

    private struct Weak<Object: AnyObject & Sendable>: Sendable {
        weak var object: Object?
    }

    private struct State {
        /// Grows with each use.
        var clock: UInt64 = 0
        var readers: [ObjectIdentifier: (used: UInt64, file: Weak<ReadFile>)] = [:]
        var slots: [String: [ObjectIdentifier: Weak<Slot>]] = [:]
        var slotCount = 0
    }

    /// The time for which a writer may be idle while others want its slot.
    static let patience = TimeAmount.seconds(5)
    /// The number of bytes that a writer must get within that time: otherwise it is idle. 3.3 KB/s.
    static let leastUse = 16 << 10

    private let capacity: @Sendable () -> Int
    /// Not a server's `SocketTime`: a store belongs to no server, and all stores of the process share ``shared``.
    private let now: @Sendable () -> NIODeadline
    private let state = NIOLockedValueBox(State())

    /// - Parameter capacity: The number of files; 2 at least.
    init(now: @escaping @Sendable () -> NIODeadline = { .now() }, capacity: @escaping @Sendable () -> Int) {
        self.now = now
        self.capacity = capacity
    }

    /// The number of files that are open, as far as they count here.
    var count: Int { self.state.withLockedValue { $0.readers.count + $0.slotCount } }

    // MARK: Reading

    /// Records that a file is about to be read, and closes others if there are too many.
    func use(_ file: ReadFile) {
        let capacity = max(2, self.capacity())
        var busy: [ReadFile] = []
        self.keep(file)
        while let oldest = self.takeOldest(besides: file, beyond: capacity) {
            // A thread may be reading it: there are few of those.
            if !oldest.close() { busy.append(oldest) }
        }
        for file in busy { self.keep(file) }
    }

    private func keep(_ file: ReadFile) {
        self.state.withLockedValue { state in
            state.clock += 1
            state.readers[ObjectIdentifier(file)] = (state.clock, Weak(object: file))
        }
    }

    /// Removes the file that was used longest ago, if there are more than `capacity`. It is released by the caller,
    /// outside the lock.
    private func takeOldest(besides file: ReadFile, beyond capacity: Int) -> ReadFile? {
        self.state.withLockedValue { state in
            let own = ObjectIdentifier(file)
            while state.readers.count + state.slotCount > capacity {
                let others = state.readers.lazy.filter { $0.key != own }
                guard let oldest = others.min(by: { $0.value.used < $1.value.used }) else { return nil }
                state.readers[oldest.key] = nil
                if let file = oldest.value.file.object { return file }
            }
            return nil
        }
    }

    func forget(_ key: ObjectIdentifier) { self.state.withLockedValue { $0.readers[key] = nil } }

    // MARK: Writing

    /// Takes a slot for a writer.
    ///
    /// Where none is free, a writer is ended, which continues in its next attempt: the one that has been idle longest,
    /// if that is ``patience`` at least; otherwise the one that has been idle longest of the owner that has most, if
    /// this owner has fewer even with one more.
    ///
    /// - Throws: ``/HHSocketServer/StatusError`` with status 503, after which the client tries again soon.
    func takeSlot(for owner: String) throws -> Slot {
        let maximum = max(1, self.capacity() / 2)
        let slot = Slot(owner, self)
        let (isTaken, idle): (Bool, Slot?) = self.state.withLockedValue { state in
            guard state.slotCount >= maximum else {
                state.slots[owner, default: [:]][ObjectIdentifier(slot)] = Weak(object: slot)
                state.slotCount += 1
                return (true, nil)
            }
            return (false, Self.idleSlot(in: state, for: owner, now: self.now()))
        }
        // The slot is free once the store has closed the file, after the writer's other work.
        idle?.end()
        guard isTaken else { throw StatusError(.overloaded) }
        return slot
    }

    /// Ends the writer that has been idle longest, if that is ``patience`` at least, for others that need what it has
    /// announced.
    ///
    /// - Returns: Whether there was one.
    func endIdle() -> Bool {
        let idle = self.state.withLockedValue { Self.idleSlot(in: $0, now: self.now()) }
        idle?.end()
        return idle != nil
    }

    private static func idlest(_ slots: some Sequence<Weak<Slot>>) -> Slot? {
        slots.compactMap(\.object).min { $0.used < $1.used }
    }

    private static func idleSlot(in state: State, now: NIODeadline) -> Slot? {
        let idlest = self.idlest(state.slots.values.lazy.flatMap(\.values))
        return idlest.flatMap { now - $0.used >= Self.patience ? $0 : nil }
    }

    private static func idleSlot(in state: State, for owner: String, now: NIODeadline) -> Slot? {
        if let idle = self.idleSlot(in: state, now: now) { return idle }
        guard let most = state.slots.values.max(by: { $0.count < $1.count }),
            most.count > (state.slots[owner]?.count ?? 0) + 1
        else { return nil }
        return self.idlest(most.values)
    }

    private func released(_ owner: String, _ key: ObjectIdentifier) {
        self.state.withLockedValue { state in
            guard state.slots[owner]?.removeValue(forKey: key) != nil else { return }
            state.slotCount -= 1
            if state.slots[owner]?.isEmpty == true { state.slots[owner] = nil }
        }
    }
}
