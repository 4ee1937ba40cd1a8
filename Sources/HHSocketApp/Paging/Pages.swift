// SPDX-License-Identifier: Apache-2.0
/// The pages of a list, from the first to the last.
///
/// ```swift
/// let pages = Pages(.cursor(pageSize: 50)) { request in
///     try await server.messages(after: request.cursor, limit: request.pageSize)
/// }
/// for try await page in pages {
///     list += page.items
/// }
/// ```
///
/// A page is loaded when it is requested, never ahead. The sequence ends when there are no more; a first page without
/// items is an element, a later one is not. If `load` throws, the iterator throws the error and keeps its state: the
/// next call loads the same page again. `for try await` leaves the loop with the error, so a retry requires an explicit
/// iterator, or a `load` that tries again. Each iterator begins with the first page.
public struct Pages<Item: Sendable>: AsyncSequence, Sendable {
    private let style: PageRecorder.Style
    private let load: @Sendable (PageRequest) async throws -> Page<Item>

    /// - Parameters:
    ///   - style: The way in which pages are asked for.
    ///   - load: Loads a page.
    public init(
        _ style: PageRecorder.Style,
        load: @escaping @Sendable (PageRequest) async throws -> Page<Item>
    ) {
        self.style = style
        self.load = load
    }

    public func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(recorder: PageRecorder(self.style), load: self.load)
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        /// The state of the iteration.
        package private(set) var recorder: PageRecorder
        let load: @Sendable (PageRequest) async throws -> Page<Item>

        /// Loads and returns the next page; nil if there is none.
        ///
        /// - Throws: The error of `load`; the page may then be asked for again.
        public mutating func next() async throws -> Page<Item>? {
            guard let request = self.recorder.beginLoadMore(now: .now()) else { return nil }
            do {
                let page = try await self.load(request)
                let verdict = self.recorder.finish(request.token, page)
                // An empty page after others means that there is no more.
                return page.items.isEmpty && verdict == .append ? nil : page
            } catch {
                self.recorder.fail(request.token)
                throw error
            }
        }
    }
}
