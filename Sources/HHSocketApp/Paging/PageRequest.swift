// SPDX-License-Identifier: Apache-2.0
/// A request for a page.
public struct PageRequest: Hashable, Sendable {
    /// A token that joins an answer to its request. Unique within one ``PageRecorder``.
    public struct Token: Hashable, Sendable {
        let number: UInt64
    }

    /// The reason for a request.
    package enum Kind: Hashable, Sendable {
        /// The first page, to replace the whole list.
        case refresh
        /// The page after the last.
        case loadMore
    }

    public let token: Token
    package let kind: Kind
    /// The page's number, as the server counts them.
    public let page: Int
    /// The number of items of a full page.
    public let pageSize: Int
    /// The number of items before it, for servers that count items and not pages.
    public let offset: Int
    /// The cursor that the server named; nil for the first page, and always where pages have numbers.
    public let cursor: String?
}

/// The answer to a ``PageRequest``.
public struct Page<Item> {
    public let items: [Item]
    /// The cursor of the next page, where the server pages by cursors; nil where nothing follows.
    package let nextCursor: String?
    /// The total number of items; nil if the server does not say.
    public let total: Int?
    /// Whether there are more; nil if the server does not say.
    package let hasMore: Bool?

    /// - Parameters:
    ///   - items: The items, in their order.
    ///   - nextCursor: The cursor of the next page, if the server pages by cursors; nil, the default, if nothing
    ///     follows.
    ///   - total: The number of items in all; nil by default.
    ///   - hasMore: Whether there are more; nil by default.
    public init(_ items: [Item], nextCursor: String? = nil, total: Int? = nil, hasMore: Bool? = nil) {
        self.items = items
        self.nextCursor = nextCursor
        self.total = total
        self.hasMore = hasMore
    }
}

extension Page: Sendable where Item: Sendable {}
extension Page: Equatable where Item: Equatable {}
extension Page: Hashable where Item: Hashable {}
