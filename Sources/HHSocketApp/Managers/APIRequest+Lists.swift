import HHSocket

/// Which part of a list a request asks for.
public enum ListPage: Hashable, Sendable {
    /// If it is empty, there is nothing to show (`noData`).
    case first
    /// If it is empty, there is nothing more to show (`noMoreData`).
    case later
}

extension APIRequest {
    /// This request for a page of a list, which fails where the page is empty: with `noData` if it is the first
    /// page, with `noMoreData` if it is a later one. An empty page is an answer like others to the cache.
    ///
    /// - Parameter isEmpty: Whether nothing is in the list.
    public func page(_ page: ListPage, isEmpty: @escaping @Sendable (Value) -> Bool) -> APIRequest {
        let type = self.request.type
        return self.mapAnswer { value, response in
            guard isEmpty(value) else { return value }
            let what = page == .first ? "the list is empty" : "the list has no more"
            throw SocketError(
                page == .first ? .noData : .noMoreData,
                message: "\(what), says the answer of \(response.endpoint) to type \(type)",
                endpoint: response.endpoint,
                serial: response.serial,
                delivery: .answered
            )
        }
    }
}

extension APIRequest where Value: Collection {
    /// A request for a page of values that are lists themselves.
    public func page(_ page: ListPage) -> APIRequest { self.page(page) { $0.isEmpty } }
}
