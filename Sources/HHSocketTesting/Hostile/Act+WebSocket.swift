// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import NIOCore

extension HostileClient.Act {
    // MARK: WebSocket

    /// A request to open a WebSocket, with the subprotocol of the client's frames.
    ///
    /// ```swift
    /// .opening("/chat", headers: ["Origin": "https://evil.example"])
    /// .opening(headers: ["Sec-WebSocket-Version": "12"])
    /// .opening(without: ["Sec-WebSocket-Key"])
    /// .opening(headers: ["X-Padding": String(repeating: "x", count: 20_000)])
    /// .opening().dribbled(every: .seconds(1))
    /// .opening().cut(after: 40)
    /// ```
    ///
    /// - Parameters:
    ///   - path: The path and the query; nil, the default, uses those of the client's URL.
    ///   - headers: Header fields, which replace those of the handshake with the same name. None by default.
    ///   - omitted: The names of header fields of the handshake that are omitted. None by default.
    public static func opening(
        _ path: String? = nil,
        headers: KeyValuePairs<String, String> = [:],
        without omitted: Set<String> = []
    ) -> Self {
        Self(.opening(OpeningForge(path: path, headers: headers.map { ($0.key, $0.value) }, omitted: omitted)))
    }

    /// A text message.
    public static func text(_ text: String) -> Self { .webSocketFrame(.text(text)) }

    /// A binary message.
    package static func binary(_ bytes: ByteBuffer) -> Self { .webSocketFrame(.binary(bytes)) }

    /// A binary message.
    package static func binary(_ bytes: some Sequence<UInt8>) -> Self { .webSocketFrame(.binary(bytes)) }

    /// A frame of a WebSocket, valid or not. It is masked, unless specified otherwise.
    public static func webSocketFrame(_ frame: WebSocketFrame) -> Self { Self(.webSocket([frame])) }

    /// Frames of a WebSocket, right or wrong, in one write.
    package static func webSocketFrames(_ frames: [WebSocketFrame]) -> Self { Self(.webSocket(frames)) }

    /// Sends frames of a WebSocket as fragments that carry at most `length` bytes each.
    public func fragmented(length: Int) -> Self {
        var act = self
        act.steps = self.steps.map { step in
            guard case .send(var sending) = step, case .webSocket(let frames) = sending.source else { return step }
            sending.source = .webSocket(frames.flatMap { $0.fragmented(length: max(1, length)) })
            return .send(sending)
        }
        return act
    }
}

/// A request to open a WebSocket, right or wrong.
struct OpeningForge: Sendable {
    /// The example of RFC 6455.
    private static let key = "dGhlIHNhbXBsZSBub25jZQ=="

    var path: String?
    var headers: [(name: String, value: String)]
    var omitted: Set<String>

    /// Encodes the request.
    ///
    /// - Parameters:
    ///   - target: The client's URL, if it has one.
    ///   - host: The value of `Host`.
    ///   - subprotocol: The subprotocol that is offered, if there is one.
    func encode(to target: WebSocketTarget?, host: String, offering subprotocol: String?) -> ByteBuffer {
        var fields: [(name: String, value: String)] = [
            ("Host", host), ("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", Self.key),
            ("Sec-WebSocket-Version", "13"),
        ]
        if let subprotocol { fields.append(("Sec-WebSocket-Protocol", subprotocol)) }
        let replaced = Set((self.headers.map(\.name) + self.omitted).map { $0.lowercased() })
        fields.removeAll { replaced.contains($0.name.lowercased()) }
        let lines = (fields + self.headers).map { "\($0.name): \($0.value)\r\n" }.joined()
        return ByteBuffer(string: "GET \(self.path ?? target?.requestTarget ?? "/") HTTP/1.1\r\n\(lines)\r\n")
    }
}
