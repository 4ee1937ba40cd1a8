// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// An operation of the user that has not ended: a frame that waits, is being sent or awaits its receipt, or a wait for
/// a connection. Completes once.
final class STOMPOperation: @unchecked Sendable {
    // Proof of Sendable: it is accessed only on the socket's thread.
    typealias Completion = @Sendable (Result<Void, SocketError>) -> Void

    /// The kind of an operation, for errors.
    enum Subject: Sendable {
        case frame(STOMPFrame)
        /// A wait.
        case waiting(String)
    }

    private let subject: Subject
    /// The receipt that its frame asks for; nil if none is awaited.
    let receipt: String?
    private var sending: MessageOutcome?
    private var isSent = false
    private var completion: Completion?

    init(_ subject: Subject, receipt: String?, _ completion: @escaping Completion) {
        self.subject = subject
        self.receipt = receipt
        self.completion = completion
    }

    /// The command and its destination.
    var name: String {
        switch self.subject {
        case .frame(let frame): "\(frame.command)\(frame.headers["destination"].map { " to \($0)" } ?? "")"
        case .waiting(let name): name
        }
    }

    /// The progress of its frame; nil if it has none.
    var outcome: MessageOutcome? { self.sending }

    /// Whether the frame has been handed to the system.
    var hasLeft: Bool { self.isSent }

    /// Its frame is about to be sent.
    func begin(_ outcome: MessageOutcome) { self.sending = outcome }

    /// The frame has been handed to the system, or cannot be.
    func markSent() { self.isSent = true }

    var isOpen: Bool { self.completion != nil }

    /// - Returns: False if it had ended before.
    @discardableResult
    func complete(_ result: Result<Void, SocketError>) -> Bool {
        guard let completion = self.completion.take() else { return false }
        completion(result)
        return true
    }
}
