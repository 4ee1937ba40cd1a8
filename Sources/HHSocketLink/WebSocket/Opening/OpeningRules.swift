// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// A server's decision on an opening request.
package enum OpeningDecision: Hashable, Sendable {
    /// Send the response; the connection is a WebSocket then.
    case upgrade(OpeningAgreement, response: ByteBuffer)
    /// Send the rejection's bytes, and close.
    case reject(OpeningRejection)
}

/// The application's word on an opening request that is valid.
package enum OpeningPermission: Hashable, Sendable {
    /// Upgrade, with these header fields in the response.
    case allow(headers: HTTPFields)
    /// Refuse with a status of 300 to 599, header fields and a text.
    case refuse(status: Int, headers: HTTPFields, text: String)
}

/// The rules by which a server answers opening requests (RFC 6455, section 4.2).
package struct OpeningRules: Sendable {
    /// The origins whose pages may connect.
    package enum Origins: Sendable {
        case any
        /// Origins such as `https://example.com`.
        case list([String])
        case closure(@Sendable (String) -> Bool)
    }

    /// The path that a request must have, the query aside; nil for any.
    package var path: String?
    /// The server's subprotocols. Of those that a client offers the first that is among them is selected.
    package let subprotocols: [String]
    /// Whether a request that offers none of ``subprotocols`` is rejected. It is upgraded without one otherwise.
    package var requiresSubprotocol: Bool
    /// The origins whose pages may connect. A request without an origin does not come from a page and is admitted.
    package var origins = Origins.any
    /// The parameters of permessage-deflate; nil if messages are not compressed.
    package let deflate: DeflatePolicy?
    /// Whether messages to a client, and from it, may be compressed, to exclude clients that are known to fail at it.
    /// Nil if all may.
    package var mayCompress: (@Sendable (OpeningRequestHead) -> Bool)?
    /// The application's decision, requested last: authentication, for example. Nil if all requests are allowed.
    package var permission: (@Sendable (OpeningRequestHead) -> OpeningPermission)?

    /// Creates rules.
    ///
    /// - Throws: An error whose ``OpeningError/isInvalidArgument`` is true, for subprotocols that are malformed or
    ///   repeated, and for windows that zlib has not.
    package init(
        path: String? = nil,
        subprotocols: [String] = [],
        requiresSubprotocol: Bool = false,
        deflate: DeflatePolicy? = nil
    ) throws(OpeningError) {
        try Subprotocols.check(subprotocols)
        try deflate?.checkForServer()
        self.path = path
        self.subprotocols = subprotocols
        self.requiresSubprotocol = requiresSubprotocol
        self.deflate = deflate
    }

    /// Decides on a request.
    package func decide(_ head: OpeningRequestHead) -> OpeningDecision {
        do throws(OpeningRejection) {
            return try self.upgrade(head)
        } catch {
            return .reject(error)
        }
    }

    private func upgrade(_ head: OpeningRequestHead) throws(OpeningRejection) -> OpeningDecision {
        guard self.path == nil || self.path == head.path else { throw .path }
        let fields = head.headers
        guard fields.list("Upgrade", contains: "websocket"), fields.list("Connection", contains: "upgrade") else {
            throw .upgrade
        }
        guard fields.occurrence(of: "Sec-WebSocket-Version") == .once("13") else { throw .webSocketVersion }
        guard let key = head.key else { throw .key }
        let subprotocol = try self.select(head.subprotocols)
        let offers = try head.deflateOffers()
        try self.checkOrigin(fields)
        let headers = try self.permit(head)
        let deflate = self.mayCompress?(head) == false ? nil : self.deflate?.agreement(offers: offers)
        let agreement = OpeningAgreement(subprotocol: subprotocol, deflate: deflate?.agreement, headers: fields)
        let response = Self.response(
            to: key,
            agreement: agreement,
            extensions: deflate?.answer.description,
            headers: headers
        )
        return .upgrade(agreement, response: response)
    }

    private func select(_ offered: [String]) throws(OpeningRejection) -> String? {
        guard (try? Subprotocols.check(offered)) != nil else { throw .malformedSubprotocols }
        let selected = offered.first { self.subprotocols.contains($0) }
        guard selected != nil || !self.requiresSubprotocol else { throw .subprotocol }
        return selected
    }

    private func checkOrigin(_ fields: HTTPFields) throws(OpeningRejection) {
        let isAllowed: Bool
        switch (self.origins, fields.occurrence(of: "Origin")) {
        case (.any, _), (_, .absent): isAllowed = true
        case (_, .repeated): isAllowed = false
        case (.list(let origins), .once(let origin)):
            isAllowed = origins.contains { HTTPSyntax.isSame($0, origin) }
        case (.closure(let allows), .once(let origin)): isAllowed = allows(origin)
        }
        guard isAllowed else { throw .origin }
    }

    /// Calls the application. Returns its own header fields for the response.
    private func permit(_ head: OpeningRequestHead) throws(OpeningRejection) -> HTTPFields {
        let failed = OpeningRejection.application(status: 500, headers: HTTPFields(), text: "The server failed.")
        switch self.permission?(head) {
        case nil:
            return HTTPFields()
        case .allow(let headers):
            guard let headers = try? headers.checked() else { throw failed }
            return headers
        case .refuse(let status, let headers, let text):
            guard (300...599).contains(status), let headers = try? headers.checked() else { throw failed }
            throw .application(status: status, headers: headers, text: text)
        }
    }

    private static func response(
        to key: OpeningKey,
        agreement: OpeningAgreement,
        extensions: String?,
        headers: HTTPFields
    ) -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.writeStaticString("HTTP/1.1 101 Switching Protocols\r\n")
        buffer.writeField("Upgrade", "websocket")
        buffer.writeField("Connection", "Upgrade")
        buffer.writeField("Sec-WebSocket-Accept", key.accept)
        if let subprotocol = agreement.subprotocol { buffer.writeField("Sec-WebSocket-Protocol", subprotocol) }
        // Without an extension the field is omitted: an empty one is malformed.
        if let extensions { buffer.writeField("Sec-WebSocket-Extensions", extensions) }
        buffer.writeFields(headers)
        buffer.writeStaticString("\r\n")
        return buffer
    }
}
