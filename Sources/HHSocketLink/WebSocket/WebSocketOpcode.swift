// SPDX-License-Identifier: Apache-2.0
/// The kinds of frames (RFC 6455, section 5.2).
enum WebSocketOpcode: UInt8, Sendable {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { self.rawValue >= 8 }
}

/// The kinds of messages.
package enum WebSocketMessageKind: Hashable, Sendable {
    /// UTF-8.
    case text
    case binary

    var opcode: WebSocketOpcode { self == .text ? .text : .binary }
}
