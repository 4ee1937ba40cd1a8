// SPDX-License-Identifier: Apache-2.0
/// The side of a WebSocket on which we are: clients mask their frames, servers do not (RFC 6455, section 5.1).
package enum WebSocketRole: Hashable, Sendable {
    case client
    case server
}
