// SPDX-License-Identifier: Apache-2.0
import Atomics

/// The state of a task with two marks, in one byte that the sending of a request changes without a lock.
///
/// All other changes are made under the task's lock. They are atomic nevertheless, since a request may be sent in
/// between.
struct TaskWord: Hashable, RawRepresentable, AtomicValue {
    let rawValue: UInt8

    /// The bits of the states.
    private static let stateMask: UInt8 = 3
    private static let progressMark: UInt8 = 4
    private static let wholeMark: UInt8 = 8

    static let suspended = Self(rawValue: 0)

    init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// - Parameter state: The number of a state, from 0 to 3.
    init(state: UInt8, isSentWhole: Bool) {
        self.rawValue = state | (isSentWhole ? Self.wholeMark : 0)
    }

    var stateNumber: UInt8 { self.rawValue & Self.stateMask }

    /// Whether the progress is observed.
    var hasProgress: Bool {
        get { self.rawValue & Self.progressMark != 0 }
        set { self = Self(rawValue: newValue ? self.rawValue | Self.progressMark : self.rawValue & ~Self.progressMark) }
    }

    /// Whether all bytes of the body were sent when the task began to run, which is recorded nowhere else.
    var isSentWhole: Bool {
        get { self.rawValue & Self.wholeMark != 0 }
        set { self = Self(rawValue: newValue ? self.rawValue | Self.wholeMark : self.rawValue & ~Self.wholeMark) }
    }

    /// This word with another state and the same marks.
    func with(state: UInt8) -> Self { Self(rawValue: self.rawValue & ~Self.stateMask | state) }
}

extension UnsafeAtomic<TaskWord> {
    /// Changes the word; `change` may be called more than once.
    ///
    /// - Parameter change: Returns the new word; nil for no change.
    /// - Returns: Whether the word was changed.
    @discardableResult
    @inline(__always)
    func update(_ change: (TaskWord) -> TaskWord?) -> Bool {
        var word = self.load(ordering: .relaxed)
        while let changed = change(word) {
            let (isExchanged, original) = self.weakCompareExchange(
                expected: word,
                desired: changed,
                successOrdering: .acquiringAndReleasing,
                failureOrdering: .relaxed
            )
            if isExchanged { return true }
            word = original
        }
        return false
    }
}
