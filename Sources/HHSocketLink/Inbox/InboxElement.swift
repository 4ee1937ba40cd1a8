// SPDX-License-Identifier: Apache-2.0
public import DequeModule

/// An element that may wait in an inbox.
@usableFromInline
package protocol InboxElement: Sendable {
    /// The memory that its bytes keep once it is detached, in bytes.
    var memory: Int { get }
    /// Detaches it from the read that it may be a slice of (`ByteBuffer.detached`): it waits for its reader.
    ///
    /// - Parameter isOneOfMany: Whether very many elements may wait, so that even a small block of memory for each is
    ///   too much.
    mutating func detach(isOneOfMany: Bool)
    /// Detaches elements that arrived together.
    static func detach(_ elements: inout Deque<Self>, isOneOfMany: Bool)
}

extension InboxElement {
    @usableFromInline
    package static func detach(_ elements: inout Deque<Self>, isOneOfMany: Bool) {
        for index in elements.indices { elements[index].detach(isOneOfMany: isOneOfMany) }
    }
}

/// The remaining bytes of a connection that has ended, which contain elements. They are decoded as they are read, since
/// many small elements need more memory than their bytes.
package protocol InboxRest<Element>: Sendable {
    associatedtype Element: InboxElement

    /// The memory that the remaining bytes keep; 0 if there are none.
    var memory: Int { get }
    /// The next element; nil if there is none.
    mutating func next() -> Element?
}

/// The number of elements that may wait in an inbox, and the way in which they are read.
@usableFromInline
package struct InboxBounds: Sendable {
    @usableFromInline
    package enum AtLimit: Sendable {
        /// The oldest element makes room, or the new one is dropped.
        case dropOldest, dropNewest
        /// Nothing is dropped: reading is suspended until half of the elements are read.
        case hold
        /// Arriving elements are bounded elsewhere.
        case unbounded
    }

    /// The elements that are detached from the reads that they are slices of.
    @usableFromInline
    package enum Detaching: Sendable {
        /// Those that arrive while others wait, since their reader is behind.
        case behind
        /// Those that wait.
        case waiting
        case all
    }

    /// The number of elements that may wait.
    @usableFromInline package var count = Int.max
    /// The cost of the elements that may wait, in bytes; `Int.max`, the default, does not count it.
    @usableFromInline package var bytes = Int.max
    @usableFromInline package var atLimit: AtLimit
    /// The number of elements that a reader takes at once. These do not count towards the limits.
    @usableFromInline package var batch: Int
    @usableFromInline package var detaching: Detaching
    /// Whether a reader is refused while another one waits. Otherwise those that wait get an element each, in order.
    @usableFromInline package var isForOneReader = false
    /// Whether the cancellation of a task that reads ends the inbox.
    @usableFromInline package var endsWithTask = false

    package init(_ atLimit: AtLimit, batch: Int, detaching: Detaching) {
        self.atLimit = atLimit
        self.batch = batch
        self.detaching = detaching
    }
}

/// A change that the owner of an inbox is notified of.
package enum InboxChange: Hashable, Sendable {
    /// Nothing more should be read for now.
    case holds
    /// Reading may continue.
    case releases
    /// The inbox was cancelled.
    case over
}

/// The outcome of appending elements.
@usableFromInline
package struct InboxAppended: Sendable {
    /// The number of elements that were dropped for them: older ones, or some of them.
    @usableFromInline package var dropped = 0
    /// Whether reading must be suspended from now on.
    @usableFromInline package var holds = false
    /// The readers that have been served, to be resumed outside the lock. Mostly there is one.
    @usableFromInline var reader: TurnWaiter?
    @usableFromInline var otherReaders: [TurnWaiter] = []

    @inlinable
    init() {}

    @usableFromInline
    mutating func serves(_ waiter: TurnWaiter) {
        if self.reader == nil { self.reader = waiter } else { self.otherReaders.append(waiter) }
    }

    @inlinable
    func resume(_ resume: (TurnWaiter) -> Void) {
        guard let reader = self.reader else { return }
        resume(reader)
        for reader in self.otherReaders { resume(reader) }
    }
}
