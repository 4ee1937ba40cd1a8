// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The part of a list that a request asks for.
public enum ListPage: Hashable, Sendable {
    /// The first page. If it is empty, there is nothing to show (`noData`).
    case first
    /// A later page. If it is empty, there is nothing more to show (`noMoreData`).
    case later
}

extension APIRequest {
    /// Returns this request for a page of a list. It fails if the page is empty: with `noData` if it is the first page,
    /// with `noMoreData` if it is a later one. The cache treats an empty page like other answers.
    ///
    /// - Parameters:
    ///   - page: The part of the list that the request asks for.
    ///   - isEmpty: Whether the value has no items.
    public func page(_ page: ListPage, isEmpty: @escaping @Sendable (Value) -> Bool) -> APIRequest {
        let type = self.request.type
        return self.mapAnswer { value, response in
            guard isEmpty(value) else { return value }
            let what = page == .first ? "the list is empty" : "the list has no more"
            throw SocketError(
                page == .first ? .noData : .noMoreData,
                message: "\(what), according to the answer of \(response.endpoint) to type \(type)",
                endpoint: response.endpoint,
                serial: response.serial,
                delivery: .answered
            )
        }
    }
}

extension APIRequest where Value: Collection {
    /// Returns this request for a page whose value is a list itself.
    public func page(_ page: ListPage) -> APIRequest { self.page(page) { $0.isEmpty } }
}
