// SPDX-License-Identifier: Apache-2.0
/// A store in which a ``ResponseCache`` keeps answers: memory (``MemoryResponseStore``), or another, such as a disk.
///
/// The cache decides which answers are kept and when they may be used; a store only keeps them, and may drop any answer
/// at any time. The cache calls its store for one operation at a time, in the order of its decisions: an answer that
/// was kept before ``remove(_:)`` is gone after it. A slow store therefore delays only the callers of its own cache.
public protocol ResponseStore: Sendable {
    /// Returns the answer kept for this key; nil if there is none.
    func response(for key: ResponseKey) async -> StoredResponse?

    /// Keeps an answer in place of the previous one for this key. If it cannot be kept, the previous one is dropped
    /// too.
    func store(_ response: StoredResponse, for key: ResponseKey) async

    /// Drops every answer that `removal` covers.
    func remove(_ removal: ResponseRemoval) async
}

/// A set of answers that a ``ResponseStore`` must drop.
public enum ResponseRemoval: Hashable, Sendable {
    /// All answers.
    case all
    /// The answers to requests of this type.
    case ofType(UInt32)
    /// The answers that a manager of this name asked for.
    case ofOwner(String)
    /// The answer for this key.
    case forKey(ResponseKey)

    /// Whether this answer must be dropped.
    public func covers(_ key: ResponseKey, _ response: StoredResponse) -> Bool {
        switch self {
        case .all: true
        case .ofType(let type): key.type == type
        case .ofOwner(let name): response.owners.contains(name)
        case .forKey(let covered): key == covered
        }
    }
}
