// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The state of a list that is loaded page by page, and the next page to ask for. It has no list and makes no calls: it
/// takes events and the time.
///
/// ```swift
/// var recorder = PageRecorder(.offset(pageSize: 20))
/// if let request = recorder.beginLoadMore(now: .now()) {
///     let items = try await load(page: request.page)
///     switch recorder.finish(request.token, Page(items)) {
///     case .replace: list = items
///     case .append: list += items
///     case .ignore: break
///     }
/// }
/// ```
/// At most one request is in progress:
///
/// | while | refresh | load more |
/// |---|---|---|
/// | nothing is in progress | begins | begins, if there is more |
/// | a refresh is in progress | refused | refused |
/// | a load-more is in progress | begins, and makes the other's answer void | refused |
///
/// A refusal is nil. A void answer is ignored, whenever it arrives. A failed request leaves everything as it was before
/// it began. ``reset()`` makes the request in progress void.
public struct PageRecorder: Sendable {
    /// The way in which pages are asked for.
    public enum Style: Hashable, Sendable {
        /// Pages by number: the first is `firstPage`, 1 by default; some servers count from 0.
        case offset(firstPage: Int = 1, pageSize: Int)
        /// Pages by the cursor that the server named with the previous page.
        case cursor(pageSize: Int)
    }

    /// The treatment of the items that arrived.
    public enum Verdict: Hashable, Sendable {
        /// The items replace the list.
        case replace
        /// The items are appended to the list.
        case append
        /// The items belong to a request that is void or over, and are ignored.
        case ignore
    }

    package let style: Style
    /// The number of the last page that arrived; nil before the first. With cursors, pages are counted from 1.
    public private(set) var page: Int?
    /// The number of items that have arrived.
    public private(set) var count = 0
    /// Whether there is more to ask for. True before the first page.
    public private(set) var hasMore = true
    /// The time at which the last request began, whatever its result; nil before the first, and after ``reset()``.
    package private(set) var lastRequestTime: NIODeadline?
    /// The request in progress.
    package private(set) var current: PageRequest?
    /// The cursor that the server named for the next page.
    private var nextCursor: String?
    private var lastToken: UInt64 = 0

    /// - Parameter style: The way in which pages are asked for. A page size below 1 counts as 1.
    public init(_ style: Style) {
        switch style {
        case .offset(let firstPage, let pageSize):
            self.style = .offset(firstPage: firstPage, pageSize: max(1, pageSize))
        case .cursor(let pageSize):
            self.style = .cursor(pageSize: max(1, pageSize))
        }
    }

    /// The number of items of a full page.
    public var pageSize: Int {
        switch self.style {
        case .offset(_, let pageSize), .cursor(let pageSize): pageSize
        }
    }

    /// Whether the first page has arrived and had no items: there is nothing to show, and nothing more to ask for.
    public var isEmpty: Bool { self.page != nil && self.count == 0 && !self.hasMore }

    public var isLoading: Bool { self.current != nil }

    private var firstPage: Int {
        switch self.style {
        case .offset(let firstPage, _): firstPage
        case .cursor: 1
        }
    }

    // MARK: Requests

    /// Begins to load the first page again. The current list stays until it arrives.
    ///
    /// - Returns: The request to make; nil while another refresh is in progress.
    public mutating func beginRefresh(now: NIODeadline) -> PageRequest? {
        if self.current?.kind == .refresh { return nil }
        return self.begin(.refresh, page: self.firstPage, offset: 0, cursor: nil, now: now)
    }

    /// Begins to load the page after the last, or the first if there is none yet.
    ///
    /// - Returns: The request to make; nil if there is no more, or a request is in progress.
    public mutating func beginLoadMore(now: NIODeadline) -> PageRequest? {
        guard self.current == nil, self.hasMore else { return nil }
        guard let page = self.page else {
            return self.begin(.loadMore, page: self.firstPage, offset: 0, cursor: nil, now: now)
        }
        // The page with the highest possible number has none after it.
        let (next, overflow) = page.addingReportingOverflow(1)
        guard !overflow else { return nil }
        return self.begin(.loadMore, page: next, offset: self.count, cursor: self.nextCursor, now: now)
    }

    private mutating func begin(
        _ kind: PageRequest.Kind,
        page: Int,
        offset: Int,
        cursor: String?,
        now: NIODeadline
    ) -> PageRequest {
        self.lastToken += 1
        let request = PageRequest(
            token: .init(number: self.lastToken),
            kind: kind,
            page: page,
            pageSize: self.pageSize,
            offset: offset,
            cursor: cursor
        )
        self.current = request
        self.lastRequestTime = now
        return request
    }

    // MARK: Answers

    /// Records a page that has arrived.
    ///
    /// There is more if the page's `hasMore` says so. If that is nil: with cursors, if there is a next one; with
    /// numbers, if ``Page/total`` exceeds the number of items so far, or, if that is nil too, if the page is full.
    /// There is never more after a page without items, nor with cursors without a next one: asked again, the server
    /// would answer the same.
    ///
    /// - Parameters:
    ///   - token: The token of the request.
    ///   - page: The page.
    /// - Returns: The treatment of the items.
    public mutating func finish<Item>(_ token: PageRequest.Token, _ page: Page<Item>) -> Verdict {
        self.finish(
            token,
            count: page.items.count,
            nextCursor: page.nextCursor,
            total: page.total,
            hasMore: page.hasMore
        )
    }

    /// Records a page of which only the number of items is known. Less than 0 counts as 0.
    package mutating func finish(
        _ token: PageRequest.Token,
        count: Int,
        nextCursor: String? = nil,
        total: Int? = nil,
        hasMore: Bool? = nil
    ) -> Verdict {
        guard let current = self.current, current.token == token else { return .ignore }
        self.current = nil
        let count = max(0, count)
        let isFirst = current.kind == .refresh || self.page == nil
        let (sum, overflow) = (isFirst ? 0 : self.count).addingReportingOverflow(count)
        self.count = overflow ? .max : sum
        self.page = current.page
        self.nextCursor = nextCursor
        self.hasMore =
            if count == 0 {
                false
            } else {
                switch self.style {
                case .cursor: nextCursor != nil && hasMore != false
                case .offset: hasMore ?? total.map { self.count < $0 } ?? (count >= self.pageSize)
                }
            }
        return isFirst ? .replace : .append
    }

    /// Records that a request has failed: everything is as before it began. A load-more that a refresh has made void
    /// stays void.
    ///
    /// - Returns: Whether the request was in progress.
    @discardableResult
    public mutating func fail(_ token: PageRequest.Token) -> Bool {
        guard self.current?.token == token else { return false }
        self.current = nil
        return true
    }

    /// Forgets everything. A request in progress becomes void.
    public mutating func reset() {
        let token = self.lastToken
        self = PageRecorder(self.style)
        // Token numbers continue, so that a void answer is never taken for a later one.
        self.lastToken = token
    }
}
