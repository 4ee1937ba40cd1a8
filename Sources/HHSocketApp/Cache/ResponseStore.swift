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
public struct ResponseRemoval: Hashable, Sendable {
    enum Scope: Hashable, Sendable {
        case all
        case type(UInt32)
        case owner(String)
        case key(ResponseKey)
    }

    let scope: Scope

    /// All answers.
    public static let all = Self(scope: .all)
    /// The answers to requests of this type.
    public static func ofType(_ type: UInt32) -> Self { Self(scope: .type(type)) }
    /// The answers that a manager of this name asked for.
    public static func ofOwner(_ name: String) -> Self { Self(scope: .owner(name)) }
    /// The answer for this key.
    public static func forKey(_ key: ResponseKey) -> Self { Self(scope: .key(key)) }

    /// Whether this answer must be dropped.
    public func covers(_ key: ResponseKey, _ response: StoredResponse) -> Bool {
        switch self.scope {
        case .all: true
        case .type(let type): key.type == type
        case .owner(let name): response.owners.contains(name)
        case .key(let covered): key == covered
        }
    }
}
