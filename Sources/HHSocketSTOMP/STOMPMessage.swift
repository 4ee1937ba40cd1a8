// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

/// A message that a broker has delivered.
public struct STOMPMessage: Sendable {
    private var frame: STOMPFrame
    /// Nil for a message that belongs to no subscription.
    let delivery: STOMPDelivery?
    private let settler: STOMPSettler

    init(_ frame: STOMPFrame, delivery: STOMPDelivery?, settler: STOMPSettler) {
        self.frame = frame
        self.delivery = delivery
        self.settler = settler
    }

    /// All headers, in the broker's order.
    public var headers: STOMPHeaders { self.frame.headers }
    /// The bytes of the body, whatever `content-type` says.
    public var body: ByteBuffer { self.frame.body }
    /// The body as text; nil if it is not UTF-8.
    public var text: String? { self.frame.body.utf8Text }
    /// The header `destination`; empty if the broker omitted it.
    public var destination: String { self.headers["destination"] ?? "" }
    /// The header `message-id`; empty if the broker omitted it.
    package var messageID: String { self.headers["message-id"] ?? "" }
    /// The id of the subscription that the message belongs to; nil if it belongs to none.
    package var subscriptionID: String? { self.delivery?.subscription ?? self.headers["subscription"] }
    /// The header `content-type`; nil if there is none: the body is then just bytes.
    package var contentType: String? { self.headers["content-type"] }

    /// Acknowledges the message, and with ack mode ``STOMPAckMode/client`` those before it. Acknowledging twice does
    /// nothing.
    ///
    /// - Parameters:
    ///   - headers: Further headers, such as extensions of the broker. None by default.
    ///   - receipt: Whether to wait until the broker has confirmed it; false by default: it returns once the
    ///     acknowledgement is being sent. If the connection is lost before it arrives, the message is delivered again.
    ///
    /// - Throws: ``/HHSocket/SocketError``. Codes: `connectionLost` if the connection that delivered the message is
    ///   closed, so that the broker delivers it again; `invalidArgument` with ack mode ``STOMPAckMode/auto``, or after
    ///   the end of the subscription; `timeout` without a receipt in time; `cancelled` if the task was cancelled or the
    ///   client released. An error whose `delivery` is `notSent` leaves the message unsettled, so that it can be
    ///   acknowledged again.
    public func ack(headers: STOMPHeaders = [:], receipt: Bool = false) async throws(SocketError) {
        try await self.settle(isAcknowledged: true, headers, receipt)
    }

    /// Rejects the message, and with ack mode ``STOMPAckMode/client`` those before it: the broker then acts as it is
    /// configured. STOMP 1.1 and 1.2 only.
    ///
    /// - Parameters:
    ///   - headers: Further headers, such as RabbitMQ's `requeue`. None by default.
    ///   - receipt: As in ``ack(headers:receipt:)``.
    ///
    /// - Throws: ``/HHSocket/SocketError`` as ``ack(headers:receipt:)`` does; `invalidArgument` also for a message that
    ///   is settled, and with STOMP 1.0.
    public func nack(headers: STOMPHeaders = [:], receipt: Bool = false) async throws(SocketError) {
        try await self.settle(isAcknowledged: false, headers, receipt)
    }

    /// Acknowledges the message as ``ack(headers:receipt:)`` does, without waiting.
    ///
    /// - Parameter completion: Called once, on the callback queue; nil: there is no completion.
    public func ack(completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        self.settle(isAcknowledged: true, completion)
    }

    /// Rejects the message as ``nack(headers:receipt:)`` does, without waiting.
    ///
    /// - Parameter completion: Called once, on the callback queue; nil: there is no completion.
    public func nack(completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        self.settle(isAcknowledged: false, completion)
    }

    private func settle(
        isAcknowledged: Bool,
        _ headers: STOMPHeaders,
        _ receipt: Bool,
        transaction: String? = nil
    ) async throws(SocketError) {
        let delivery = try self.settled()
        try await self.settler.operations.run { [settler] turn, completion in
            settler.settle(
                delivery,
                isAcknowledged: isAcknowledged,
                transaction: transaction,
                headers: headers,
                awaitsReceipt: receipt,
                in: &turn,
                completion
            )
        }
    }

    private func settle(isAcknowledged: Bool, _ completion: (@Sendable (Result<Void, SocketError>) -> Void)?) {
        do throws(SocketError) {
            let delivery = try self.settled()
            self.settler.operations.run(completion) { [settler] turn, completion in
                settler.settle(
                    delivery,
                    isAcknowledged: isAcknowledged,
                    transaction: nil,
                    headers: STOMPHeaders(),
                    awaitsReceipt: false,
                    in: &turn,
                    completion
                )
            }
        } catch {
            self.settler.operations.port.complete(completion, .failure(error))
        }
    }

    /// Settles the message as part of a transaction.
    func settle(isAcknowledged: Bool, in transaction: String) async throws(SocketError) {
        try await self.settle(isAcknowledged: isAcknowledged, STOMPHeaders(), false, transaction: transaction)
    }

    private func settled() throws(SocketError) -> STOMPDelivery {
        guard let delivery = self.delivery else {
            throw .invalid("a message that belongs to no subscription cannot be acknowledged")
        }
        return delivery
    }
}

extension STOMPMessage: CustomStringConvertible {
    /// The destination, the id and the length; never the body.
    public var description: String {
        "message \(self.messageID) of \(self.destination), \(self.body.readableBytes) bytes"
    }
}

extension STOMPMessage: InboxElement {
    @usableFromInline package var memory: Int { self.frame.headers.memory + self.frame.body.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) {
        self.frame.headers.detach()
        self.frame.body = self.frame.body.detached
    }
}
