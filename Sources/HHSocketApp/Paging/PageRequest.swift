/// Which page to ask for next.
public struct PageRequest: Hashable, Sendable {
    /// What joins an answer to its request. Unique within one ``PageRecorder``.
    public struct Token: Hashable, Sendable {
        let number: UInt64
    }

    /// Why it is asked for.
    public enum Kind: Hashable, Sendable {
        /// The first page, in the place of all that is there.
        case refresh
        /// The page after the last.
        case loadMore
    }

    public let token: Token
    public let kind: Kind
    /// The page's number, as the server counts them.
    public let page: Int
    /// How many items a full page has.
    public let pageSize: Int
    /// How many items stand before it: where it begins, for servers that count items and not pages.
    public let offset: Int
    /// What the server said to ask for next; nil for the first page, and by number of page always.
    public let cursor: String?
}

/// What came for a ``PageRequest``.
public struct Page<Item> {
    public var items: [Item]
    /// What to ask for next, where the server pages by cursors; nil where nothing follows.
    public var nextCursor: String?
    /// How many items there are in all; nil where the server does not say.
    public var total: Int?
    /// Whether there are more; nil where the server does not say.
    public var hasMore: Bool?

    /// - Parameters:
    ///   - items: The items, in their order.
    ///   - nextCursor: What to ask for next; nil, the default: nothing follows, where paging is by cursor.
    ///   - total: How many items there are in all; nil by default.
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
