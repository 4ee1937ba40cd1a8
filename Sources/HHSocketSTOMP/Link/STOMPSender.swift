// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Sends the frames of a client. On the socket's thread, where nothing else is said.
final class STOMPSender: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the connection is accessed only on the socket's thread.
    let operations: STOMPOperations
    private let connection: STOMPConnection
    private let port: STOMPPort
    private let limits: STOMPLimits
    private let maximumQueuedBytes: Int
    private let omitsContentLengthOfText: Bool

    init(_ configuration: STOMPConfiguration, _ connection: STOMPConnection, operations: STOMPOperations) {
        self.operations = operations
        self.connection = connection
        self.port = operations.port
        self.limits = configuration.limits
        self.maximumQueuedBytes = configuration.socket.maximumQueuedBytes
        self.omitsContentLengthOfText = configuration.omitsContentLengthOfText
    }

    // MARK: From any thread

    /// Headers that the client sets itself.
    private static let reserved = ["receipt", "transaction"]

    /// The frame that sends a text.
    func sending(
        _ text: String,
        to destination: String,
        headers: STOMPHeaders,
        contentType: String?
    ) -> STOMPFrame {
        .sending(
            ByteBuffer(string: text),
            to: destination,
            headers: headers,
            contentType: contentType,
            omitsContentLength: self.omitsContentLengthOfText
        )
    }

    /// Checks a frame of the user before the version is known.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for a frame that no version can carry.
    func check(_ frame: STOMPFrame) throws(SocketError) {
        if let name = Self.reserved.first(where: { frame.headers.contains(name: $0) }) {
            throw .invalid(
                "the header \(name) of \(frame.command) is the client's own; ask for it by the method's arguments"
            )
        }
        if let refusal = STOMPEncoder.refusal(of: frame, version: .v1_2, limits: self.limits) {
            throw .invalid("\(refusal)")
        }
    }

    // MARK: Sending

    /// Sends a frame, and completes when it was handed to the system, or, with a receipt, when the receipt has arrived.
    ///
    /// - Parameters:
    ///   - isOfOneConnection: Whether it is only for this connection; otherwise it waits for one if there is none.
    ///   - completion: Called once; nil: there is no completion and no receipt.
    func send(
        _ frame: STOMPFrame,
        awaitsReceipt: Bool,
        isOfOneConnection: Bool,
        in turn: inout Turn,
        _ completion: STOMPOperation.Completion?
    ) {
        guard let completion else {
            _ = self.send(STOMPUnit(frame, nil, isOfOneConnection: isOfOneConnection), in: &turn)
            return
        }
        guard !self.operations.isOver else { return completion(.failure(STOMPErrors.released)) }
        var frame = frame
        let receipt = awaitsReceipt ? self.connection.decide { $0.makeReceipt() } : nil
        if let receipt { frame.headers.add(name: "receipt", value: receipt) }
        let operation = STOMPOperation(.frame(frame), receipt: receipt, completion)
        let outcome = MessageOutcome { [weak operations = self.operations] in operations?.left(operation, $0) }
        operation.begin(outcome)
        self.operations.add(operation, in: &turn)
        _ = self.send(STOMPUnit(frame, outcome, isOfOneConnection: isOfOneConnection), in: &turn)
    }

    /// Sends a frame of one connection, without completion.
    ///
    /// - Returns: The reason why it is not sent.
    func send(_ frame: STOMPFrame, in turn: inout Turn) -> SocketError? {
        self.send(STOMPUnit(frame, nil, isOfOneConnection: true), in: &turn)
    }

    /// - Returns: The reason why a frame of one connection is not sent, of which its outcome is notified too.
    private func send(_ unit: STOMPUnit, in turn: inout Turn) -> SocketError? {
        guard unit.isOfOneConnection else {
            return self.port.send(unit, in: &turn) ? nil : fail(STOMPErrors.released)
        }
        guard let peer = self.connection.openPeer else { return fail(Self.gone) }
        if let refusal = self.refusal(of: unit) ?? self.overflow(by: unit, on: peer) { return fail(refusal) }
        return peer.send(unit, in: &turn) ? nil : fail(Self.gone)
        func fail(_ error: SocketError) -> SocketError {
            unit.outcome?.complete(.failure(error))
            return error
        }
    }

    private static let gone = STOMPErrors.lost("there is no connection to the broker any more")

    /// Returns the reason why a message of a transaction may not wait for the broker to read; nil if it may. Other
    /// frames always may: they are short, and there are no more of them than messages and transactions to settle or
    /// end.
    private func overflow(by unit: STOMPUnit, on peer: STOMPPeer) -> SocketError? {
        let waiting = peer.link.waitingBytes
        guard unit.frame?.command == .send, waiting > 0, unit.payload.readableBytes > self.maximumQueuedBytes - waiting
        else { return nil }
        let message = "too many bytes wait for the broker to read (maximumQueuedBytes)"
        return SocketError(.queueFull, message: message, endpoint: peer.endpoint)
    }

    /// Returns the reason why the agreed version cannot carry a frame; nil if it can.
    func refusal(of unit: STOMPUnit) -> SocketError? {
        guard let frame = unit.frame, let version = self.connection.agreement?.version,
            let refusal = STOMPEncoder.refusal(of: frame, version: version, limits: self.limits)
        else { return nil }
        return .invalid("\(refusal)", endpoint: self.connection.peer?.endpoint)
    }
}
