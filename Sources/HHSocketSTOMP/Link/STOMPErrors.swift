// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The errors of a client and its connections.
enum STOMPErrors {
    static let released = SocketError(.cancelled, message: "the client was released")

    static func lost(_ why: String, _ delivery: SocketError.Delivery = .notSent) -> SocketError {
        SocketError(.connectionLost, message: why, delivery: delivery)
    }

    /// An ERROR in answer to CONNECT.
    static func refusal(_ error: STOMPServerError, at endpoint: Endpoint) -> SocketError {
        SocketError(
            .handshakeRefused,
            message: "the broker at \(endpoint) refused CONNECT: \(error)",
            underlying: error,
            endpoint: endpoint,
            delivery: .answered
        )
    }

    /// An ERROR on an accepted connection.
    static func answer(_ error: STOMPServerError, at endpoint: Endpoint) -> SocketError {
        SocketError(
            .brokerError,
            message: "the broker at \(endpoint) answered with ERROR: \(error)",
            underlying: error,
            endpoint: endpoint,
            delivery: .answered
        )
    }

    /// The error of an operation that the broker had not confirmed when the connection ended. A preceding ERROR may
    /// refer to it or not: RabbitMQ does not say.
    static func unconfirmed(after error: STOMPServerError?, at endpoint: Endpoint) -> SocketError {
        let why = error.map { "was ended by ERROR (\($0))" } ?? "was lost"
        return SocketError(
            .connectionLost,
            message: "the connection to \(endpoint) \(why) before the broker confirmed it",
            underlying: error,
            endpoint: endpoint,
            delivery: .sentUnknown
        )
    }
}
