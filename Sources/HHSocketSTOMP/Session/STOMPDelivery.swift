// SPDX-License-Identifier: Apache-2.0
/// One delivery of a message: by which connection and subscription it came, and how it is settled there.
package struct STOMPDelivery: Sendable {
    /// The number of the connection, counted by the client.
    package var connection: UInt64
    package var subscription: String
    package var ackMode: STOMPAckMode
    /// Its number among the subscription's messages on this connection.
    var number: UInt64
    /// The value by which the broker knows it: of the header `ack` in 1.2, else of `message-id`; nil if it has none.
    var identifier: String?
}
