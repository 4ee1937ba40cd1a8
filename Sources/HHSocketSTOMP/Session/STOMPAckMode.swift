// SPDX-License-Identifier: Apache-2.0
/// The mode in which the messages of a subscription are acknowledged.
public enum STOMPAckMode: String, Sendable, CaseIterable {
    /// The broker considers a message consumed once it has sent it.
    case auto
    /// An acknowledgement covers the message and those of the subscription before it. STOMP 1.0 does not specify this,
    /// but RabbitMQ does it there too, and ends the connection if one of those before it is acknowledged later.
    case client
    /// An acknowledgement covers one message. STOMP 1.1 and 1.2 only.
    case clientIndividual = "client-individual"
}
