// SPDX-License-Identifier: Apache-2.0
/// One delivery of a message: its connection and subscription, and how it is settled there.
package struct STOMPDelivery: Sendable {
    /// The number of the connection, counted by the client.
    package var connection: UInt64
    package var subscription: String
    package var ackMode: STOMPAckMode
    /// Its number among the subscription's messages on this connection.
    var number: UInt64
    /// The identifier for settling: the header `ack` in 1.2, otherwise `message-id`; nil if the message has none.
    var identifier: String?
}
