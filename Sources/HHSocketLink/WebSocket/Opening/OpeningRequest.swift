// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The request by which a client opens a WebSocket (RFC 6455, section 4.1).
package struct OpeningRequest: Hashable, Sendable {
    package let target: WebSocketTarget
    package let key: OpeningKey
    /// The caller's own header fields, `Cookie` and `Authorization` among them, checked.
    package let headers: HTTPFields
    /// The subprotocols that are offered, the preferred one first.
    package let subprotocols: [String]
    /// The parameters of permessage-deflate that are offered; nil if it is not.
    package let deflate: DeflatePolicy?

    /// Creates a request.
    ///
    /// - Parameters:
    ///   - key: A key that no other request has.
    ///   - headers: Header fields in addition to those of the handshake.
    ///   - origin: The value of `Origin`, which browsers send. It may be in `headers` instead.
    /// - Throws: An error whose ``OpeningError/isInvalidArgument`` is true, for header fields that are malformed or
    ///   reserved for the handshake, for subprotocols that are malformed or repeated, and for windows that zlib does
    ///   not support.
    package init(
        target: WebSocketTarget,
        key: OpeningKey,
        headers: HTTPFields = HTTPFields(),
        subprotocols: [String] = [],
        origin: String? = nil,
        deflate: DeflatePolicy? = nil
    ) throws(OpeningError) {
        var headers = headers
        if let origin { headers.append(name: "Origin", value: origin) }
        self.headers = try headers.checked(owned: ["Host"])
        guard self.headers.occurrence(of: "Origin") != .repeated else { throw .repeatedField("Origin") }
        try Subprotocols.check(subprotocols)
        try deflate?.checkForClient()
        self.target = target
        self.key = key
        self.subprotocols = subprotocols
        self.deflate = deflate
    }

    /// Encodes the request.
    package func encode() -> ByteBuffer {
        var buffer = ByteBuffer()
        buffer.writeString("GET \(self.target.requestTarget) HTTP/1.1\r\n")
        buffer.writeField("Host", self.target.hostField)
        buffer.writeField("Upgrade", "websocket")
        buffer.writeField("Connection", "Upgrade")
        buffer.writeField("Sec-WebSocket-Key", self.key.text)
        buffer.writeField("Sec-WebSocket-Version", "13")
        if !self.subprotocols.isEmpty {
            buffer.writeField("Sec-WebSocket-Protocol", self.subprotocols.joined(separator: ", "))
        }
        if let deflate = self.deflate {
            let offers = deflate.offers.map(\.description).joined(separator: ", ")
            buffer.writeField("Sec-WebSocket-Extensions", offers)
        }
        buffer.writeFields(self.headers)
        buffer.writeStaticString("\r\n")
        return buffer
    }
}

extension OpeningRequest: CustomStringConvertible {
    /// The URL without its query: it and the fields' values may be secrets.
    package var description: String { "GET \(self.target)" }
}

extension OpeningRequest {
    /// Returns the agreement of a 101 with these fields (RFC 6455, section 4.1).
    func agreement(by fields: HTTPFields) throws(OpeningError) -> OpeningAgreement {
        guard fields.list("Upgrade", contains: "websocket") else { throw .upgradeMissing }
        guard fields.list("Connection", contains: "upgrade") else { throw .connectionMissing }
        switch fields.occurrence(of: "Sec-WebSocket-Accept") {
        case .absent: throw .acceptMissing
        case .repeated: throw .acceptRepeated
        case .once(let accept): guard accept == self.key.accept else { throw .acceptWrong }
        }
        let subprotocol: String?
        switch fields.occurrence(of: "Sec-WebSocket-Protocol") {
        case .absent: subprotocol = nil
        case .repeated: throw .subprotocolSelectedTwice
        case .once(let name):
            guard self.subprotocols.contains(name) else { throw .subprotocolNotOffered(name) }
            subprotocol = name
        }
        return OpeningAgreement(subprotocol: subprotocol, deflate: try self.deflate(by: fields), headers: fields)
    }

    private func deflate(by fields: HTTPFields) throws(OpeningError) -> DeflateAgreement? {
        let answers: [WebSocketExtension]
        do throws(WebSocketExtension.Malformed) {
            answers = try WebSocketExtension.read(fields.values("Sec-WebSocket-Extensions"))
        } catch {
            throw .malformedExtensions
        }
        guard let answer = answers.first else { return nil }
        for answer in answers where self.deflate == nil || answer.name != DeflateParameters.extensionName {
            throw .extensionNotOffered(answer.name)
        }
        guard answers.count == 1 else { throw .extensionSelectedTwice }
        do throws(DeflateFault) {
            return try self.deflate?.agreement(answer: DeflateParameters(answer.parameters))
        } catch {
            throw .invalidDeflateAnswer(error)
        }
    }
}
