// SPDX-License-Identifier: Apache-2.0
/// The decisions of a group of tasks. Members are numbered in the order in which they were added.
struct TaskGroupMachine<Member> {
    enum Phase: Hashable, Sendable {
        case suspended, running, canceling, completed
        /// Released before it began: no end is reported.
        case released
    }

    /// The step to take with a member.
    enum Order: Hashable, Sendable {
        case nothing, resume, cancel
    }

    struct Entry {
        var weight: Int
        /// The member; nil while it is being created.
        var member: Member?
    }

    private(set) var phase = Phase.suspended
    /// The members that have not ended, by number.
    private var entries: [Int: Entry] = [:]
    private var lastNumber = -1
    private var isHeld = false
    private(set) var wasCancelled = false
    private(set) var failures: [(number: Int, error: any Error)] = []
    /// The weights of all members, and of those that have ended.
    private(set) var totalWeight = 0
    private(set) var completedWeight = 0

    var memberCount: Int { self.lastNumber + 1 }
    var completedCount: Int { self.memberCount - self.entries.count }
    var isOver: Bool { self.phase == .completed || self.phase == .released }

    /// Members that have not ended, in the order in which they were added, and their weights.
    var remaining: [(member: Member, weight: Int)] {
        self.entries.sorted { $0.key < $1.key }.compactMap { _, entry in entry.member.map { ($0, entry.weight) } }
    }

    /// Adds a member that is about to be created; it may end before ``made(_:_:)``.
    ///
    /// - Returns: Its number; nil if the group is over, and the member is not waited for.
    mutating func enter(weight: Int) -> Int? {
        guard !self.isOver else { return nil }
        self.lastNumber += 1
        self.entries[self.lastNumber] = Entry(weight: weight)
        self.totalWeight += weight
        return self.lastNumber
    }

    /// - Returns: The step to take with the member at once.
    mutating func made(_ number: Int, _ member: Member) -> Order {
        // Otherwise it has ended meanwhile, or the group is over.
        guard self.entries[number] != nil else { return .nothing }
        self.entries[number]?.member = member
        switch self.phase {
        case .running: return .resume
        case .canceling: return .cancel
        case .suspended, .completed, .released: return .nothing
        }
    }

    /// - Returns: The members to resume, in order, and whether the group is complete.
    mutating func resume() -> (members: [Member], isComplete: Bool) {
        guard self.phase == .suspended else { return ([], false) }
        self.phase = .running
        return (self.remaining.map(\.member), self.completeIfEmpty())
    }

    /// - Returns: The members to cancel, in order, and whether the group is complete.
    mutating func cancel() -> (members: [Member], isComplete: Bool) {
        guard self.phase == .suspended || self.phase == .running else { return ([], false) }
        self.phase = .canceling
        return (self.remaining.map(\.member), self.completeIfEmpty())
    }

    /// Removes a member that has ended, and whose handler has returned. Only its first end counts.
    ///
    /// - Returns: The member, which the caller releases, and whether the group is complete.
    mutating func left(_ number: Int, _ error: (any Error)?) -> (member: Member?, isComplete: Bool) {
        guard let entry = self.entries.removeValue(forKey: number) else { return (nil, false) }
        self.completedWeight += entry.weight
        if let error { self.failures.append((number, error)) }
        return (entry.member, self.completeIfEmpty())
    }

    /// Releases a group that is no longer referenced, except perhaps by its members.
    ///
    /// - Returns: The members, which the caller releases; nil if the group continues until it is complete.
    mutating func release() -> [Member]? {
        guard self.phase == .suspended else { return nil }
        self.phase = .released
        defer { self.entries = [:] }
        return self.remaining.map(\.member)
    }

    /// Keeps the group open, even without members, until ``letGo()``.
    mutating func hold() {
        self.isHeld = true
    }

    /// - Returns: Whether the group is complete.
    mutating func letGo() -> Bool {
        self.isHeld = false
        return self.completeIfEmpty()
    }

    private mutating func completeIfEmpty() -> Bool {
        guard self.entries.isEmpty, !self.isHeld, self.phase == .running || self.phase == .canceling else {
            return false
        }
        self.wasCancelled = self.phase == .canceling
        self.phase = .completed
        return true
    }
}

extension TaskGroupMachine: Sendable where Member: Sendable {}
extension TaskGroupMachine.Entry: Sendable where Member: Sendable {}
