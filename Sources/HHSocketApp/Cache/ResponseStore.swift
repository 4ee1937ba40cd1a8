/// A store in which a ``ResponseCache`` keeps answers: memory (``MemoryResponseStore``), or another, such as a disk.
///
/// The cache decides what is kept and when it may be given; a store only keeps it, and may drop any answer at any time.
/// The cache asks for one thing after the other, each when the one before has returned, in the order in which it
/// decided: an answer that was kept before ``remove(_:)`` is gone after it. So a store that takes its time holds up
/// nobody but those who ask this cache.
public protocol ResponseStore: Sendable {
    /// Returns the answer kept for this key; nil if there is none.
    func response(for key: ResponseKey) async -> StoredResponse?

    /// Keeps an answer in place of what was kept for this key. One that cannot be kept is dropped, and so is the one
    /// before.
    func store(_ response: StoredResponse, for key: ResponseKey) async

    /// Drops every answer that `removal` covers.
    func remove(_ removal: ResponseRemoval) async
}

/// Which answers a ``ResponseStore`` is to drop.
public struct ResponseRemoval: Hashable, Sendable {
    enum Scope: Hashable, Sendable {
        case all
        case type(UInt32)
        case owner(String)
        case key(ResponseKey)
    }

    let scope: Scope

    /// All of them.
    public static let all = Self(scope: .all)
    /// Those to requests of this type.
    public static func ofType(_ type: UInt32) -> Self { Self(scope: .type(type)) }
    /// Those that a manager of this name asked for.
    public static func ofOwner(_ name: String) -> Self { Self(scope: .owner(name)) }
    /// The one for this key.
    public static func forKey(_ key: ResponseKey) -> Self { Self(scope: .key(key)) }

    /// Whether this answer is to be dropped.
    public func covers(_ key: ResponseKey, _ response: StoredResponse) -> Bool {
        switch self.scope {
        case .all: true
        case .type(let type): key.type == type
        case .owner(let name): response.owners.contains(name)
        case .key(let covered): key == covered
        }
    }
}
